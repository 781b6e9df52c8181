"""`DeviceDecoder`: brings batches to a GPU and decodes their images there.

JPEGs are decoded by nvImageCodec or torchvision, crops, resizing and normalisation are by torch.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from wids.base.arguments import check_extension, check_flag, check_number, check_sized, to_list
from wids.base.draws import within_sample
from wids.base.optional import load, load_if_present
from wids.base.system import num_cores
from wids.base.threads import DaemonThreadPool, result_of
from wids.codecs.decode import decode_error
from wids.codecs.images import ImageDecoder, jpeg_size
from wids.reading.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from wids.codecs.framing import Box, Framing

    Bytes = npt.NDArray[np.uint8]

__all__ = ["DeviceDecoder"]

# Colours of halved resolution are interpolated, as by libjpeg, and not repeated.
_OPTIONS = ":fancy_upsampling=1"
PICTURES = (".jpg", ".jpeg", ".png", ".webp")


class DeviceDecoder:
    """Moves each batch of a `Loader(device=...)` to a device, and decodes its images there.

    JPEGs are decoded by torchvision or nvImageCodec; then torch crops, resizes and normalises all
    images of a batch. Other formats, and JPEGs that the GPU's library does not take, are
    decoded by the processor, and cropped and resized with the others. Everything else in a batch is
    moved as it is, from page-locked memory.

    Each thread of a loader has its own stream, and passes a batch on when it is complete. The
    default is two threads: more threads delay each other and the training loop, because they wait
    for Python's lock.

    nvImageCodec gives the pixels of libjpeg-turbo; torchvision repeats colours of halved resolution
    instead of interpolating them, at 46 dB from those. `device="cpu"` does the same steps without a
    GPU.

    Args:
        device: Where batches go, such as "cuda" or "cuda:1".
        size: `CenterCrop`, `RandomResizedCrop`, `Resize` to (height, width), or another `Framing`
            that gives all images one size. None: nothing is decoded, batches are only moved.
        fields: Extensions of the images; those that a batch does not have are passed over. They
            must come raw: `transformations="bytes"`, or `decoders={".jpg": bytes}`.
        mean: Subtracted from each channel, in [0, 1] as torchvision counts.
        std: What each channel is divided by, above 0.
        dtype: A floating-point type of torch; None for float32.
        channels_last: Whether the memory format of the images is `torch.channels_last`, which
            convolutions in half precision want.
        antialias: As of `ImageDecoder`.
        backend: What decodes JPEGs on a GPU: "torchvision", "nvimgcodec", or "auto" for the first
            of them that is installed.

    Raises:
        ValueError: An argument is out of its range.
        TypeError: `size` has no method `frame`, or `fields` is one text.

    >>> import io, tempfile, wids
    >>> from PIL import Image
    >>> folder, stream = tempfile.mkdtemp(), io.BytesIO()
    >>> Image.new("RGB", (40, 30), "white").save(stream, "JPEG")
    >>> with wids.ShardWriter(f"{folder}/train-%03d.tar") as writer:
    ...     writer.write({"__key__": "0", ".jpg": stream.getvalue(), ".cls": 3})
    >>> dataset = wids.ShardListDataset(folder, decoders={".jpg": bytes})
    >>> decoder = DeviceDecoder("cpu", size=wids.CenterCrop(8), mean=(0.5,) * 3, std=(0.5,) * 3)
    >>> batch = next(iter(wids.Loader(dataset, batch_size=8, device=decoder)))
    >>> batch[".jpg"].shape, batch[".jpg"].max().item(), batch[".cls"].tolist()
    (torch.Size([1, 3, 8, 8]), 1.0, [3])
    """

    def __init__(
        self,
        device: Any,
        *,
        size: Framing | None = None,
        fields: Sequence[str] = PICTURES,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
        dtype: Any = None,
        channels_last: bool = True,
        antialias: bool = True,
        backend: str = "auto",
    ) -> None:
        torch = load("torch", "torch")
        if size is not None and not hasattr(size, "frame"):
            raise TypeError(
                "size: expected CenterCrop(...), RandomResizedCrop(...), Resize((height, width)) "
                f"or an object with a method frame(width, height), got {size!r}"
            )
        fields = to_list("fields", fields, "extensions")
        for extension in fields:
            check_extension("each of fields", extension)
        for name, values in (("mean", mean), ("std", std)):
            if check_sized(name, values, "three numbers, one a channel") != 3:
                raise ValueError(f"{name}: expected three numbers, one a channel, got {values!r}")
            for value in values:
                check_number(f"each of {name}", value)
        if not all(value > 0 for value in std):
            raise ValueError(f"std: expected numbers above 0, got {std!r}")
        if backend not in DEVICE_BACKENDS:
            raise ValueError(f"backend: expected one of {DEVICE_BACKENDS}, got {backend!r}")
        try:
            self.device = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device must be a device of torch such as 'cuda' or 'cpu', got {device!r:.80}: "
                f"{str(error).splitlines()[0]}"
            ) from None
        self.size = size
        self.fields = tuple(fields)
        self.dtype = torch.float32 if dtype is None else dtype
        if not isinstance(self.dtype, torch.dtype) or not self.dtype.is_floating_point:
            raise ValueError(f"dtype: expected a floating-point type, got {dtype!r}")
        self.channels_last = check_flag("channels_last", channels_last)
        self.antialias = check_flag("antialias", antialias)
        self.backend = backend
        self.mean = tuple(mean)
        self.std = tuple(std)
        self._decode_here = ImageDecoder("numpy", "RGB")
        self._pool = DaemonThreadPool(num_cores(), "wids-load-decode")
        # Streams and decoders belong to one thread each.
        self._threads = threading.local()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Move a batch to the device and decode its images.

        Args:
            batch: From names to columns, as a `Loader` makes it.

        Returns:
            The batch with tensors on the device, complete; images have the shape
            `(num_samples, 3, height, width)`.

        Raises:
            DecodeError: An image cannot be decoded; the message names its sample and field.
            TypeError: The batch is no dict, or the images of a field are not raw.
            ValueError: The images of a field would have different sizes.
        """
        if not isinstance(batch, dict):
            raise TypeError(
                f"expected a batch with fields by name, got {type(batch).__name__}; a dataset or "
                "collate_fn that makes no dicts cannot be used with a DeviceDecoder"
            )
        tools = self._tools()
        with tools.on_stream():
            moved = {
                name: self._decode(name, column, batch, tools)
                if self.size is not None and name in self.fields
                else _move(column, self.device)
                for name, column in batch.items()
            }
        tools.wait()
        return moved

    def receive(self, batch: Mapping[str, Any]) -> None:
        """Tell the allocator that the calling thread's stream uses a batch from now on.

        A `Loader` calls it for each batch it yields. Without it the memory of a dropped batch
        could be filled again while kernels that read it are still waiting to run.
        """
        if self.device.type != "cuda":
            return
        stream = load("torch", "torch").cuda.current_stream(self.device)
        for column in batch.values():
            parts = (column.values, column.offsets) if isinstance(column, Ragged) else (column,)
            for part in parts:
                if hasattr(part, "record_stream"):
                    part.record_stream(stream)

    def _tools(self) -> _Tools:
        """Return stream and decoder of the calling thread."""
        tools: _Tools | None = getattr(self._threads, "tools", None)
        if tools is None:
            torch = load("torch", "torch")
            cuda = self.device.type == "cuda"
            tools = _Tools(
                torch.cuda.Stream(self.device) if cuda else None,
                None if self.size is None else jpeg_device(self.device, self.backend),
                255 * torch.tensor(self.mean, device=self.device),
                255 * torch.tensor(self.std, device=self.device),
            )
            if cuda:
                # Made on another stream than the one that will read them.
                torch.cuda.current_stream(self.device).synchronize()
            self._threads.tools = tools
        return tools

    def _decode(self, name: str, column: Any, batch: Mapping[str, Any], tools: _Tools) -> Any:
        encoded = _encoded(name, column)
        images: dict[int, Any] = {}
        if tools.jpegs is not None:
            slots = [slot for slot, data in enumerate(encoded) if jpeg_size(data.data) is not None]
            images.update(zip(slots, tools.jpegs([encoded[slot] for slot in slots]), strict=True))
        # What the GPU does not take gets its pixels, or its error, from the processor.
        started = {
            slot: self._pool.submit(self._decode_here, data.data)
            for slot, data in enumerate(encoded)
            if images.get(slot) is None
        }
        torch = load("torch", "torch")
        for slot, each in started.items():
            try:
                tensor = torch.from_numpy(result_of(each))
            except Exception as error:
                raise decode_error(name, _labels(batch, slot), error) from error
            if self.device.type == "cuda":
                tensor = tensor.pin_memory().to(self.device, non_blocking=True)
            images[slot] = tensor.permute(2, 0, 1)
        decoded = [images[slot] for slot in range(len(encoded))]
        boxes, size = self._frames(name, decoded, batch)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        out = torch.empty(
            (len(decoded), 3, size[1], size[0]),
            dtype=self.dtype,
            device=self.device,
            memory_format=layout,
        )
        fit_images(decoded, boxes, out, tools.mean, tools.std, antialias=self.antialias)
        return out

    def _frames(
        self, name: str, decoded: Sequence[Any], batch: Mapping[str, Any]
    ) -> tuple[list[Box], tuple[int, int]]:
        """Return the crop box of each image, and the common final size: width, height."""
        if self.size is None:
            raise TypeError("a DeviceDecoder without a size decodes nothing")
        frames = [
            within_sample(
                _labels(batch, slot).get("__index__"), self.size.frame, *image.shape[:0:-1]
            )
            for slot, image in enumerate(decoded)
        ]
        sizes = sorted({size for _, size in frames})
        if len(sizes) > 1:
            raise ValueError(
                f"field {name!r}: expected one size for all images of a batch, but {self.size} "
                f"makes {len(sizes)}, such as {sizes[0]} and {sizes[-1]} (width, height); use "
                "CenterCrop(...), RandomResizedCrop(...) or Resize((height, width))"
            )
        return [box for box, _ in frames], sizes[0]

    def __repr__(self) -> str:
        return f"DeviceDecoder({str(self.device)!r}, size={self.size!r})"


