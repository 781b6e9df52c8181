"""From a sample to the members that stand for it in a tar: names checked, values encoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from wids.codecs.encode import encode_field
from wids.tar.grouping import split_name

__all__ = ["Encode", "sample_members"]

Encode = Callable[[str, Any], bytes]

_SPECIAL = re.compile(r"__.+__")  # __key__, __index__, __shard__ ... say where a sample comes from
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BYTES = (bytes, bytearray, memoryview)


def sample_members(
    sample: Mapping[str, Any], encode: Encode = encode_field
) -> tuple[str, list[tuple[str, Any]]]:
    """Turn a sample into the members that stand for it in a tar.

    Args:
        sample: `__key__` and one value per extension, given as `"jpg"` or `".jpg"`; other names
            of the form `__x__` are left out, so a sample that was read can be written.
        encode: Makes the bytes of a value that is none yet, from `(extension, value)`.

    Returns:
        The key, and `(member name, bytes)` pairs in order of the extensions.

    Raises:
        ValueError: The key is missing or cannot be a key, there is no field, an extension cannot
            be one or comes twice, or a value cannot be encoded. The message names key and field.

    >>> sample_members({"__key__": "0001", "txt": "one", ".cls": 1})
    ('0001', [('0001.cls', b'1'), ('0001.txt', b'one')])
    """
    key = _checked_key(sample)
    fields: dict[str, Any] = {}
    for field, value in sample.items():
        if _is_special(field):
            continue
        extension = _checked_extension(key, field)
        if extension in fields:
            raise ValueError(
                f"sample {key!r}: the extension {extension!r} comes twice, with and without its "
                "dot; keep one of them"
            )
        # The indexer's own rule has the last word: what it leaves out must not be written.
        if split_name(f"{key}{extension}".encode()) != (key.encode(), extension.encode()):
            raise ValueError(
                f"sample {key!r}: readers leave out {key + extension!r}, as they do all below a "
                "folder such as '__meta__'; name it otherwise"
            )
        fields[extension] = value
    if not fields:
        raise ValueError(f"sample {key!r} has no fields; give it one, such as 'txt'")
    return key, [
        (key + extension, _encoded(key, extension, fields[extension], encode))
        for extension in sorted(fields)
    ]


def _is_special(field: Any) -> bool:
    return isinstance(field, str) and _SPECIAL.fullmatch(field) is not None


def _checked_key(sample: Mapping[str, Any]) -> str:
    """Take a sample's key, if reading will find the same key again."""
    key = sample.get("__key__")
    if not isinstance(key, str) or not key:
        raise ValueError(
            f"a sample needs a '__key__', a non-empty text, got {key!r:.80}; "
            f"its fields are {sorted(map(str, sample))!r:.200}"
        )
    folders = key.split("/")
    problem = ""
    if "." in folders[-1]:
        problem = "a dot in its last part, where the extension would begin; write '_' or '-' there"
    elif "" in folders or ".." in folders or "." in folders:
        problem = "a part that is empty, '.' or '..'; write it as 'folder/name'"
    elif _CONTROL.search(key):
        problem = "a control character; take it out"
    elif not _is_utf8(key):
        problem = "a lone surrogate, which UTF-8 cannot say; take it out"
    if problem:
        raise ValueError(f"sample {key!r:.120}: the key has {problem}")
    return key


def _checked_extension(key: str, field: Any) -> str:
    """Bring a field's name to an extension with one leading dot."""
    if isinstance(field, str):
        extension = field if field.startswith(".") else f".{field}"
        if not (
            {"", "."} & {extension[1:], extension[1:2]}
            or "/" in extension
            or _CONTROL.search(extension)
        ) and _is_utf8(extension):
            return extension
    raise ValueError(
        f"sample {key!r}: {field!r:.80} cannot be an extension; expected letters as in 'jpg' or "
        "'seg.png', without '/' and control characters"
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encoded(key: str, extension: str, value: Any, encode: Encode) -> Any:
    """Give a value's bytes; what is bytes already stays as it is, whatever its extension."""
    if isinstance(value, _BYTES):
        return value
    try:
        data = encode(extension, value)
    except Exception as error:
        raise ValueError(
            f"sample {key!r}, field {extension!r}: a {type(value).__name__} could not be encoded "
            f"({error}); pass bytes, or encode= to ShardWriter"
        ) from error
    if not isinstance(data, _BYTES):
        raise TypeError(
            f"sample {key!r}, field {extension!r}: encode returned a {type(data).__name__}, "
            "expected bytes"
        )
    return data
