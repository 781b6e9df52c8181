"""Placeholder for `wids_specs` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_specs of wids 0.1.11 is gone. "
    "wids.DatasetSpec.parse(text, url) reads a spec and resolves its URLs; "
    "see docs/coming-from-wids-0.1.11.md"
)
