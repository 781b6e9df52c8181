"""`SampleDecoder`: decoder of the fields of a sample by their extensions.

The longest matching suffix counts, whatever the case of its letters: ".seg.PNG" is decoded as
".seg.png" if there is such a decoder, else as ".png". A field without a decoder becomes a binary
stream.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from wids.base.urls import display_url
from wids.codecs.documents import DEFAULT_MAX_NBYTES, decode_text
from wids.codecs.formats import WRAPPERS, Decoder, DecoderSettings, builtin_decoders, unpack_field
from wids.codecs.framing import RandomResizedCrop
from wids.codecs.images import ImageDecoder, name_failures
from wids.errors import DecodeError

__all__ = ["Decoder", "ErrorHandler", "SampleDecoder", "decode_error", "decode_field"]

ErrorHandler = Callable[[DecodeError, str, dict[str, Any]], Any]

MEMO_LIMIT = 10_000  # extensions; bounds the memory if every sample has other extensions
_MOST_REASON = 2000  # characters of the cause of a failure
_LABELS = ("__index__", "__key__", "__shard__")  # the labels that an error message names
# Used by `repr`, which shows the settings that differ, and by pickling, which passes all of them.
DEFAULTS = {
    "allow_pickle": False,
    "decoders": {},
    "on_error": "raise",
    "media": False,
    "copy": True,
    "max_nbytes": DEFAULT_MAX_NBYTES,
}


class SampleDecoder:
    """Decoder of the fields of a sample by their extensions.

    It is safe by default: no data can run code unless `allow_pickle` is set. Instances can be
    shared by threads, and pickled if `decoders` and `on_error` can be.

    Args:
        images: Form of decoded images: "PIL" (opened, not yet decoded), "numpy" (height, width and,
            if there are several, channels; in the image's own mode, so mostly uint8), "torch"
            (3, height, width; uint8, RGB), an `ImageDecoder` for any other form, or "raw" to leave
            them binary streams. The case of the letters is ignored.
        allow_pickle: Decode `.pkl`, `.pickle`, `.pt` and `.pth`, and object arrays in `.npy`.
            This allows the author of a shard to run code in this process.
        decoders: Entries that extend or replace the built-in ones: from an extension (with its
            leading dot, of one component or more) to a function that decodes the field's bytes, a
            memoryview. None leaves a field a binary stream.
        on_error: Handling of a field that cannot be decoded. "raise" raises `DecodeError`.
            "collect" sets the field to None and adds the message to the sample's `__errors__`, a
            dict by extension, so that a collate function can leave such samples out. A mapping
            gives placeholders by extension, as spelt in the sample; for other extensions the error
            is raised. A function `(error, extension, sample)` returns a placeholder for the field,
            or raises. A missing library and a refused pickle are always raised, since they are no
            faults of the data. A PIL image that is opened but not yet decoded raises `DecodeError`
            at the first use of its pixels, which `on_error` does not see.
        media: Decode sound and video too; otherwise they stay binary streams.
        copy: Copy the arrays of `.npy`, `.ten` and `.tb`, so that they own their memory and are
            writable. False makes them read-only views of the shard, which stays mapped as long as
            they exist.
        max_nbytes: Maximum decompressed size of one field, and maximum size of the value of a
            document, an archive of arrays, sound or video, in bytes; for JSON, msgpack, CBOR and
            compressed text with the document, and with the parser's copy of it where it makes one.

    Attributes:
        draws: Whether images are cropped at random, by the seed of their sample.
        may_draw: Whether they are, or functions of `decoders` may do so.

    >>> decode = SampleDecoder()
    >>> decode({"__key__": "a", ".cls": b"3", ".TXT": b"three"})
    {'__key__': 'a', '.cls': 3, '.TXT': 'three'}
    """

    def __init__(
        self,
        images: str | ImageDecoder = "PIL",
        *,
        allow_pickle: bool = False,
        decoders: Mapping[str, Decoder | None] | None = None,
        on_error: str | Mapping[str, Any] | ErrorHandler = "raise",
        media: bool = False,
        copy: bool = True,
        max_nbytes: int = DEFAULT_MAX_NBYTES,
    ) -> None:
        self.images = images
        self.allow_pickle = allow_pickle
        decoders = decoders or {}
        if not isinstance(decoders, Mapping):
            raise TypeError(
                f"decoders: expected a dict of functions by extension, got {decoders!r}"
            )
        for extension, decode in decoders.items():
            if not extension.startswith("."):
                raise ValueError(f"decoders: an extension begins with a dot, got {extension!r}")
            if decode is not None and not callable(decode):
                raise TypeError(
                    f"decoders[{extension!r}]: expected a function or None, got {decode!r}"
                )
        self.decoders = {extension.lower(): decode for extension, decode in decoders.items()}
        if isinstance(on_error, Mapping):
            for extension in on_error:
                if not extension.startswith("."):
                    raise ValueError(f"on_error: an extension begins with a dot, got {extension!r}")
        elif not callable(on_error) and on_error not in ("raise", "collect"):
            raise ValueError(
                'on_error: expected "raise", "collect", placeholders by extension or a function, '
                f"got {on_error!r}"
            )
        self.on_error = on_error
        self.media = media
        self.copy = copy
        self.max_nbytes = max_nbytes
        settings = DecoderSettings(images, allow_pickle, media, copy, max_nbytes)
        table = {**builtin_decoders(settings), **self.decoders}
        self._decoder_of = _DecoderOf(table, max_nbytes)
        self._opens_images = any(
            isinstance(decode, ImageDecoder) and decode.to == "PIL" for decode in table.values()
        )
        self.draws = any(
            isinstance(decode, ImageDecoder) and isinstance(decode.size, RandomResizedCrop)
            for decode in table.values()
        )
        self.may_draw = self.draws or bool(self.decoders)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Decode all fields of a sample.

        Args:
            sample: Raw fields by extension, each a memoryview, bytes or a binary stream; entries
                without a leading dot (such as `__key__`) and values of other types are kept.

        Returns:
            A new dict with the same keys in the same order.

        Raises:
            DecodeError: A field could not be decoded; the message names it, and the sample by its
                index, key and shard if `sample` holds them.
        """
        # Hot path: for each field one look-up by extension, one check of the type, one call.
        decoder_of, opens_images = self._decoder_of, self._opens_images
        decoded = dict(sample)
        for extension, data in sample.items():
            decode = decoder_of[extension]
            if decode is None:
                continue
            try:
                kind = type(data)
                if kind is memoryview or kind is bytes:
                    value = decode(data)
                elif decode is not io.BytesIO and hasattr(data, "read"):
                    value = decode(data.read())
                else:
                    continue
            except Exception as error:  # noqa: BLE001 (a decoder may fail in any way)
                decoded[extension] = self.answer(error, extension, sample, decoded)
            else:
                if opens_images and hasattr(value, "load_prepare"):  # an ImageFile of Pillow's
                    # Not the sample itself, whose other fields an image would keep in memory.
                    get = sample.get
                    labels = get("__index__"), get("__key__"), get("__shard__")
                    name_failures(value, partial(_error_of_image, extension, labels))
                decoded[extension] = value
        return decoded

    def decoder_of(self, extension: str) -> Decoder | None:
        """Return the decoder of one extension, for callers with many such fields.

        Args:
            extension: With its leading dot, such as ".seg.png".

        Returns:
            A function from the field's bytes to its value, which raises the errors of its library;
            None for a name that is no extension.

        >>> SampleDecoder().decoder_of(".cls")(b"7")
        7
        """
        return self._decoder_of[extension]

    def replace(self, **settings: Any) -> "SampleDecoder":
        """Return a decoder with some settings changed, by the names of the class's arguments.

        Args:
            settings: Arguments of the class by name, such as `images="numpy"`.

        >>> SampleDecoder(on_error="collect").replace(images="numpy")
        SampleDecoder('numpy', on_error='collect')
        """
        return type(self)(**{"images": self.images, **self._options(), **settings})

    def answer(
        self,
        error: Exception,
        extension: str,
        sample: dict[str, Any],
        decoded: dict[str, Any] | None = None,
    ) -> Any:
        """Return the placeholder of a field that cannot be decoded, or raise, by `on_error`.

        Args:
            error: Error of the field's decoder.
            extension: Extension of the field.
            sample: The sample before decoding.
            decoded: The decoded sample, to which the message is added if errors are collected.

        Raises:
            DecodeError: `on_error` gives no placeholder.
        """
        failure = decode_error(extension, sample, error)
        failure.__cause__ = error
        if self.on_error == "raise" or isinstance(error, (ImportError, PermissionError)):
            raise failure
        if callable(self.on_error):
            try:
                return self.on_error(failure, extension, sample)
            except StopIteration as stop:  # a loop would take it for the end of the samples
                raise RuntimeError(f"on_error: StopIteration for {failure}") from stop
        if isinstance(self.on_error, Mapping):
            if extension not in self.on_error:
                raise failure
            return self.on_error[extension]
        if decoded is not None:
            decoded.setdefault("__errors__", {})[extension] = str(failure)
        return None

    # Looked-up decoders are not pickled: the other process builds its own table.
    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.images, **self._options()), ()

    def __repr__(self) -> str:
        shown = [repr(self.images)]
        for name, value in self._options().items():
            if name == "decoders" and value:
                shown.append(f"decoders for {', '.join(sorted(value))}")
            elif value != DEFAULTS[name]:
                shown.append(f"{name}={getattr(value, '__qualname__', repr(value))}")
        return f"SampleDecoder({', '.join(shown)})"

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in DEFAULTS}


