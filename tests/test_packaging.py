"""The installed package, its wheel and sdist, and the cost of importing it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import wids

REPOSITORY = Path(__file__).resolve().parent.parent


def run_python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.skipif("WIDS_TEST_INSTALLED" not in os.environ, reason="the tree itself is tested")
def test_the_installed_wheel_is_what_is_tested() -> None:
    """In the full run, tests import the installed package and not the checkout."""
    assert not Path(wids.__file__).is_relative_to(REPOSITORY / "wids")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build wheel and sdist from the checkout."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), "."]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    return out


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    """The wheel has all modules, the licence and the typing marker, but no tests or benchmarks."""
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    in_tree = {str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "wids").rglob("*.py")}
    shipped = {name for name in names if name.startswith("wids/")}
    assert in_tree | {"wids/py.typed"} <= shipped
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops == {"wids"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    entry_points = next(name for name in names if name.endswith("entry_points.txt"))
    text = zipfile.ZipFile(wheel).read(entry_points).decode()
    assert "wids = wids.__main__:main" in text
    assert "widsindex = " in text


@pytest.mark.slow
def test_the_wheel_tells_fsspec_of_its_urls(built: Path, tmp_path: Path) -> None:
    """Where the wheel is on the path, fsspec opens `wids://` without further ado."""
    (wheel,) = built.glob("*.whl")
    with wids.TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write({"__key__": "1", ".txt": "one"})
    url = f"wids://a.tar/1.txt::{tmp_path}/a.tar"
    code = f"import fsspec; print(fsspec.open({url!r}).open().read())"
    assert run_python(code, PYTHONPATH=str(wheel)) == "b'one'"


@pytest.mark.slow
def test_the_sdist_holds_what_it_takes_to_test(built: Path) -> None:
    """The sdist has sources, tests, documents and examples."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "Makefile"} <= names
    assert {"wids/__init__.py", "tests/conftest.py", "examples/quickstart.py"} <= names


def test_importing_wids_loads_nothing_heavy() -> None:
    """`import wids` loads no third-party library, and the command line no torch."""
    heavy = "{'numpy', 'torch', 'PIL', 'requests', 'filelock'} & set(sys.modules)"
    assert run_python(f"import sys, wids; print({heavy})") == "set()"
    light = "import sys, wids.cli, wids.reading.shardlist, wids.ordering.mixtureorder"
    assert run_python(f"{light}; print('torch' in sys.modules)") == "False"


LOADED = """
import sys, wids
dataset = wids.open("train.json")
def loaded():
    return [n for n, m in sys.modules.items() if not hasattr(m, "__path__") or "." not in n]
print(*loaded())
assert dataset[0][".txt"] == "one"
print(*loaded())
"""


def test_opening_and_reading_local_shards_loads_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local spec opens with few modules: none for servers, pictures, notebooks or orders."""
    monkeypatch.chdir(tmp_path)
    with wids.ShardWriter("train-%d.tar", spec="train.json") as writer:
        writer.write({"__key__": "a", ".txt": "one"})
    opened, read = map(str.split, run_python(LOADED).splitlines())
    ours = [name.removeprefix("wids.") for name in opened if name.startswith("wids.")]
    assert len(ours) <= 60
    packages = {name.partition(".")[0] for name in ours}
    assert not packages & {"display", "browse", "ordering", "tar", "tools"}
    assert not {"torch", "PIL", "concurrent", "multiprocessing.pool"} & set(opened)
    assert not {"torch", "PIL", "http", "requests", "urllib3", "obstore", "email"} & set(read)
    assert "wids.fetching.fetch" not in read
    assert not [name for name in read if name.startswith(("wids.display", "wids.browse"))]


def test_every_public_name_loads() -> None:
    """Each name of `__all__` can be loaded and is in `dir`; an unknown one is an AttributeError."""
    for name in wids.__all__:
        assert getattr(wids, name) is not None
    assert set(wids.__all__) <= set(dir(wids))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wids.nothing  # noqa: B018


def test_with_torch_the_classes_are_torchs() -> None:
    """Datasets and samplers are subclasses of torch's classes."""
    from torch.utils.data import Dataset, DistributedSampler, Sampler

    assert issubclass(wids.ShardListDataset, Dataset)
    assert issubclass(wids.ChunkedSampler, Sampler)
    assert issubclass(wids.ShardListSampler, Sampler)
    assert issubclass(wids.DistributedChunkedSampler, DistributedSampler)


def test_without_torch_everything_but_training_works() -> None:
    """Datasets, samplers, writers and shards work without torch."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import wids; print(all(getattr(wids, name) for name in wids.__all__))\n"
        "kind = wids.DistributedChunkedSampler\n"
        "print(list(kind(range(4), num_replicas=2, rank=1, shuffle=False)))\n"
        "print(sorted(wids.ShardListSampler(None, lengths=[3, 2])), 'torch' in str(kind.__mro__))"
    )
    assert run_python(code) == "True\n[2, 3]\n[0, 1, 2, 3, 4] False"


def test_the_version_is_written_once() -> None:
    """The package has the version of its metadata."""
    from importlib.metadata import version

    if "WIDS_TEST_INSTALLED" in os.environ:
        assert version("wids") == wids.__version__
    assert f'__version__ = "{wids.__version__}"' in (REPOSITORY / "wids/__init__.py").read_text()


def test_the_extra_all_has_every_library_but_torch() -> None:
    """`all` names every other extra but `torch`, whose build depends on the machine."""
    import tomllib

    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (named,) = extras["all"]
    assert set(named.removeprefix("wids[").removesuffix("]").split(",")) == set(extras) - {
        "all",
        "torch",
    }


def test_the_citation_has_the_version_of_the_package() -> None:
    """CITATION.cff names the version that is released."""
    assert f"\nversion: {wids.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()