@dataclass(frozen=True)
class _Tools:
    """Stream and decoder of one thread."""

    stream: Any | None
    jpegs: JpegDevice | None
    mean: Any
    std: Any

    def on_stream(self) -> AbstractContextManager[Any]:
        """Return a context in which the thread's stream is the current one."""
        if self.stream is None:
            return nullcontext()
        context: AbstractContextManager[Any] = load("torch", "torch").cuda.stream(self.stream)
        return context

    def wait(self) -> None:
        """Wait until all work of the stream is done."""
        if self.stream is not None:
            self.stream.synchronize()


def _encoded(name: str, column: Any) -> list[npt.NDArray[np.uint8]]:
    """Return the raw images of a column, each as a writable array of bytes."""
    if isinstance(column, list) and all(
        isinstance(each, (bytes, bytearray, memoryview)) for each in column
    ):
        # Copied into one buffer, because torch wants writable memory and bytes are read-only.
        values = np.frombuffer(bytearray().join(column), np.uint8)
        ends = np.cumsum([len(each) for each in column])
        return np.split(values, ends[:-1])
    if isinstance(column, Ragged):
        values = column.values.numpy() if hasattr(column.values, "numpy") else column.values
        return [values[start:stop] for start, stop in pairwise(column.offsets.tolist())]
    kind = type(column[0] if isinstance(column, list) and column else column).__name__
    raise TypeError(
        f"field {name!r}: expected raw images, got {kind}; open the dataset with "
        f'transformations="bytes" or decoders={{{name!r}: bytes}}'
    )


