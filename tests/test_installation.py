"""Files of another package in the folder of this one are noticed, and the cure is named."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from helpers.shards import REPOSITORY

from wids.installation import installation_fault, other_owners


class Environment:
    """A virtual environment of its own, with the pip of this one."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.python = folder / "bin" / "python"

    def pip(self, *words: str | Path) -> None:
        command = [sys.executable, "-m", "pip", "--python", self.python, "-q", *words]
        subprocess.run(command, check=True, capture_output=True)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.python, *words], capture_output=True, text=True, check=False, env=clean, cwd="/"
        )


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """Write a wheel by hand: pip needs no more than the metadata and a list of files."""
    info = f"{name}-{version}.dist-info"
    texts = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = f"{info}/RECORD"
    texts[record] = "".join(f"{path},,\n" for path in [*texts, record])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in texts.items():
            archive.writestr(path, text)
    return wheel


def our_files() -> dict[str, str]:
    """Return the modules at the top of the package, which import nothing else on their own."""
    folder = REPOSITORY / "wids"
    modules = {f"wids/{path.name}": path.read_text() for path in folder.glob("*.py")}
    return modules | {"_wids_command.py": (REPOSITORY / "_wids_command.py").read_text()}


@pytest.mark.slow
def test_a_package_that_overwrites_or_removes_files_is_named(tmp_path):
    """The command line says so after an installation over ours, and after the removal of it."""
    environment = Environment(tmp_path / "env")
    environment.pip("install", "--no-index", write_wheel(tmp_path, "wids", "1.0", our_files()))
    find = "from wids.installation import installation_fault as f; print(f())"
    assert environment.run("-c", find).stdout == "None\n"

    theirs = {"webdataset/__init__.py": "", "wids/__init__.py": "", "wids/wids_lru.py": ""}
    wheel = write_wheel(tmp_path, "webdataset", "0.2", theirs)
    environment.pip("install", "--no-index", wheel)
    shown = environment.run("-m", "wids", "--version")
    assert shown.returncode == 1
    assert "a file of another package (webdataset 0.2)" in shown.stderr
    assert "`pip uninstall wids webdataset`" in shown.stderr

    environment.pip("uninstall", "--yes", "webdataset")
    shown = environment.run("-m", "wids", "info")
    assert shown.returncode == 1
    assert "has no __init__.py" in shown.stderr
    assert "`pip uninstall wids webdataset`" in shown.stderr


@pytest.mark.slow
def test_an_owner_of_our_files_is_named_before_it_does_harm(tmp_path):
    """Installed before ours, it has done none; a module that cannot be imported names it."""
    environment = Environment(tmp_path / "env")
    theirs = {"wids/__init__.py": "", "wids/wids.py": ""}
    environment.pip("install", "--no-index", write_wheel(tmp_path, "webdataset", "0.2", theirs))
    environment.pip("install", "--no-index", write_wheel(tmp_path, "wids", "1.0", our_files()))
    find = "import wids.installation as i; print(i.installation_fault(), i.other_owners())"
    assert environment.run("-c", find).stdout == "None ['webdataset 0.2']\n"
    asked = environment.run("-c", "import wids; wids.Loader")  # its module is in no wheel here
    assert "webdataset 0.2 has files in the folder of wids" in asked.stderr


def test_a_sound_installation_has_no_fault():
    """The package under test is whole, and no other package has files in its folder."""
    assert installation_fault() is None
    assert other_owners() == []


@pytest.mark.slow
def test_the_command_needs_nothing_that_the_other_package_imports(tmp_path):
    """The old library imports torch; without it, the command still says what was replaced."""
    environment = Environment(tmp_path / "env")
    environment.pip("install", "--no-index", write_wheel(tmp_path, "wids", "1.0", our_files()))
    theirs = {"wids/__init__.py": "import torch.distributed"}
    environment.pip("install", "--no-index", write_wheel(tmp_path, "webdataset", "0.2", theirs))
    command = "import _wids_command, sys; sys.exit(_wids_command.main())"
    shown = environment.run("-c", command)
    assert shown.returncode == 1
    assert "a file of another package (webdataset 0.2)" in shown.stderr
    assert "`pip uninstall wids webdataset`" in shown.stderr
    assert "No module named 'torch" in environment.run("-c", "import wids").stderr
