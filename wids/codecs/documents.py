"""Codecs of text, class numbers, JSON, msgpack, CBOR, pickles and the files of `torch.save`.

Only `unpickle` and `unpickle_torch` can run code, and they are called only if the user allowed
pickles.
"""

import io
import json
import pickle
import re
from typing import Any

import numpy as np

from wids.base.optional import load, load_if_present
from wids.base.valuesizes import JSON_COST, cbor_nbytes, json_nbytes, msgpack_nbytes
from wids.errors import DecodeError

__all__ = [
    "DEFAULT_MAX_NBYTES",
    "decode_cbor",
    "decode_class",
    "decode_json",
    "decode_msgpack",
    "decode_text",
    "encode_cbor",
    "encode_class",
    "encode_json",
    "encode_msgpack",
    "encode_pickle",
    "encode_text",
    "encode_torch",
    "refuse_pickle",
    "refuse_torch",
    "unpickle",
    "unpickle_torch",
]

# Default bound in bytes of a decoded value, and of a decompressed field.
DEFAULT_MAX_NBYTES = 512 << 20
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]")  # of characters by which a text takes 4 bytes for each
# orjson turns integers beyond 64 bits into floats. Long runs of digits are found by mapping digits
# to "0" and all else to "." for a substring search, which is ten times faster than a regex.
DIGITS = bytes(0x30 if chr(code).isdigit() and code < 128 else 0x2E for code in range(256))
LONG_NUMBER = b"0" * 19
# Bytes that no byte of JSON exceeds: its values, and the document with the copies of it.
_MOST_JSON_COST = JSON_COST + 6


def decode_text(data: bytes | memoryview, max_nbytes: int | None = None) -> str:
    """Decode UTF-8 text.

    Args:
        data: The whole field.
        max_nbytes: Maximum size in bytes of the characters, with the field; None for no bound, as
            for a field that is in the shard as it is.

    Raises:
        DecodeError: These might take more than `max_nbytes`.

    >>> decode_text("grün".encode())
    'grün'
    """
    if max_nbytes is not None:
        document = _whole(data)
        # Where a character is wider than those before it, the text is copied.
        copied = 0 if document.isascii() else len(document)
        _check_nbytes("text", copied + _parsed_nbytes(document), max_nbytes)
    return str(data, "utf-8")


def decode_class(data: bytes | memoryview) -> int:
    """Decode a class number: decimal digits, as accepted by `int`.

    Args:
        data: The whole field; white space around the number is allowed.

    >>> decode_class(b" 42 ")
    42
    """
    return int(str(data, "utf-8"))


def decode_json(data: bytes | memoryview, max_nbytes: int = DEFAULT_MAX_NBYTES) -> Any:
    """Decode JSON to what `json.loads` returns, with orjson if it is installed.

    Args:
        data: The whole document. NaN, infinities and integers of any size are accepted.
        max_nbytes: Maximum size of the value in bytes, with the document and the parser's copy.

    Raises:
        DecodeError: These might take more than `max_nbytes`.
        ValueError: The data is no JSON.

    >>> decode_json(b'{"x": [1, NaN, 18446744073709551616]}')
    {'x': [1, nan, 18446744073709551616]}
    """
    if len(data) <= max_nbytes // _MOST_JSON_COST:
        document = bytes(data)  # json.loads does not accept a memoryview
    else:
        document = _whole(data)
        held = _parsed_nbytes(document)
        _check_nbytes("json", held + json_nbytes(document, max_nbytes - held), max_nbytes)
    orjson = load_if_present("orjson")
    if orjson is not None and LONG_NUMBER not in document.translate(DIGITS):
        try:
            return orjson.loads(document)
        except ValueError:  # not JSON, or not supported by orjson: NaN, a byte order mark, ...
            pass  # parsed below, once the error, which has a copy of the document, is freed
    return json.loads(document)


def _whole(data: bytes | memoryview) -> bytes:
    """Return the bytes of a view, which are not copied if the view is of all of an object's."""
    if isinstance(data, memoryview) and isinstance(data.obj, bytes):
        return data.obj if len(data.obj) == data.nbytes else bytes(data)
    return bytes(data)


def _parsed_nbytes(document: bytes) -> int:
    """Return the size of a document with the copy that a parser makes of it, perhaps as text."""
    if document.isascii():
        return 2 * len(document)
    return (1 + (4 if _FOUR_BYTES.search(document) else 2)) * len(document)


def _check_nbytes(kind: str, nbytes: int, max_nbytes: int) -> None:
    if nbytes > max_nbytes:
        raise DecodeError(
            f"{kind}: its values might take {nbytes} bytes or more, max_nbytes is {max_nbytes}; "
            "raise max_nbytes if it is no bomb"
        )