def decode_field(extension: str, data: bytes | memoryview) -> Any:
    """Decode one field as `SampleDecoder()` does.

    Args:
        extension: With its leading dot, such as ".json" or ".txt.gz".
        data: The whole field.

    Raises:
        DecodeError: The bytes do not have the format of the extension.

    >>> decode_field(".json", b"[1, 2]")
    [1, 2]
    """
    return _default_decoder()({extension: data})[extension]


@cache
def _default_decoder() -> SampleDecoder:
    """Return the decoder without settings, whose table takes longer to make than a field."""
    return SampleDecoder()


def _error_of_image(extension: str, labels: tuple[Any, ...], error: Exception) -> DecodeError:
    known = {name: each for name, each in zip(_LABELS, labels, strict=True) if each is not None}
    return decode_error(extension, known, error)


def decode_error(extension: str, sample: Mapping[str, Any], error: Exception) -> DecodeError:
    """Return the error of a field that cannot be decoded, which names the field and the sample.

    Args:
        extension: Extension of the field.
        sample: The sample, or its labels; `__index__`, `__key__` and `__shard__` are used.
        error: The error of the decoder.
    """
    # A single message argument: a DataLoader rebuilds a worker's error from its text alone.
    failure = DecodeError(f"{_field_words(extension, sample)}: {_reason(error)}")
    failure.sample = sample.get("__index__")
    return failure


