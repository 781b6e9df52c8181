"""Placeholder for `wids_tar` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_tar of wids 0.1.11 is gone. "
    "wids.Shard(path) reads the samples of a tar, wids.TarIndex.from_tar(path) lists it; "
    "see docs/coming-from-wids-0.1.11.md"
)
