"""True random access to WebDataset tar shards, with exact, resumable, distributed epochs.

    >>> import wids
    >>> sorted(wids.__all__)[:3]
    ['BatchSampler', 'CacheError', 'CenterCrop']

Names are loaded on first use (PEP 562), so that `import wids` costs next to nothing and the
indexer and the command line never wait for torch.
"""

from importlib import import_module

# Type checkers know this name. To import `typing` would take longer than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from wids.caching.cache import ShardCache as ShardCache
    from wids.codecs.decode import SampleDecoder as SampleDecoder
    from wids.codecs.decode import decode_field as decode_field
    from wids.codecs.formats import encode_field as encode_field
    from wids.codecs.framing import CenterCrop as CenterCrop
    from wids.codecs.framing import RandomResizedCrop as RandomResizedCrop
    from wids.codecs.framing import Resize as Resize
    from wids.codecs.images import ImageDecoder as ImageDecoder
    from wids.codecs.media import decode_audio as decode_audio
    from wids.codecs.media import decode_video as decode_video
    from wids.display.fieldview import view_field as view_field
    from wids.display.notebook import show as show
    from wids.display.thumbnails import thumbnail as thumbnail
    from wids.errors import CacheError as CacheError
    from wids.errors import DecodeError as DecodeError
    from wids.errors import FetchError as FetchError
    from wids.errors import IntegrityError as IntegrityError
    from wids.errors import SampleCountError as SampleCountError
    from wids.errors import ShardChangedError as ShardChangedError
    from wids.errors import ShardFormatError as ShardFormatError
    from wids.errors import SpecError as SpecError
    from wids.errors import WidsError as WidsError
    from wids.errors import WidsWarning as WidsWarning
    from wids.importing.huggingface import open_huggingface as open_huggingface
    from wids.ordering.batchplans import shape_buckets as shape_buckets
    from wids.ordering.batchsampler import BatchSampler as BatchSampler
    from wids.ordering.randomseeds import random_seed as random_seed
    from wids.ordering.rankcheck import check_ranks as check_ranks
    from wids.ordering.samplers import ChunkedSampler as ChunkedSampler
    from wids.ordering.samplers import DistributedChunkedSampler as DistributedChunkedSampler
    from wids.ordering.samplers import DistributedShardSampler as DistributedShardSampler
    from wids.ordering.samplers import ShardedSampler as ShardedSampler
    from wids.ordering.samplers import ShardListSampler as ShardListSampler
    from wids.reading.collate import collate as collate
    from wids.reading.collate import pack_sequences as pack_sequences
    from wids.reading.devicedecoder import DeviceDecoder as DeviceDecoder
    from wids.reading.loader import Loader as Loader
    from wids.reading.loaderstats import LoaderStats as LoaderStats
    from wids.reading.ragged import Ragged as Ragged
    from wids.reading.samplesequence import SampleSequence as SampleSequence
    from wids.specs.build import build_spec as build_spec
    from wids.specs.build import index_shard as index_shard
    from wids.specs.spec import DatasetSpec as DatasetSpec
    from wids.tar.foreign import check_foreign_index as check_foreign_index
    from wids.tar.foreign import read_foreign_index as read_foreign_index
    from wids.tar.foreign import write_dali_index as write_dali_index
    from wids.tar.foreign import write_energon_index as write_energon_index
    from wids.tar.shard import Shard as Shard
    from wids.tar.tarindex import TarIndex as TarIndex
    from wids.tools.mapping import map_samples as map_samples
    from wids.tools.orderreport import Cluster as Cluster
    from wids.tools.orderreport import order_report as order_report
    from wids.tools.reshard import reshard as reshard
    from wids.views.dataset import ShardListDataset as ShardListDataset
    from wids.views.drawnvalues import draw as draw
    from wids.views.mixture import Mixture as Mixture
    from wids.views.opening import open as open  # noqa: A004
    from wids.views.viewable import View as View
    from wids.views.viewable import concat as concat
    from wids.writing.shardwriter import ShardWriter as ShardWriter
    from wids.writing.tarwriter import TarWriter as TarWriter

__version__ = "1.0.0"

_HOME_OF = {
    "BatchSampler": "ordering.batchsampler",
    "CacheError": "errors",
    "CenterCrop": "codecs.framing",
    "ChunkedSampler": "ordering.samplers",
    "Cluster": "tools.orderreport",
    "DatasetSpec": "specs.spec",
    "DecodeError": "errors",
    "DeviceDecoder": "reading.devicedecoder",
    "DistributedChunkedSampler": "ordering.samplers",
    "DistributedShardSampler": "ordering.samplers",
    "FetchError": "errors",
    "ImageDecoder": "codecs.images",
    "IntegrityError": "errors",
    "Loader": "reading.loader",
    "LoaderStats": "reading.loaderstats",
    "Mixture": "views.mixture",
    "Ragged": "reading.ragged",
    "RandomResizedCrop": "codecs.framing",
    "Resize": "codecs.framing",
    "SampleCountError": "errors",
    "SampleDecoder": "codecs.decode",
    "SampleSequence": "reading.samplesequence",
    "Shard": "tar.shard",
    "ShardCache": "caching.cache",
    "ShardChangedError": "errors",
    "ShardFormatError": "errors",
    "ShardListDataset": "views.dataset",
    "ShardListSampler": "ordering.samplers",
    "ShardWriter": "writing.shardwriter",
    "ShardedSampler": "ordering.samplers",
    "SpecError": "errors",
    "TarIndex": "tar.tarindex",
    "TarWriter": "writing.tarwriter",
    "View": "views.viewable",
    "WidsError": "errors",
    "WidsWarning": "errors",
    "build_spec": "specs.build",
    "check_foreign_index": "tar.foreign",
    "check_ranks": "ordering.rankcheck",
    "collate": "reading.collate",
    "concat": "views.viewable",
    "decode_audio": "codecs.media",
    "decode_field": "codecs.decode",
    "decode_video": "codecs.media",
    "draw": "views.drawnvalues",
    "encode_field": "codecs.formats",
    "index_shard": "specs.build",
    "map_samples": "tools.mapping",
    "open": "views.opening",
    "open_huggingface": "importing.huggingface",
    "order_report": "tools.orderreport",
    "pack_sequences": "reading.collate",
    "random_seed": "ordering.randomseeds",
    "read_foreign_index": "tar.foreign",
    "reshard": "tools.reshard",
    "shape_buckets": "ordering.batchplans",
    "show": "display.notebook",
    "thumbnail": "display.thumbnails",
    "view_field": "display.fieldview",
    "write_dali_index": "tar.foreign",
    "write_energon_index": "tar.foreign",
}

# What takes the place of names that are gone.
_INSTEAD = {
    "SharedBatches": "; wids.Loader makes the same batches without processes",
    "open_view": "; wids.open opens saved views",
}

__all__ = [  # noqa: PLE0604 (strings all: the keys above and the version)
    *_HOME_OF,
    "__version__",
]


def __getattr__(name: str) -> "Any":
    """Import the module that holds a public name, the first time it is asked for."""
    if name in {"wids", "wids_decode", "wids_mmtar"}:  # as attributes, without an import of them
        return import_module(f"wids.{name}")
    if name not in _HOME_OF:
        instead = _INSTEAD.get(name, "")
        raise AttributeError(f"module 'wids' has no attribute {name!r}{instead}")
    value = getattr(import_module(f"wids.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
