"""Dataset card in the Croissant format, which search engines and other libraries read.

The card names the shards with their digests, and the fields as files inside of them. Each kind of
field becomes a set of records with the key of the sample and the value.

Source:
    MLCommons, "Croissant Format Specification", version 1.0.
"""

from __future__ import annotations

import glob
import re
from typing import TYPE_CHECKING, Any

from wids.base.urls import display_url
from wids.codecs.formats import OCTET_STREAM, field_kind, media_type
from wids.specs.newspec import name_in_spec
from wids.tools.exporters import extensions_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from wids.base.shardref import ShardRef
    from wids.reading.samplesequence import ShardedSequence

__all__ = ["ABOUT", "croissant_card"]

# From the properties of a card that describe the dataset as a whole to the top-level keys of specs
# that may hold them.
ABOUT: dict[str, tuple[str, ...]] = {
    "description": ("description",),
    "license": ("license",),
    "url": ("homepage", "url"),
    "citeAs": ("citation",),
    "creator": ("creator", "author"),
    "version": ("version",),
    "datePublished": ("date",),
}
_VERSION = "http://mlcommons.org/croissant/1.0"
_DATA_TYPES = {
    "image": "sc:ImageObject",
    "audio": "sc:AudioObject",
    "video": "sc:VideoObject",
    "class": "sc:Integer",
}
_MEDIA_TYPES = {"text": "text/plain", "class": "text/plain", "json": "application/json"}
_ARCHIVES = {".gz": "application/gzip", ".tgz": "application/gzip", ".zst": "application/zstd"}
# The context that the specification prescribes.
_IN_CROISSANT = (
    "citeAs column equivalentProperty excludes extract field fileProperty fileObject fileSet "
    "format includes isLiveDataset jsonPath key md5 parentField path recordSet references regex "
    "repeated replace samplingRate separator source subField transform"
)
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _IN_CROISSANT.split()},
}


def croissant_card(
    dataset: ShardedSequence, about: Mapping[str, str], folder: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Return the card of a dataset, as JSON-LD.

    The tar index of each shard is read, to find all fields.

    Args:
        dataset: The dataset; each of its shards needs a digest in the spec.
        about: Values of the properties in `ABOUT`; they take precedence over those in the spec.
        folder: Folder of the card, to which the locations of local shards are relative.

    Raises:
        ValueError: A shard has no digest, which a card needs.
    """
    shards = [_file_of(shard, folder) for shard in dataset.shards]
    homes = [shard["@id"] for shard in shards]
    extensions = extensions_of(dataset)
    names = dataset.class_names
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": _VERSION,
        "name": str(dataset.dataset_name),
        **_about(dataset.header, about),
        "distribution": [
            *shards,
            *(_members(each, extensions, homes) for each in extensions),
        ],
        "recordSet": [
            *([_class_records(names)] if names else []),
            *(_records(each, named=bool(names)) for each in extensions),
        ],
    }


def _about(header: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of the dataset as a whole: those given, else those in the spec."""
    info = header.get("info")
    sources = [header, info] if isinstance(info, dict) else [header]
    found: dict[str, Any] = {}
    for name, keys in ABOUT.items():
        texts = [source.get(key) for source in sources for key in keys]
        if text := next((text for text in texts if text and isinstance(text, str)), ""):
            found[name] = text
    if isinstance(info, str) and info:
        found.setdefault("description", info)
    found |= given
    if "creator" in found:
        found["creator"] = {"@type": "sc:Organization", "name": found["creator"]}
    return found


def _file_of(shard: ShardRef, folder: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Return the entry of a shard."""
    location = display_url(name_in_spec(shard.url, folder)).removesuffix("?...")
    # `md5sum` of a spec is `md5` in a card.
    digests = {name.removesuffix("sum"): value for name, value in shard.digests.items()}
    if not digests:
        raise ValueError(
            f"{location}: a card needs a digest of each shard, and the spec has none of this one; "
            "make a spec with digests (wids create --sha256)"
        )
    ends = (kind for suffix, kind in _ARCHIVES.items() if location.endswith(suffix))
    size = {"contentSize": f"{shard.filesize} B"} if shard.filesize else {}
    return {
        "@type": "cr:FileObject",
        "@id": location,
        "name": location,
        "contentUrl": location,
        "encodingFormat": next(ends, "application/x-tar"),
        **size,
        **digests,
    }


def _members(extension: str, extensions: Sequence[str], shards: Sequence[str]) -> dict[str, Any]:
    """Return the entry of the members with an extension, in all shards."""
    # `*.png` also matches `0001.seg.png`. mlcroissant 1.1 reads past `excludes`, other readers not.
    longer = [each for each in extensions if each != extension and each.endswith(extension)]
    excludes = {"excludes": [f"*{glob.escape(each)}" for each in longer]} if longer else {}
    kind = media_type(extension)
    if kind == OCTET_STREAM:
        kind = _MEDIA_TYPES.get(field_kind(extension), kind)
    return {
        "@type": "cr:FileSet",
        "@id": _members_id(extension),
        "name": _members_id(extension),
        "containedIn": [{"@id": shard} for shard in shards],
        "encodingFormat": kind,
        "includes": f"*{glob.escape(extension)}",
        **excludes,
    }


def _members_id(extension: str) -> str:
    return f"members{extension}"


def _records(extension: str, *, named: bool) -> dict[str, Any]:
    """Return the records of a field: the key of each sample and the value."""
    name = extension.lstrip(".")
    kind = field_kind(extension)
    members = {"fileSet": {"@id": _members_id(extension)}}
    key = {
        "@type": "cr:Field",
        "@id": f"{name}/key",
        "name": f"{name}/key",
        "dataType": "sc:Text",
        "source": {
            **members,
            "extract": {"fileProperty": "fullpath"},
            "transform": {"regex": f"^(.*){re.escape(extension)}$"},
        },
    }
    value = {
        "@type": "cr:Field",
        "@id": f"{name}/value",
        "name": f"{name}/value",
        "dataType": _DATA_TYPES.get(kind, "sc:Text"),
        "source": {**members, "extract": {"fileProperty": "content"}},
    }
    if named and kind == "class":
        value["description"] = "Number of a class; its name is in the records `classes`."
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "key": {"@id": f"{name}/key"},
        "field": [key, value],
    }


def _class_records(names: Mapping[int, str]) -> dict[str, Any]:
    """Return the records of the classes, which the card holds itself."""
    fields = [
        {"@type": "cr:Field", "@id": f"classes/{each}", "name": f"classes/{each}", "dataType": kind}
        for each, kind in (("number", "sc:Integer"), ("name", "sc:Text"))
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "dataType": "sc:Enumeration",
        "key": {"@id": "classes/number"},
        "field": fields,
        "data": [
            {"classes/number": number, "classes/name": name}
            for number, name in sorted(names.items())
        ],
    }
