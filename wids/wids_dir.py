"""Placeholder for `wids_dir` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_dir of wids 0.1.11 is gone. "
    "wids.ShardListDataset('folder') reads the shards in a folder; "
    "see docs/coming-from-wids-0.1.11.md"
)