def _move(column: Any, device: Any) -> Any:
    if isinstance(column, Ragged):
        return Ragged(_move(column.values, device), _move(column.offsets, device))
    torch = load("torch", "torch")
    if not isinstance(column, torch.Tensor):
        return column
    if device.type != "cuda":
        return column.to(device)
    return column.pin_memory().to(device, non_blocking=True)


def _labels(batch: Mapping[str, Any], slot: int) -> dict[str, Any]:
    """Return the index and key of one sample of a batch, or the one of them that it has."""
    labels = {name: batch[name][slot] for name in ("__index__", "__key__") if name in batch}
    # Tensors and arrays have numbers of their own type, which a message would show as such.
    return {
        name: label.item() if hasattr(label, "item") else label for name, label in labels.items()
    }


class JpegDevice(Protocol):
    """A decoder of JPEGs on a GPU; each thread makes its own."""

    def __call__(self, encoded: Sequence[Bytes]) -> list[Any]:
        """Decode on the current stream.

        Args:
            encoded: Files of grey or YCbCr JPEGs, each as an array of bytes.

        Returns:
            An RGB image on the device for each file, a uint8 tensor of shape (3, height, width),
            and None for those that cannot be decoded. The images may be used on the same stream.
        """


def jpeg_device(device: Any, backend: str = "auto") -> JpegDevice | None:
    """Return a decoder for a device.

    Args:
        device: A `torch.device`.
        backend: "torchvision", "nvimgcodec", or "auto" for the first of them that is installed.
            torchvision is preferred, because it lets other threads run while it decodes, so that it
            does not delay the training loop.

    Returns:
        None if the device is not a GPU, or if `backend` is "auto" and neither library is installed.

    Raises:
        ModuleNotFoundError: The library that `backend` names is missing.

    >>> import torch
    >>> jpeg_device(torch.device("cpu")) is None
    True
    """
    if device.type != "cuda":
        return None
    if backend != "auto":
        module, make = _BACKENDS[backend]
        return make(load(module, "gpu"), device)
    for module, make in _BACKENDS.values():
        library = load_if_present(module)
        if library is not None:
            return make(library, device)
    return None


