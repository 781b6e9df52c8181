"""Images on a GPU: JPEGs decoded by nvImageCodec or torchvision; crops, resizing, normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from wids.base.optional import load, load_if_present

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from wids.codecs.framing import Box

    Bytes = npt.NDArray[np.uint8]

__all__ = [
    "DEVICE_BACKENDS",
    "JpegDevice",
    "fit_images",
    "jpeg_device",
]

# Colours of halved resolution are interpolated, as by libjpeg, and not repeated.
_OPTIONS = ":fancy_upsampling=1"


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