def decode_msgpack(data: bytes | memoryview, max_nbytes: int = DEFAULT_MAX_NBYTES) -> Any:
    """Decode one msgpack object; raw strings are decoded as UTF-8 text.

    Args:
        data: The whole object. Keys of its maps may be numbers, as in CBOR.
        max_nbytes: Maximum size of the value in bytes, with that of the object.

    Raises:
        DecodeError: These might take more than `max_nbytes`.
        ModuleNotFoundError: msgpack is not installed.
    """
    document = _whole(data)
    held = len(document)
    _check_nbytes("msgpack", held + msgpack_nbytes(document, max_nbytes - held), max_nbytes)
    # `strict_map_key=True` would refuse numbers as keys, to prevent hash collisions. They are safe:
    # at most some thirty of msgpack's numbers share a hash.
    return load("msgpack", "msgpack").unpackb(document, raw=False, strict_map_key=False)


def decode_cbor(data: bytes | memoryview, max_nbytes: int = DEFAULT_MAX_NBYTES) -> Any:
    """Decode one CBOR object.

    Args:
        data: The whole object.
        max_nbytes: Maximum size of the value in bytes, with the object and the parser's copy.

    Raises:
        DecodeError: These might take more than `max_nbytes`.
        ModuleNotFoundError: cbor2 is not installed.
    """
    document = _whole(data)
    held = 2 * len(document)  # the parser reads a copy of each text
    _check_nbytes("cbor", held + cbor_nbytes(document, max_nbytes - held), max_nbytes)
    return load("cbor2", "cbor").loads(document)


def unpickle_torch(data: bytes | memoryview) -> Any:
    """Decode any file of `torch.save`. This can run code.

    Args:
        data: The whole file; tensors are loaded to the CPU.
    """
    return load("torch", "torch").load(io.BytesIO(data), map_location="cpu", weights_only=False)


def unpickle(data: bytes | memoryview) -> Any:
    """Decode a pickle. This can run code.

    Args:
        data: The whole pickle.
    """
    return pickle.loads(data)  # noqa: S301 (only reached with allow_pickle=True)


def refuse_pickle(data: bytes | memoryview) -> Any:
    """Raise PermissionError for any pickle.

    Args:
        data: The pickle, which is not parsed.

    Raises:
        PermissionError: Always; the message names the opt-in.
    """
    raise PermissionError(
        f"a pickle ({len(data)} bytes) can run code when it is read; pass allow_pickle=True if you "
        f"trust whoever made the shard, or fields= (wids map --fields) to leave it out"
    )


def refuse_torch(data: bytes | memoryview) -> Any:
    """Raise PermissionError for any file of `torch.save`.

    Args:
        data: The whole file, which is not parsed.

    Raises:
        PermissionError: Always; the message names the opt-in.
    """
    # torch.load(weights_only=True) runs no code, but a pickle of 400 bytes can make it use all
    # memory, or run for hours.
    raise PermissionError(
        f"a file of torch.save ({len(data)} bytes) is a pickle, which can run code or take all "
        f"memory; pass allow_pickle=True if you trust whoever made the shard, or fields= (wids map "
        f"--fields) to leave it out; .npy, .npz and .safetensors need no such trust"
    )


def encode_text(text: Any) -> bytes:
    """Encode text as UTF-8.

    Raises:
        TypeError: The value is not text.
    """
    if not isinstance(text, str):
        raise TypeError("expected text")
    return text.encode()


def encode_class(number: Any) -> bytes:
    """Return a class number as decimal digits; raise TypeError for bool, a likely mistake."""
    if isinstance(number, bool) or not isinstance(number, (int, np.integer, str)):
        raise TypeError("expected an int")
    return str(int(number)).encode()


def encode_json(document: Any) -> bytes:
    """Return compact UTF-8 JSON with keys in the order of the dict; text must already be JSON.

    Raises:
        ValueError: A text is no JSON, or two keys of a dict are the same text in JSON.
        TypeError: JSON has no such value.
    """
    if isinstance(document, str):
        json.loads(document)
        return document.encode()
    # Not sorted: reading gives back the user's order of keys.
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    # No recursion: a document may be nested more deeply than Python's stack allows.
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                key_of: dict[str, Any] = {}
                for key in value:
                    text = key if isinstance(key, str) else json.dumps(key)
                    if text in key_of:
                        raise ValueError(
                            f"the keys {key_of[text]!r:.80} and {key!r:.80} are both {text!r:.80} "
                            "in JSON, where readers keep one of their values; rename one of them"
                        )
                    key_of[text] = key
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(each for each in value if isinstance(each, dict | list | tuple))
    return data


def encode_msgpack(document: Any) -> bytes:
    """Return a value as msgpack."""
    packed: bytes = load("msgpack", "msgpack").packb(document)
    return packed


def encode_cbor(document: Any) -> bytes:
    """Return a value as CBOR."""
    packed: bytes = load("cbor2", "cbor").dumps(document)
    return packed


def encode_torch(value: Any) -> bytes:
    """Return a value as a file of `torch.save`."""
    stream = io.BytesIO()
    load("torch", "torch").save(value, stream)
    return stream.getvalue()


def encode_pickle(value: Any) -> bytes:
    """Return a value as a pickle; decoding it needs `allow_pickle=True`."""
    # A fixed protocol: the default, and with it the bytes, changes with the version of Python.
    return pickle.dumps(value, protocol=4)
