"""Folders of images by class, as torchvision's ImageFolder takes them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from wids.codecs.images import IMAGE_EXTENSIONS
from wids.importing.layout import Imported, clean_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["class_names", "open_image_folder"]


def open_image_folder(
    folder: Path, extensions: Iterable[str] = tuple(IMAGE_EXTENSIONS), *, rekeyed: bool = False
) -> Imported:
    """Open an ImageFolder tree: `<folder>/<class>/.../<image>`.

    Args:
        folder: The tree.
        extensions: Files that count, by their suffix in lower case; others are left out.
        rekeyed: The caller gives new keys to the samples, so those of two files may be equal.

    Returns:
        Samples of the image's bytes, as they are, under its own extension; the number of its class
        as `.cls`; and where it came from as `.json`. The key is the path without its suffix. The
        names of the classes are in the header.

    Raises:
        ValueError: There is no class in it; or, while samples are read, two files have one key, or
            a link leads back to a folder that it lies in.
        FileNotFoundError: While samples are read: a link leads nowhere.
    """
    names = class_names(folder)
    samples = _samples(folder, names, set(extensions), rekeyed=rekeyed)
    return Imported(samples, {"classes": names})


def class_names(folder: Path) -> list[str]:
    """Name the classes of a tree: its subfolders, sorted; a class is its place there.

    Raises:
        ValueError: There is no subfolder.
    """
    # Sorted as torchvision sorts them, so that a class has the same number in both.
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise ValueError(
            f"{folder}: expected one folder per class with its images, found no folder in it"
        )
    return names


def _samples(
    folder: Path, names: list[str], wanted: set[str], *, rekeyed: bool
) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(names):
        files = sorted(path for path in _files(folder / name) if path.suffix.lower() in wanted)
        keys = _keys_of(files, folder)
        if not rekeyed:
            _check_differ(keys, files)
        for path, key in zip(files, keys, strict=True):
            origin = {"class": name, "path": path.relative_to(folder).as_posix()}
            yield {
                "__key__": key,
                path.suffix.lower(): path.read_bytes(),
                ".cls": number,
                ".json": origin,
            }


def _files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Walk over the files below a folder, behind links, too, as torchvision does.

    Raises:
        ValueError: A link leads back to a folder that it lies in.
        FileNotFoundError: A link leads nowhere.
    """
    real = folder.resolve()
    if real in above:
        raise ValueError(f"{folder}: leads back to {real}, in which it lies; remove that link")
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files(path, above | {real})
        elif path.is_file():
            yield path
        elif path.is_symlink() and not path.exists():
            raise FileNotFoundError(f"{path}: this link leads nowhere; mend or remove it")


def _keys_of(files: list[Path], folder: Path) -> list[str]:
    """Make keys of paths: without suffix, unless two files then share one; without dots."""
    stems = [path.with_suffix("") for path in files]
    counts = Counter(stems)
    kept = [stem if counts[stem] == 1 else path for stem, path in zip(stems, files, strict=True)]
    return [clean_key(path.relative_to(folder).as_posix()) for path in kept]


def _check_differ(keys: list[str], files: list[Path]) -> None:
    """Refuse two files of one key, while both can still be named."""
    # A key keeps its folders, so files of different classes never meet.
    file_of: dict[str, Path] = {}
    for key, path in zip(keys, files, strict=True):
        if key in file_of:
            raise ValueError(
                f"{file_of[key]} and {path} both get the key {key!r}, as a key's last part can "
                "hold no dot; rename one of them, or number the samples anew (--rekey)"
            )
        file_of[key] = path
