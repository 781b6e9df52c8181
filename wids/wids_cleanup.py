"""Placeholder for `wids_cleanup` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_cleanup of wids 0.1.11 is gone. "
    "A dataset keeps its cache within cache_size=, and `wids cache trim` shrinks one; "
    "see docs/coming-from-wids-0.1.11.md"
)
