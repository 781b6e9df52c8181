"""Write the tables of the order benchmarks into docs/order.md, between their markers.

python benchmarks/order_tables.py            # writes
python benchmarks/order_tables.py --check    # exit status 1 if it is out of date
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "order.md"
MARKED = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def filled(text):
    """Fill in every marked place from the results file it names."""

    def table(hit):
        return f"{hit[1]}\n{(HERE / 'results' / f'{hit[2]}.md').read_text()}\n{hit[3]}"

    return MARKED.sub(table, text)


def main():
    text = DOCUMENT.read_text()
    if "--check" in sys.argv:
        sys.exit(filled(text) != text)
    DOCUMENT.write_text(filled(text))


if __name__ == "__main__":
    main()
