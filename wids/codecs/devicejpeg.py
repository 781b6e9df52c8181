"""Decoding of JPEGs on a GPU, by nvImageCodec or torchvision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from wids.base.optional import load, load_if_present
from wids.codecs.deviceimage import DeviceImage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

__all__ = ["DEVICE_BACKENDS", "JpegDevice", "jpeg_device"]


# Colours of halved resolution are interpolated, as by libjpeg, and not repeated.
_OPTIONS = ":fancy_upsampling=1"


class JpegDevice(Protocol):
    """A decoder of JPEGs on a GPU; each thread makes its own."""

    def __call__(self, encoded: Sequence[Bytes]) -> list[DeviceImage | None]:
        """Decode on the current stream.

        Args:
            encoded: Files of grey or YCbCr JPEGs, each as an array of bytes.

        Returns:
            An RGB image on the device for each, None for those that cannot be decoded. They may
            be used on the same stream.
        """


def jpeg_device(device: Any, backend: str = "auto") -> JpegDevice | None:
    """Return a decoder for a device.

    Args:
        device: A `torch.device`.
        backend: "torchvision", "nvimgcodec", or "auto" for the first of them that is installed.
            torchvision comes first: it lets other threads run while it decodes, so that a training
            loop is not held up.

    Returns:
        None where the device is no GPU, or, with "auto", neither library is installed.

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
    """nvImageCodec: uses the GPU's JPEG units where it has some, as H100 and A100 do."""

    def __init__(self, nvimgcodec: Any, device: Any) -> None:
        kinds = nvimgcodec.BackendKind
        # Not on its processor threads: those of DeviceDecoder are faster.
        backends = [nvimgcodec.Backend(kind) for kind in (kinds.HW_GPU_ONLY, kinds.HYBRID_CPU_GPU)]
        self._decoder = nvimgcodec.Decoder(
            device_id=device.index or 0, backends=backends, options=_OPTIONS
        )
        # As ImageDecoder: the orientation that EXIF tells is not applied.
        self._params = nvimgcodec.DecodeParams(
            apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB
        )
        self._device = device

    def __call__(self, encoded: Sequence[Bytes]) -> list[DeviceImage | None]:
        torch = load("torch", "torch")
        images = self._decoder.decode(
            list(encoded),
            params=self._params,
            cuda_stream=torch.cuda.current_stream(self._device).cuda_stream,
        )
        return [None if image is None else _device_image(image) for image in images]


def _device_image(image: Any) -> DeviceImage:
    """Describe an image of nvImageCodec without making a tensor of it, which takes longer."""
    height, width, channels = image.shape
    address, _ = image.__cuda_array_interface__["data"]
    return DeviceImage(address, (height, width), (1, width * channels, channels), image)


class _Torchvision:
    """torchvision's binding of nvJPEG."""

    def __init__(self, vision: Any, device: Any) -> None:
        self._vision = vision
        self._device = device

    def __call__(self, encoded: Sequence[Bytes]) -> list[DeviceImage | None]:
        try:
            return self._decode(encoded)
        except RuntimeError:
            # It refuses the whole batch for one damaged image.
            return [self._decode_one(each) for each in encoded]

    def _decode_one(self, encoded: Bytes) -> DeviceImage | None:
        try:
            return self._decode([encoded])[0]
        except RuntimeError:
            return None

    def _decode(self, encoded: Sequence[Bytes]) -> list[DeviceImage | None]:
        torch = load("torch", "torch")
        tensors = [torch.from_numpy(each) for each in encoded]
        images = self._vision.decode_jpeg(
            tensors, mode=self._vision.ImageReadMode.RGB, device=self._device
        )
        return [DeviceImage.of(image) for image in images]


_BACKENDS: dict[str, tuple[str, Callable[[Any, Any], JpegDevice]]] = {
    "torchvision": ("torchvision.io", _Torchvision),
    "nvimgcodec": ("nvidia.nvimgcodec", _NvImageCodec),
}
DEVICE_BACKENDS = ("auto", *_BACKENDS)
