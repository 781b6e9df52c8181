"""The Range header of a request for a field, which players seek with."""

import re

__all__ = ["UnsatisfiableRangeError", "parse_range"]

# Nineteen digits are more than any file has bytes, and few enough for int() to take no time.
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


class UnsatisfiableRangeError(ValueError):
    """A range that begins behind the end of the field."""


def parse_range(header: str | None, nbytes: int) -> tuple[int, int] | None:
    """Read a Range header.

    Args:
        header: Its text, or None where the request has none.
        nbytes: Bytes of the field.

    Returns:
        The half-open range asked for, cut to what there is; None to send the whole field, which a
        server may also do for what it does not understand, such as several ranges at once.

    Raises:
        UnsatisfiableRangeError: The range begins behind the end.

    Source:
        RFC 9110, section 14.

    >>> parse_range("bytes=2-4", 10), parse_range("bytes=-3", 10), parse_range("bytes=0-1,4-5", 10)
    ((2, 5), (7, 10), None)
    """
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, stop = max(0, nbytes - int(found[2])), nbytes
    else:
        start = int(found[1])
        stop = min(int(found[2]) + 1, nbytes) if found[2] else nbytes
        # Not a range at all by the RFC, so the header is ignored.
        if found[2] and int(found[2]) < start:
            return None
    if start >= nbytes or start >= stop:
        raise UnsatisfiableRangeError(f"the field has {nbytes} bytes, asked for {header}")
    return start, stop
