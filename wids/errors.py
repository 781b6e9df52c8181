"""The errors of `wids`: one tree, and each member also a built-in that old code may catch.

    WidsError(Exception)
    +-- SpecError(ValueError)          a shard-spec is malformed
    +-- FetchError(OSError)            a URL could not be fetched
    |   +-- IntegrityError             its content has the wrong size or digest
    |       +-- ShardChangedError      a shard is not of the version that was read before
    +-- CacheError(OSError)            the cache folder failed: lock, space, permissions
    +-- ShardFormatError(ValueError)   a shard (or its sidecar) is no readable tar, or breaks off
    +-- SampleCountError(ValueError)   a shard does not hold as many samples as its spec says
    +-- DecodeError(ValueError)        a field's bytes are not what its extension promises

Each takes one message and nothing else, because a DataLoader rebuilds the error of a worker as
`type(error)(message)`. An index out of range is a plain `IndexError`, as the sequence protocol
demands.

`WidsWarning(UserWarning)` is the category of all warnings.
"""

__all__ = [
    "CacheError",
    "DecodeError",
    "FetchError",
    "IntegrityError",
    "SampleCountError",
    "ShardChangedError",
    "ShardFormatError",
    "SpecError",
    "WidsError",
    "WidsWarning",
]


class WidsError(Exception):
    """Any error that `wids` raises on purpose, apart from wrong arguments and indexes."""


class SpecError(WidsError, ValueError):
    """A shard-spec is malformed; the message names source, shard, field and value."""


class FetchError(WidsError, OSError):
    """A URL could not be fetched; the message names the URL, the attempts and the last cause."""


class IntegrityError(FetchError):
    """Fetched data has another size or digest than promised; nothing of it was kept."""


class ShardChangedError(IntegrityError):
    """A shard is of another version than before, or than what is kept of it: index, column, pack.

    The message names both versions. Open the dataset again to read the new one.
    """


class CacheError(WidsError, OSError):
    """The cache folder could not be used: no lock, no space, no permission."""


class ShardFormatError(WidsError, ValueError):
    """A shard or sidecar cannot be read; the message names the file and the byte offset."""


class SampleCountError(WidsError, ValueError):
    """A shard holds another number of samples than its spec says."""


class DecodeError(WidsError, ValueError):
    """A field could not be decoded; the message names extension and cause.

    Attributes:
        sample: Index of its sample in the sequence that was read; None if it is not known.
    """

    sample: int | None = None


class WidsWarning(UserWarning):
    """Something changes what the program gets, and it may not have meant that."""
