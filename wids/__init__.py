"""True random access to WebDataset tar shards, with exact, resumable, distributed epochs.

    >>> import wids
    >>> sorted(wids.__all__)[:3]
    ['CacheError', 'CenterCrop', 'ChunkedSampler']

Names are loaded on first use (PEP 562), so that `import wids` costs next to nothing and the
indexer and the command line never wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wids.cache import ShardCache as ShardCache
    from wids.dataset import ShardListDataset as ShardListDataset
    from wids.decode import SampleDecoder as SampleDecoder
    from wids.decode import decode_field as decode_field
    from wids.encode import encode_field as encode_field
    from wids.errors import CacheError as CacheError
    from wids.errors import DecodeError as DecodeError
    from wids.errors import FetchError as FetchError
    from wids.errors import IntegrityError as IntegrityError
    from wids.errors import SampleCountError as SampleCountError
    from wids.errors import ShardFormatError as ShardFormatError
    from wids.errors import SpecError as SpecError
    from wids.errors import WidsError as WidsError
    from wids.framing import CenterCrop as CenterCrop
    from wids.framing import RandomResizedCrop as RandomResizedCrop
    from wids.framing import Resize as Resize
    from wids.images import ImageDecoder as ImageDecoder
    from wids.samplers import ChunkedSampler as ChunkedSampler
    from wids.samplers import DistributedChunkedSampler as DistributedChunkedSampler
    from wids.samplers import DistributedShardSampler as DistributedShardSampler
    from wids.samplers import ShardedSampler as ShardedSampler
    from wids.samplers import ShardListSampler as ShardListSampler
    from wids.shard import Shard as Shard
    from wids.spec import DatasetSpec as DatasetSpec
    from wids.tarindex import TarIndex as TarIndex
    from wids.writer import ShardWriter as ShardWriter
    from wids.writer import TarWriter as TarWriter

__version__ = "1.0.0.dev0"

_HOME_OF = {
    "CacheError": "errors",
    "CenterCrop": "framing",
    "ChunkedSampler": "samplers",
    "DatasetSpec": "spec",
    "DecodeError": "errors",
    "DistributedChunkedSampler": "samplers",
    "DistributedShardSampler": "samplers",
    "FetchError": "errors",
    "ImageDecoder": "images",
    "IntegrityError": "errors",
    "RandomResizedCrop": "framing",
    "Resize": "framing",
    "SampleCountError": "errors",
    "SampleDecoder": "decode",
    "Shard": "shard",
    "ShardCache": "cache",
    "ShardFormatError": "errors",
    "ShardListDataset": "dataset",
    "ShardListSampler": "samplers",
    "ShardWriter": "writer",
    "ShardedSampler": "samplers",
    "SpecError": "errors",
    "TarIndex": "tarindex",
    "TarWriter": "writer",
    "WidsError": "errors",
    "decode_field": "decode",
    "encode_field": "encode",
}

__all__ = [  # noqa: PLE0604 (strings all: the keys above and the version)
    *_HOME_OF,
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name, the first time it is asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'wids' has no attribute {name!r}")
    value = getattr(import_module(f"wids.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
