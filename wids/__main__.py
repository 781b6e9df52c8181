"""`python -m wids` is the command `wids`."""

import sys

from wids.cli import main

if __name__ == "__main__":
    sys.exit(main())