def _field_words(extension: str, sample: Mapping[str, Any]) -> str:
    known = [
        f"{word} {sample[name]!r}"
        for word, name in (("sample", "__index__"), ("key", "__key__"))
        if name in sample
    ]
    if "__shard__" in sample:
        # The query of a URL may hold a signature or a token, which must not get into logs.
        known.append(f"shard {display_url(str(sample['__shard__']))!r}")
    return f"cannot decode field {extension!r}" + (f" of {', '.join(known)}" if known else "")


def _reason(error: Exception) -> str:
    """Return the cause of a failure for a message."""
    # Some errors show the whole value that they refuse.
    text = str(error)
    if len(text) > _MOST_REASON:
        text = f"{text[:_MOST_REASON]}... ({len(text)} characters)"
    if isinstance(error, (DecodeError, ImportError, PermissionError)):
        return text
    return f"{type(error).__name__}: {text}"


class _DecoderOf(dict[str, Decoder | None]):
    """Memo of decoders by extension, each looked up in the table once."""

    def __init__(self, table: Mapping[str, Decoder | None], max_nbytes: int) -> None:
        super().__init__()
        self.table = table
        self.max_nbytes = max_nbytes

    def __missing__(self, extension: str) -> Decoder | None:
        # Once per spelling: splitting and lowering the extension of each field would be slow.
        decode = self._find(extension.lower()) if extension.startswith(".") else None
        if len(self) < MEMO_LIMIT:
            self[extension] = decode
        return decode

    def _find(self, extension: str) -> Decoder:
        """Return the decoder of the longest suffix in the table, inside at most one wrapper."""
        for suffix in _suffixes(extension):
            if suffix in self.table:
                return self.table[suffix] or io.BytesIO
        inner, _, wrapper = extension.rpartition(".")
        # ".gz" alone names no format: the field is a stream of the compressed bytes.
        if not inner or f".{wrapper}" not in WRAPPERS:
            return io.BytesIO
        entries = (self.table[suffix] for suffix in _suffixes(inner) if suffix in self.table)
        decode = next(entries, None) or io.BytesIO
        # A few compressed bytes can become any text, unlike those of a field in the shard.
        bounded = partial(decode_text, max_nbytes=self.max_nbytes)
        if decode is decode_text:
            decode = bounded
        return partial(_decode_unpacked, f".{wrapper}", self.max_nbytes, decode)


def _suffixes(extension: str) -> Iterator[str]:
    """Yield the suffixes of an extension, the longest first: ".seg.png", then ".png"."""
    start = extension.find(".")
    while start >= 0:
        yield extension[start:]
        start = extension.find(".", start + 1)


def _decode_unpacked(
    wrapper: str, max_nbytes: int, decode: Decoder, data: bytes | memoryview
) -> Any:
    """Decompress a field, then decode its content."""
    return decode(memoryview(unpack_field(wrapper, data, max_nbytes)))
