"""Numbers of samples of remote shards, from the indexes that DALI and Energon keep beside them.

Such an index is used only if the shard has a header and its end at the offsets that the index
states, and only for the number of samples. A shard that turns out to hold another number when it is
opened is an error.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from wids.base.urls import display_url, scheme_of
from wids.errors import FetchError, ShardFormatError
from wids.fetching.responses import FileVersion
from wids.fetching.transport import BeyondEndError
from wids.log import logger
from wids.specs.indexrules import USUAL_RULES
from wids.specs.locations import with_suffix
from wids.tar.foreign import dali_path, stated_layout
from wids.tar.tarheader import BLOCK_SIZE, checksum_matches

if TYPE_CHECKING:
    from wids.base.shardref import ShardRef
    from wids.base.warn import WarningsOnce
    from wids.fetching.fetch import Fetcher
    from wids.tar.foreign import StatedLayout
    from wids.tar.sidecar import IndexRules

__all__ = ["foreign_count"]

_MOST_NBYTES = 256 << 20  # of an index of three million members


def foreign_count(
    ref: ShardRef, fetcher: Fetcher, rules: IndexRules, warnings: WarningsOnce
) -> int | None:
    """Return the number of samples that another tool's index beside a remote shard states.

    Args:
        ref: The entry of the shard, which is not compressed.
        fetcher: Reads the index, and two blocks of the shard.
        rules: How the dataset groups members; those tools know the usual way alone.
        warnings: Issues the warning of wrong indexes once.

    Returns:
        The number; None if there is no such index, or none that fits the shard.
    """
    if rules != USUAL_RULES:
        return None
    for url, starts in ((with_suffix(ref.url, ".idx"), True), (_dali_url(ref.url), False)):
        shown = display_url(url)
        try:
            layout = stated_layout(shown, fetcher.read(url, _MOST_NBYTES), starts=starts)
        except (FetchError, ShardFormatError) as error:  # missing, or of another purpose
            logger.debug("%s: is not used to count samples: %s", shown, error)
            continue
        try:
            _compare(ref, fetcher, layout)
        except (BeyondEndError, ShardFormatError) as error:
            warnings.warn(
                "wrong foreign index",
                f"{shown}: an index of another tool does not fit its shard, and is not used: "
                f"{error}; remove or remake it",
            )
            continue
        except FetchError as error:  # the shard cannot be read by range, or has another size
            logger.debug("%s: is not used to count samples: %s", shown, error)
            return None
        logger.info("%s: counted %d samples", shown, layout.num_samples)
        return layout.num_samples
    return None


def _dali_url(url: str) -> str:
    """Return the URL of DALI's index of a shard.

    >>> _dali_url("https://host/set/a.00.tar?key=1"), _dali_url("s3://bucket/a.tar")
    ('https://host/set/a.idx?key=1', 's3://bucket/a.idx')
    """
    web = scheme_of(url) in ("http", "https")
    path, mark, query = url.partition("?") if web else (url, "", "")
    folder, _, name = path.rpartition("/")
    return f"{folder}/{dali_path(PurePosixPath(name)).name}{mark}{query}"


def _compare(ref: ShardRef, fetcher: Fetcher, layout: StatedLayout) -> None:
    """Compare what an index states with its shard.

    Raises:
        ShardFormatError: There is no header, or no end, where the index says.
        FetchError: The shard has another size than the spec says, or cannot be read by range.
    """
    # Some programs end an archive without the blocks of zeros.
    offsets = [layout.header] + [layout.end] * (layout.end != ref.filesize)
    header, *end = fetcher.read_ranges(
        ref.url,
        [(offset, offset + BLOCK_SIZE) for offset in offsets],
        version=FileVersion(ref.filesize),
    )
    if not checksum_matches(header) or any(map(any, end)):
        raise ShardFormatError(
            f"{display_url(ref.url)}: expected a header at byte {layout.header} and the end of the "
            f"archive at byte {layout.end}, as the index says, found something else"
        )
