"""Placeholder for `wids_dl` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_dl of wids 0.1.11 is gone. "
    "wids.ShardCache('folder').get(url) fetches a shard and returns its path; "
    "see docs/coming-from-wids-0.1.11.md"
)
