"""Recognition of samples that a dot in their keys has merged into one.

By the usual rule the key of `v1/img.0001.jpg` is `v1/img`, and so is that of `v1/img.0002.jpg`:
both images become fields of one sample. Nothing in an archive tells such fields from the frames or
views of one sample, but frames and views have the same names in each sample.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from wids.tar.sidecar import Sidecar

__all__ = ["DOTTED_KEYS", "merged_sample"]

# What to do about it.
DOTTED_KEYS = (
    'if so, key_rule="last_dot" (--key-rule last_dot) reads them as such; if not, '
    'key_rule="first_dot" says so'
)

# All that is looked at of a shard, so that opening it takes no longer.
_MOST_SETS, _MOST_SAMPLES, _MOST_NBYTES = 64, 1 << 14, 1 << 16
_MANY = 8  # fields of one sample that end alike
_NUMBERED = re.compile(rb"\.[0-9]+\.")
_NAMED = re.compile(rb"(\.[A-Za-z]{2}[^.]*)+\.[^.]*")  # as .left.jpg, a field also of one sample


def merged_sample(sidecar: Sidecar) -> str:
    """Describe a sample that may be several, whose keys have dots; return "" if none is found.

    Args:
        sidecar: The tar index of the shard, which was made by the usual rule.
    """
    sets = [names[:_MOST_NBYTES].split(b"/") for names in sidecar.extension_sets[:_MOST_SETS]]
    in_sets = Counter(name for names in sets for name in names)
    ids = np.frombuffer(sidecar.rows, "<u4").reshape(-1, 4)[:-1, 2][:_MOST_SAMPLES]
    for number, names in enumerate(sets):
        dotted = [name for name in names if name.count(b".") > 1]
        endings = Counter(name.rpartition(b".")[2] for name in dotted)
        alike = [name for name in dotted if endings[name.rpartition(b".")[2]] > 1]
        if not alike:
            continue
        (samples,) = np.nonzero(ids == number)
        alone = [name for name in alike if in_sets[name] == 1 == len(samples)]
        numbered = [name for name in alike if _NUMBERED.match(name)]
        if (
            # All of its fields have a dot, and no other sample has these.
            (len(alone) > 1 and len(dotted) == len(names) and not all(map(_NAMED.fullmatch, alone)))
            or len(alone) >= _MANY
            # As `cat.0.jpg` to `cat.999.jpg` beside `dog.0.jpg` to `dog.999.jpg`.
            or len(numbered) > max(_MANY, sidecar.num_samples)
        ):
            shown = ", ".join(repr(name.decode("utf-8", "replace")[:80]) for name in alike[:2])
            more = f" and {len(alike) - 2} more" * (len(alike) > 2)
            where = f"sample {samples[0]} has" if len(samples) else "a sample has"
            return (
                f"{where} the fields {shown}{more}, which end alike, and may be several samples "
                "with dots in their keys"
            )
    return ""
