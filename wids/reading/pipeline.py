"""`Pipeline`: makes the sample that a dataset returns from its raw fields."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeGuard, Unpack, overload

from wids.base.arguments import check_extension, check_flag, refuse_unknown, to_list
from wids.base.draws import within_sample
from wids.base.urls import display_url
from wids.codecs.decode import SampleDecoder
from wids.codecs.images import ImageDecoder
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from wids.codecs.decode import Decoder, ErrorHandler
    from wids.tar.shard import ReadableShard

__all__ = [
    "BatchKind",
    "Pipeline",
    "ReadingOptions",
    "Sample",
    "StreamedShard",
    "Transformation",
    "Transformations",
    "images_as_arrays",
    "no_end",
    "note_decoded_field",
    "note_index",
    "note_missing_dot",
    "while_reading",
    "wrap_in_streams",
]

_COUNTED = "in the view or the concatenation that was read, this is sample "  # the note of an index

Sample = dict[str, Any]
Transformation = Callable[[Any], Any]
Transformations = str | Transformation | Sequence[str | Transformation]

# The fastest way to make a batch: from raw fields, from decoded fields, or sample by sample.
BatchKind = Literal["raw", "decoded", "samples"]

# The default is that of 0.1.11, which had only "PIL".
IMAGE_MODES = ("PIL", "numpy", "torch")
RAW_KINDS = ("bytes", "memoryview")


class ReadingOptions(TypedDict, total=False):
    """Options of a dataset that decide what its samples are made of.

    `missing_ok` names those of `fields` that no sample need have; of others, a warning is given.
    """

    transformations: Transformations
    fields: Collection[str] | None
    decoders: Mapping[str, Decoder | None] | None
    on_error: str | Mapping[str, Any] | ErrorHandler
    missing_ok: Collection[str]


class Pipeline:
    """Fields to read and transformations to apply to each sample.

    Args:
        transformations: As for `ShardList`.
        decoder: Decoder of fields, for transformations such as "PIL" and for columns.
        fields: Extensions to read; None for all.

    Attributes:
        fields: Extensions to read, as a tuple; None for all.
        transformations: The callables that a sample passes through, in order. The list may be
            changed in place.
        raw_kind: "bytes" or "memoryview" if fields stay raw, else None.
        copies: Whether fields are read as `bytes` in place of views of the mapped shard.

    Raises:
        TypeError: A transformation is neither callable nor a known name.
        ValueError: A field is no extension.

    >>> pipeline = Pipeline([lambda sample: sample[".txt"].read()], SampleDecoder())
    >>> pipeline.finish({"__key__": "a", "__index__": 0, "__shard__": "a.tar", ".txt": b"one"})
    b'one'
    """

    # Slots, because attributes are looked up for each sample and are found fastest there.
    __slots__ = ("_array_decoders", "_decoder", "copies", "fields", "raw_kind", "transformations")

    def __init__(
        self,
        transformations: Transformations,
        decoder: SampleDecoder,
        fields: Collection[str] | None = None,
    ) -> None:
        self.fields: tuple[str, ...] | None = None
        if fields is not None:
            if isinstance(fields, str) and ",." in fields:  # as --fields of the command line
                raise ValueError(
                    f"fields: expected a list of extensions, got {fields!r}; give "
                    f"{fields.split(',')}"
                )
            listed = [fields] if isinstance(fields, str) else fields
            self.fields = tuple(to_list("fields", listed, "extensions"))
            for extension in self.fields:
                if ";" in check_extension("each of fields", extension):
                    raise ValueError(
                        f"fields: {extension!r} is several fields: list each of them, and give the "
                        f"first that a sample has one name by rename({{'.image': {extension!r}}})"
                    )
        self.raw_kind: str | None = None
        if isinstance(transformations, str) and transformations in RAW_KINDS:
            self.raw_kind, transformations = transformations, []
        elif isinstance(transformations, str) or not isinstance(transformations, Sequence):
            transformations = [transformations]
        self.copies = self.raw_kind == "bytes"
        self._decoder = decoder
        self._array_decoders: tuple[SampleDecoder, SampleDecoder] | None = None
        self.transformations: list[Transformation] = []
        for each in transformations:
            if _is_decoding(each):
                self.transformations.append(decoder.replace(images=each))
            elif callable(each):
                self.transformations.append(each)
            else:
                raise TypeError(
                    f"transformations: expected a callable or one of {IMAGE_MODES + RAW_KINDS}, "
                    f"got {each!r}"
                )

    @classmethod
    def of_options(
        cls,
        transformations: Transformations,
        *,
        fields: Collection[str] | None,
        decoders: Mapping[str, Decoder | None] | None,
        on_error: str | Mapping[str, Any] | ErrorHandler,
        allow_pickle: bool,
    ) -> Self:
        """Return the pipeline for the options of a dataset.

        Raises:
            ValueError: There are options for decoding although nothing is decoded.
        """
        allow_pickle = check_flag("allow_pickle", allow_pickle)
        decoder = SampleDecoder(allow_pickle=allow_pickle, decoders=decoders, on_error=on_error)
        pipeline = cls(transformations, decoder, fields)
        each = transformations if isinstance(transformations, (list, tuple)) else [transformations]
        if (decoders or on_error != "raise") and not any(map(_is_decoding, each)):
            raise ValueError(
                "decoders and on_error are for fields that the dataset decodes, got "
                f"transformations={transformations!r}; give them to the SampleDecoder in it, or "
                'decode by "PIL", "numpy", "torch" or an ImageDecoder'
            )
        return pipeline

    def with_options(self, **options: Unpack[ReadingOptions]) -> Pipeline:
        """Return a pipeline with some options changed.

        Raises:
            ValueError: There are options for decoding, and nothing is decoded.
            TypeError: There is no such option.
        """
        known = ReadingOptions.__annotations__
        refuse_unknown("with_options", options.keys() - known.keys(), list(known))
        fields = options.get("fields", self.fields)
        decoding: dict[str, Any] = {
            name: options[name] for name in ("decoders", "on_error") if name in options
        }
        decoder = self._decoder.replace(**decoding)
        if "transformations" in options:
            return Pipeline(options["transformations"], decoder, fields)
        if decoding and not any(isinstance(each, SampleDecoder) for each in self.transformations):
            raise ValueError(
                "decoders and on_error are for fields that the dataset decodes, and it decodes "
                "none; give transformations, too"
            )
        pipeline = Pipeline(self.raw_kind or [], decoder, fields)
        pipeline.transformations = [
            each.replace(**decoding) if isinstance(each, SampleDecoder) else each
            for each in self.transformations
        ]
        return pipeline

    def finish(self, sample: Any) -> Any:
        """Apply the transformations to a raw, labelled sample.

        Raises:
            DecodeError: A field could not be decoded.
            RuntimeError: A transformation raised StopIteration.
            Exception: The error of a transformation, with a note that names the sample.
        """
        transformations = self.transformations
        # Callables of users get streams, as in 0.1.11.
        if self.raw_kind is None and not (
            transformations and isinstance(transformations[0], SampleDecoder)
        ):
            wrap_in_streams(sample)
        label = sample["__index__"], sample["__key__"], sample["__shard__"]
        try:
            for transformation in transformations:
                # What draws nothing is called directly, as the context takes a tenth of the time of
                # a small sample.
                if isinstance(transformation, SampleDecoder) and not transformation.may_draw:
                    sample = transformation(sample)
                else:
                    sample = within_sample(label[0], transformation, sample)
        except DecodeError:  # its message already names the sample
            raise
        except StopIteration as error:
            raise no_end(while_reading(*label)) from error
        except Exception as error:
            error.add_note(while_reading(*label))
            note_decoded_field(error)
            note_missing_dot(error, sample)
            raise
        return sample

    @property
    def batch_kind(self) -> BatchKind:
        """Fastest way to make a batch that equals the collated samples."""
        if self.raw_kind is not None:
            return "samples" if self.transformations else "raw"
        only = self.transformations[0] if len(self.transformations) == 1 else None
        if not isinstance(only, SampleDecoder):
            return "samples"
        # A decoder that collects errors puts them into the sample, and one that crops at random
        # draws by the index of the sample.
        return "samples" if only.on_error == "collect" or only.draws else "decoded"

    @property
    def decoder(self) -> SampleDecoder:
        """The decoder among the transformations, else the one for columns."""
        # The decoder of the samples, so that columns and samples have equal values.
        found = (each for each in self.transformations if isinstance(each, SampleDecoder))
        return next(found, self._decoder)

    @property
    def array_decoder(self) -> SampleDecoder:
        """The same decoder, with images as arrays."""
        decoder = self.decoder
        if self._array_decoders is None or self._array_decoders[0] is not decoder:
            self._array_decoders = decoder, images_as_arrays(decoder)
        return self._array_decoders[1]


def no_end(action: str) -> RuntimeError:
    """Return the error in place of a StopIteration, which torch takes for the end of the samples.

    Args:
        action: What was done, such as `while_reading(...)`.

    >>> error = no_end("while reading sample 2")
    >>> print(str(error).partition(";")[0])
    StopIteration while reading sample 2
    """
    return RuntimeError(
        f"StopIteration {action}; a loop would take it for the end of the samples; give next() a "
        "default, or catch it in the function that raised it"
    )


def while_reading(index: int, key: str, url: str) -> str:
    """Return a note for an exception that names the sample that was being read.

    >>> while_reading(3, "a", "https://host/a.tar?token=1")
    "while reading sample 3, key 'a', shard 'https://host/a.tar?...'"
    """
    return f"while reading sample {index}, key {key!r}, shard {display_url(url)!r}"


def images_as_arrays(decoder: SampleDecoder) -> SampleDecoder:
    """Return a copy of a decoder that decodes images as arrays."""
    images = decoder.images
    return decoder.replace(images="numpy" if isinstance(images, str) else pixels_as_array(images))


def pixels_as_array(images: ImageDecoder) -> ImageDecoder:
    """Return the decoder that makes arrays of the same pixels."""
    mode = images.mode or ("RGB" if images.to == "torch" else None)
    return replace(images, to="numpy", mode=mode)


def _is_decoding(transformation: Any) -> TypeGuard[str | ImageDecoder]:
    """Return whether a transformation is the name of an image mode, or an image decoder."""
    if isinstance(transformation, str):
        return transformation in IMAGE_MODES
    return isinstance(transformation, ImageDecoder)


class StreamedShard(Sequence[Sample]):
    """Shard whose samples have binary streams as fields, as in wids 0.1.11."""

    def __init__(self, shard: ReadableShard) -> None:
        self.shard = shard

    def __len__(self) -> int:
        return len(self.shard)

    @overload
    def __getitem__(self, local_index: int) -> Sample: ...
    @overload
    def __getitem__(self, local_index: slice) -> list[Sample]: ...
    def __getitem__(self, local_index: int | slice) -> Sample | list[Sample]:
        if isinstance(local_index, slice):
            return [self[each] for each in range(*local_index.indices(len(self)))]
        sample = self.shard.read(local_index)
        wrap_in_streams(sample)
        return sample


def wrap_in_streams(sample: Sample) -> None:
    """Replace each raw field of a sample by a binary stream.

    >>> sample = {"__key__": "a", ".txt": b"one"}
    >>> wrap_in_streams(sample)
    >>> sample[".txt"].read()
    b'one'
    """
    for extension, data in sample.items():
        if extension[0] == ".":
            # The bytes are copied, since old code may keep the stream longer than the map exists.
            sample[extension] = io.BytesIO(data)


def note_index(error: DecodeError, index: int) -> None:
    """Say in an error which sample of a view or a concatenation its message is about.

    The message counts in the dataset that stores the sample. A view of that counts again, so the
    note of what was read last stays.

    Args:
        error: The error of a sample.
        index: Index of the sample in what was read.
    """
    notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith(_COUNTED)]
    error.__notes__ = [*notes, f"{_COUNTED}{index}"]
    error.sample = index


def note_missing_dot(error: Exception, sample: Any) -> None:
    """Add a hint to the error of code that names a field without its dot, as WebDataset does.

    Args:
        error: Exception of a transformation; the hint is added to a `KeyError`.
        sample: The sample that the transformation got.
    """
    name = error.args[0] if isinstance(error, KeyError) and error.args else None
    if isinstance(name, str) and isinstance(sample, dict) and f".{name}" in sample:
        error.add_note(f"an extension keeps its dot: the field is sample[{'.' + name!r}]")


def note_decoded_field(error: Exception) -> None:
    """Add a hint to the message of code that reads a decoded field as a stream.

    Args:
        error: Exception of a transformation; the hint is added to an `AttributeError` of a stream
            method.
    """
    # Images get no `read` method, because libraries would then take them for files.
    if isinstance(error, AttributeError) and error.name in {"read", "getvalue"}:
        # In the message: a worker's error is rebuilt from it, and notes are often not shown.
        hint = (
            f"a field that was decoded, here to {type(error.obj).__name__}, is no binary stream; "
            "decoders={'.ext': None} of the dataset leaves the fields of an extension streams"
        )
        error.args = (f"{error}; {hint}",)
