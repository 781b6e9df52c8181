"""The exception tree, and errors that leave a worker."""

import pickle

import pytest
from torch._utils import ExceptionWrapper

import wids

TREE = {
    wids.SpecError: (wids.WidsError, ValueError),
    wids.FetchError: (wids.WidsError, OSError),
    wids.IntegrityError: (wids.FetchError,),
    wids.ShardChangedError: (wids.IntegrityError,),
    wids.CacheError: (wids.WidsError, OSError),
    wids.ShardFormatError: (wids.WidsError, ValueError),
    wids.SampleCountError: (wids.WidsError, ValueError),
    wids.DecodeError: (wids.WidsError, ValueError),
}


@pytest.mark.parametrize("kind", TREE)
def test_each_error_is_also_what_old_code_catches(kind: type[Exception]) -> None:
    """Every error is a WidsError and a fitting built-in error."""
    for base in TREE[kind]:
        assert issubclass(kind, base)


@pytest.mark.parametrize("kind", TREE)
def test_errors_survive_a_worker_and_pickle(kind: type[Exception]) -> None:
    """Errors keep their message through pickle and torch's workers."""
    error = kind("a.tar: broken at byte 512")
    assert str(pickle.loads(pickle.dumps(error))) == "a.tar: broken at byte 512"
    wrapper = ExceptionWrapper((kind, error, None), where="in worker")
    with pytest.raises(kind, match="a.tar: broken at byte 512"):
        wrapper.reraise()
