"""Placeholder for `wids_lru` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_lru of wids 0.1.11 is gone. "
    "lru_size= says how many shards a dataset keeps open; "
    "see docs/coming-from-wids-0.1.11.md"
)
