"""One open shard of a dataset, and what every sample of it repeats."""

from dataclasses import dataclass
from typing import Any

from wids.base.urls import display_url
from wids.codecs.decode import SampleDecoder
from wids.errors import DecodeError
from wids.reading.rangeshard import RangeShard
from wids.tar.shard import Shard

__all__ = ["OpenShard", "Places", "while_reading"]


@dataclass(slots=True)  # attributes of a slotted class are the fastest to get at
class OpenShard:
    """A shard, mapped or read by range, in its place in a dataset.

    Attributes:
        shard: The shard.
        url: Where it came from.
        dataset: Name of the dataset that it belongs to.
        start: Global index of its first sample.
        uses: How often it was used.
    """

    shard: Shard | RangeShard
    url: str
    dataset: str | None
    start: int
    uses: int = 0

    def answer(self, decoder: SampleDecoder, error: Exception, extension: str, place: int) -> Any:
        """Return what stands for a field that could not be decoded, as in a sample read whole.

        Args:
            decoder: What was to decode the field; its `on_error` decides.
            error: What its decoding raised.
            extension: The field.
            place: The sample's place in the shard.

        Raises:
            DecodeError: There is no answer to it.
        """
        sample = self.shard.read(place) | {
            "__dataset__": self.dataset,
            "__index__": self.start + place,
            "__shard__": self.url,
            "__shardindex__": place,
        }
        try:
            return decoder.answer(error, extension, sample)
        except DecodeError:  # says so itself
            raise
        except Exception as raised:
            raised.add_note(while_reading(sample["__index__"], sample["__key__"], self.url))
            raise


def while_reading(index: int, key: str, url: str) -> str:
    """Say which sample something failed at, for a note of an exception.

    >>> while_reading(3, "a", "https://host/a.tar?token=1")
    "while reading sample 3, key 'a', shard 'https://host/a.tar?...'"
    """
    return f"while reading sample {index}, key {key!r}, shard {display_url(url)!r}"


# Some samples of one shard, by their places in it.
Places = tuple[OpenShard, list[int]]
