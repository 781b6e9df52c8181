"""Placeholder for `wids_bench` of wids 0.1.11: raises an ImportError that says what to use."""

raise ImportError(
    "wids_bench of wids 0.1.11 is gone. "
    "The benchmarks are scripts in the repository; "
    "see docs/coming-from-wids-0.1.11.md"
)