class _NvImageCodec:
    """Decoder by nvImageCodec, which uses the JPEG units of GPUs that have some (H100, A100)."""

    def __init__(self, nvimgcodec: Any, device: Any) -> None:
        kinds = nvimgcodec.BackendKind
        # Without its decoder on the CPU: the threads of DeviceDecoder are faster.
        backends = [nvimgcodec.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.HYBRID_CPU_GPU)]
        self._decoder = nvimgcodec.Decoder(
            device_id=device.index or 0, backends=backends, options=_OPTIONS
        )
        # As by ImageDecoder, the EXIF orientation is not applied.
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB
        )
        self._device = device

    def __call__(self, encoded: Sequence[Bytes]) -> list[Any]:
        torch = load("torch", "torch")
        images = self._decoder.decode(
            list(encoded),
            params=self._params,
            cuda_stream=torch.cuda.current_stream(self._device).cuda_stream,
        )
        return [
            None if each is None else torch.as_tensor(each, device=self._device).permute(2, 0, 1)
            for each in images
        ]


class _Torchvision:
    """Decoder by torchvision's binding of nvJPEG."""

    def __init__(self, vision: Any, device: Any) -> None:
        self._vision = vision
        self._device = device

    def __call__(self, encoded: Sequence[Bytes]) -> list[Any]:
        try:
            return self._decode(encoded)
        except RuntimeError:
            # One damaged image makes it refuse the whole batch.
            return [self._decode_one(each) for each in encoded]

    def _decode_one(self, encoded: Bytes) -> Any | None:
        try:
            return self._decode([encoded])[0]
        except RuntimeError:
            return None

    def _decode(self, encoded: Sequence[Bytes]) -> list[Any]:
        torch = load("torch", "torch")
        tensors = [torch.from_numpy(each) for each in encoded]
        mode = self._vision.ImageReadMode.RGB
        images: list[Any] = self._vision.decode_jpeg(tensors, mode=mode, device=self._device)
        return images


_BACKENDS: dict[str, tuple[str, Callable[[Any, Any], JpegDevice]]] = {
    "torchvision": ("torchvision.io", _Torchvision),
    "nvimgcodec": ("nvidia.nvimgcodec", _NvImageCodec),
}
DEVICE_BACKENDS = ("auto", *_BACKENDS)


def fit_images(
    images: Sequence[Any],
    boxes: Sequence[Box],
    out: Any,
    mean: Any,
    std: Any,
    *,
    antialias: bool = True,
) -> None:
    """Crop and resize each image, subtract the mean and divide by the standard deviation.

    Each result pixel is the triangle-weighted mean of all the pixels that it covers, as by Pillow's
    BILINEAR and torch's `interpolate(antialias=True)`, but not rounded to whole levels between the
    two directions. torch does it image by image.

    Args:
        images: uint8 tensors of shape (3, height, width), on the device of `out`.
        boxes: The part of each image to keep: left, top, right, bottom.
        out: Floating-point tensor of shape (len(images), 3, out_height, out_width) for the result,
            in any memory format.
        mean: Subtracted from each channel, in levels from 0 to 255; float32 of shape (3,).
        std: What each channel is divided by, in levels; float32 of shape (3,).
        antialias: Whether all pixels count when an image shrinks; else four neighbours.

    >>> import torch
    >>> grey = torch.full((3, 4, 6), 100, dtype=torch.uint8)
    >>> out = torch.empty(1, 3, 2, 2)
    >>> fit_images([grey], [(1, 0, 5, 4)], out, torch.zeros(3), torch.full((3,), 50.0))
    >>> out.unique()
    tensor([2.])
    """
    interpolate = load("torch.nn.functional", "torch").interpolate
    for target, image, (left, top, right, bottom) in zip(out, images, boxes, strict=True):
        part = image[None, :, top:bottom, left:right].float()
        size = tuple(target.shape[1:])
        resized = interpolate(part, size, mode="bilinear", antialias=antialias)[0]
        target.copy_((resized - mean[:, None, None]) / std[:, None, None])
