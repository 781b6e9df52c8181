"""`python -m wids` is the command `wids`; the console scripts come here from `_wids_command`."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        # Imported here: who presses Ctrl-C while modules load must see no traceback either.
        from wids.installation import installation_fault

        fault = installation_fault()
        if fault is not None:
            print(f"wids: {fault}", file=sys.stderr)
            return 1
        from wids.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130  # what a shell reports for Ctrl-C


if __name__ == "__main__":
    sys.exit(main())
