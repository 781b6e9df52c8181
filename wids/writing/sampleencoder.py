"""`SampleEncoder`: encoder of samples to tar members, which checks names and encodes values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from wids.base.arguments import check_mapping, check_text
from wids.codecs.formats import WRAPPERS, encode_field, pack_field
from wids.tar.grouping import KeyRule, split_name

__all__ = ["Encoder", "Members", "SampleEncoder"]

Encoder = Callable[[Any], bytes]
Members = list[tuple[str, Any]]
_Layout = list[tuple[str, str]]  # (field, extension), in order of the extensions

_SPECIAL = re.compile(r"__.+__")  # __key__, __index__, __shard__ ...: origin of a sample
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLAIN_KEY = re.compile(r"(?!__)[\w-]+(?:/(?!__)[\w-]+)*", re.ASCII).fullmatch
_BYTES = (bytes, bytearray, memoryview)
_QUICK = (*_BYTES, str, int, float, dict, list)  # encoded as text in no time
_MAX_LAYOUTS = 1000  # bounds the memory if every sample has different fields


class SampleEncoder:
    """Encoder of samples to members, which read back under the same key and extensions.

    Args:
        encoders: Entries that extend or replace those of `encode_field`: from an extension (with
            or without its leading dot, of one component or more) to a function that encodes a
            value as bytes. The entry with the longest matching suffix is used, as in
            `SampleDecoder`.
        key_rule: Rule by which the members are read: with "last_dot" keys may have dots, and
            extensions have one.

    >>> encode = SampleEncoder({"upper": lambda text: text.upper().encode()})
    >>> encode({"__key__": "0001", "txt": "one", ".cls": 1, "upper": "loud"})
    ('0001', [('0001.cls', b'1'), ('0001.txt', b'one'), ('0001.upper', b'LOUD')])
    """

    def __init__(
        self, encoders: Mapping[str, Encoder] | None = None, key_rule: KeyRule = "first_dot"
    ) -> None:
        encoders = encoders or {}
        check_mapping("encoders", encoders, "functions by extension")
        for extension, encoder in encoders.items():
            check_text("each extension of encoders", extension)
            if not callable(encoder):
                raise TypeError(
                    f"encoders[{extension!r}]: expected a function, got {encoder!r:.80}"
                )
        self._encoders = {
            f".{name.lower().removeprefix('.')}": encoder for name, encoder in encoders.items()
        }
        self._key_rule: KeyRule = key_rule
        # Layout by set of fields: most datasets have one set, which is checked once.
        self._layouts: dict[tuple[str, ...], _Layout] = {}

    def __call__(self, sample: Mapping[str, Any]) -> tuple[str, Members]:
        """Check and encode one sample.

        Args:
            sample: `__key__` and one value per extension, given as `"jpg"` or `".jpg"`; other names
                of the form `__x__` are left out, so that samples can be written as they were read.

        Returns:
            The key, and `(member name, bytes)` pairs in order of the extensions.

        Raises:
            ValueError: The key is missing or invalid, there is no field, an extension is invalid
                or occurs twice, or a value cannot be encoded. The message names key and field.
            TypeError: The sample is no dict, or an encoder did not return bytes.
        """
        try:
            key: Any = sample.get("__key__")
        except AttributeError:
            raise TypeError(
                "expected a sample as a dict, such as {'__key__': '0001', 'txt': 'one'}, got "
                f"{type(sample).__name__}"
            ) from None
        plain = type(key) is str and _PLAIN_KEY(key) is not None
        if not plain:  # it might not read back as the same key
            key = sample.get("__key__")
            if not isinstance(key, str) or not key:
                raise ValueError(
                    f"a sample needs a '__key__', a non-empty text, got {key!r:.80}; "
                    f"its fields are {sorted(map(str, sample))!r:.200}"
                )
            # `tar -C folder .` begins every name with "./", and such keys read back as they are.
            folders = key.removeprefix("./").split("/")
            problem = ""
            if "." in folders[-1] and (
                self._key_rule == "first_dot" or folders[-1].startswith(".")
            ):
                problem = (
                    "a dot in its last part, where the extension would begin; write '_' or '-' "
                    "there (wids import and wids reshard number the samples with --rekey)"
                )
            elif "" in folders or ".." in folders or "." in folders:
                problem = (
                    "a part that is empty, '.' or '..'; write it as 'folder/name' (wids import and "
                    "wids reshard number the samples with --rekey)"
                )
            elif _CONTROL.search(key):
                problem = "a control character; take it out"
            elif not _is_utf8(key):
                problem = "a lone surrogate, which UTF-8 cannot say; take it out"
            if problem:
                raise ValueError(f"sample {key!r:.120}: the key has {problem}")
        fields: tuple[Any, ...] = tuple(sample)
        layout = self._layouts.get(fields)
        if layout is None:
            field_of: dict[str, str] = {}
            for field in fields:
                if isinstance(field, str) and _SPECIAL.fullmatch(field):
                    continue
                extension = _checked_extension(key, field)
                if extension in field_of:
                    raise ValueError(
                        f"sample {key!r}: the extension {extension!r} comes twice, with and "
                        "without its dot; keep one of them"
                    )
                field_of[extension] = field
            if not field_of:
                raise ValueError(f"sample {key!r} has no fields; give it one, such as 'txt'")
            # Sorted, so that the bytes of a shard do not depend on the order in which a dict was
            # filled.
            layout = [(field_of[extension], extension) for extension in sorted(field_of)]
            _check_found_again(key, layout, self._key_rule)
            if len(self._layouts) < _MAX_LAYOUTS:
                self._layouts[fields] = layout
        elif not plain:
            _check_found_again(key, layout, self._key_rule)
        members = []
        for field, extension in layout:
            data = sample[field]
            # Bytes are already encoded, whatever the extension.
            if not isinstance(data, _BYTES):
                data = self._encoded(key, extension, data)
            members.append((key + extension, data))
        return key, members

    def quick_members(self, sample: Mapping[str, Any]) -> Members:
        """Return the members of a sample that take no time to encode: bytes, text and numbers.

        Pictures, arrays, and all values but bytes where the user gave encoders, are left out.
        """
        kinds = _BYTES if self._encoders else _QUICK
        quick = {name: value for name, value in sample.items() if isinstance(value, kinds)}
        has_fields = any(_SPECIAL.fullmatch(str(name)) is None for name in quick)
        return self({"__key__": sample["__key__"], **quick})[1] if has_fields else []

    def _encoded(self, key: str, extension: str, value: Any) -> Any:
        """Encode a value that is not bytes yet."""
        try:
            # The member's name keeps upper and lower case; the format is the same for both.
            data = self._encode(extension.lower(), value)
        except Exception as error:
            raise ValueError(
                f"sample {key!r}, field {extension!r}: a {type(value).__name__} could not be "
                f"encoded ({error}); pass bytes, or a function in encoders="
            ) from error
        if not isinstance(data, _BYTES):
            raise TypeError(
                f"sample {key!r}, field {extension!r}: its encoder returned a "
                f"{type(data).__name__}, expected bytes"
            )
        return data

    def _encode(self, extension: str, value: Any) -> Any:
        """Encode a value by an encoder of the user if one fits, else by a built-in one."""
        start = 0
        while self._encoders and start >= 0:
            encoder = self._encoders.get(extension[start:])
            if encoder is not None:
                return encoder(value)
            start = extension.find(".", start + 1)
        inner, dot, last = extension.rpartition(".")
        if self._encoders and inner and dot + last in WRAPPERS:
            return pack_field(dot + last, self._encode(inner, value))
        return encode_field(extension, value)


def _check_found_again(key: str, layout: _Layout, key_rule: KeyRule) -> None:
    """Raise if the indexer would leave out the member or split its name differently."""
    for _, extension in layout:
        found = split_name(f"{key}{extension}".encode(), key_rule)
        if found != (key.encode(), extension.encode()):
            if isinstance(found, tuple):
                raise ValueError(
                    f"sample {key!r}: the shards are read with key_rule='last_dot', by which the "
                    f"extension {extension!r} would be {found[1].decode()!r}; name it with one dot"
                )
            raise ValueError(
                f"sample {key!r}: readers leave out {key + extension!r}, as they do all below a "
                "folder such as '__meta__'; name it otherwise"
            )


def _checked_extension(key: str, field: Any) -> str:
    """Return a field's name as an extension with one leading dot."""
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
