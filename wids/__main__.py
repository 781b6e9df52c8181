"""`python -m wids` is the command `wids`, as are the console scripts."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        # Imported here: who presses Ctrl-C while modules load must see no traceback either.
        from wids.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # what a shell reports for Ctrl-C


if __name__ == "__main__":
    sys.exit(main())
