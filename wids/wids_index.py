"""Placeholder for `wids_index` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_index of wids 0.1.11 is gone. "
    "`wids create` makes specs; it is also installed as `widsindex create`; "
    "see docs/coming-from-wids-0.1.11.md"
)
