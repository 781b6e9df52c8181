"""`DeviceImage`: a decoded image in the memory of a device."""

from __future__ import annotations

from typing import Any, NamedTuple

from wids.base.optional import load

__all__ = ["DeviceImage"]


class DeviceImage(NamedTuple):
    """A decoded image in the memory of a device: three channels of bytes.

    Attributes:
        address: Of the first byte of the first channel.
        shape: Height and width, in pixels.
        strides: Bytes from a channel, a row and a column to the next.
        owner: The tensor or other object with `__cuda_array_interface__` that keeps the memory.
    """

    address: int
    shape: tuple[int, int]
    strides: tuple[int, int, int]
    owner: Any

    @classmethod
    def of(cls, tensor: Any) -> DeviceImage:
        """Return the image of a uint8 tensor of shape (3, height, width), with any strides."""
        _, height, width = tensor.shape
        return cls(tensor.data_ptr(), (height, width), tensor.stride(), tensor)

    def tensor(self, device: Any) -> Any:
        """Return the image as a uint8 tensor of shape (3, height, width), without a copy."""
        torch = load("torch", "torch")
        if isinstance(self.owner, torch.Tensor):
            return self.owner
        return torch.as_tensor(self.owner, device=device).permute(2, 0, 1)
