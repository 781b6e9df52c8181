"""Importers of folders: images by class, as in torchvision's ImageFolder, and files of samples.

In a folder of classes, each image is a sample. Files beside it that share its name up to a dot
(`a.jpg`, `a.txt`, `a.mask.npy`) become its other fields. In a folder of samples, all files that
share a name become one sample, even if several of them are images.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.omissions import Omissions
from wids.codecs.formats import FORMAT_OF, IMAGE_EXTENSIONS
from wids.importing.layout import clean_key
from wids.importing.options import (
    SORTED_CLASSES,
    Imported,
    ImportOptions,
    is_documentation,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = ["MEDIA_SUFFIXES", "folder_kind", "open_image_folder", "open_samples"]

MEDIA_SUFFIXES = tuple(
    suffix for suffix, each in FORMAT_OF.items() if each.kind in {"image", "audio", "video"}
)
# A word by which the Hugging Face hub knows the folder of a split, as in `val2017`.
_SPLIT = re.compile(r"(?<![a-z])(train|val|dev|test|eval)(ing|id|idation)?(?![a-z])")


def folder_kind(folder: Path, options: ImportOptions) -> str:
    """Return the kind of a folder of files: "imagefolder" or "samples".

    Raises:
        ValueError: It may be of both kinds.
    """
    folder = _chosen_split(folder, options)
    media = next((path for path in _visible(folder) if _is_media(path)), None)
    subfolders = _subfolders(folder)
    if media is not None and subfolders and options.classes is None:
        raise ValueError(
            f"{folder}: holds {media.name} beside the folder {subfolders[0].name}; say --from "
            "imagefolder if its folders are classes, or --from samples if they are not"
        )
    return "imagefolder" if subfolders or media is None else "samples"


def open_image_folder(sources: Sequence[str], options: ImportOptions) -> Imported:
    """Open an ImageFolder tree: `<folder>/<class>/.../<image>`.

    Args:
        sources: The tree.
        options: `split` names the folder of the tree to import. `classes` lists the classes in
            order; by default the sorted names of the folders.

    Returns:
        One sample per image: the unchanged bytes of the image and of the files beside it, the class
        number as `.cls`, and the path as `.json`, unless a file has that extension. The key is the
        path without suffix. The header has the class names. In a class without images, sound or
        video files take their place.

    Raises:
        ValueError: The tree has no class, its folders may be splits or classes, or its splits have
            different classes and `classes` is not given. While samples are read: two files have
            the same key, or a link leads back to a folder above it.
        FileNotFoundError: While samples are read: the target of a link does not exist.
    """
    folder = _chosen_split(Path(sources[0]).expanduser(), options)
    found = [each.name for each in _subfolders(folder)]
    if not found:
        raise ValueError(
            f"{folder}: expected one folder per class with its images, found no folder in it; "
            "--from samples takes its files without classes"
        )
    names = found
    if options.classes is None:
        _check_classes(folder, found, options)
    elif options.classes != SORTED_CLASSES:
        names = list(options.classes)
        if unknown := next((name for name in found if name not in names), None):
            raise ValueError(
                f"{folder / unknown}: is none of the classes {', '.join(names)}; add it to "
                "--classes"
            )
    omissions = Omissions(strict=options.strict)

    def samples() -> Iterator[dict[str, Any]]:
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") and not is_documentation(path.name):
                omissions.add("hidden files and folders", str(path))
            elif not path.is_dir() and not is_documentation(path.name):
                omissions.add("files that lie in no class", str(path))
        for number, name in enumerate(names):
            if name in found:
                yield from _samples_of_class(folder, name, number, omissions)
            else:
                omissions.add("classes without a folder", name)

    return Imported(samples(), {"classes": names}, omissions=omissions)


def _samples_of_class(
    folder: Path, name: str, number: int, omissions: Omissions
) -> Iterator[dict[str, Any]]:
    paths = sorted(_walk(folder / name, omissions))
    pictures = [path for path in paths if path.suffix.lower() in IMAGE_EXTENSIONS]
    pictures = pictures or [path for path in paths if _is_media(path)]
    if not pictures:
        omissions.add("classes without a picture", name)
    stems = Counter(path.with_suffix("") for path in pictures)
    beside = _grouped([path for path in paths if path not in set(pictures)], stems, omissions)
    for path in pictures:
        stem = path.with_suffix("")
        files = beside.get(stem, {})
        told = files[".cls"].read_text("utf-8").strip() if ".cls" in files else str(number)
        if told != str(number):
            raise ValueError(
                f"{files['.cls']}: says the class {told!r:.40}, and its folder is class {number}; "
                "--from samples takes the files as they are"
            )
        yield {
            # The suffix is part of the key only where keys would be equal: `a.jpg` beside `a.png`.
            "__key__": _key_of(folder, stem if stems[stem] == 1 else path),
            path.suffix.lower(): path.read_bytes(),
            ".cls": number,
            ".json": {"class": name, "path": path.relative_to(folder).as_posix()},
            # A file of the user replaces the field that would be made here.
            **{extension: each.read_bytes() for extension, each in files.items()},
        }


def open_samples(sources: Sequence[str], options: ImportOptions) -> Imported:
    """Open a folder of samples: `0001.jpg`, `0001.txt`, `0001.mask.png`, in subfolders as well.

    Args:
        sources: The folder.
        options: `split` names the one subfolder to import.

    Returns:
        One sample for all files that share a name; the key is their path up to the extension.
        If there are image, sound or video files, a file that shares no name with one is left out.

    Raises:
        ValueError: The folder has no file; or, while samples are read, two have the same key.
    """
    folder = _chosen_split(Path(sources[0]).expanduser(), options)
    omissions = Omissions(strict=options.strict)
    paths = sorted(_walk(folder, omissions))
    if not paths:
        raise ValueError(f"{folder}: expected the files of samples in it, found no file")
    stems = {path.with_suffix("") for path in filter(_is_media, paths)}
    groups = _grouped(paths, stems or {path.with_suffix("") for path in paths}, omissions)
    samples = (
        {
            "__key__": _key_of(folder, stem),
            **{extension: path.read_bytes() for extension, path in group.items()},
        }
        for stem, group in groups.items()
    )
    return Imported(samples, omissions=omissions)


def _chosen_split(folder: Path, options: ImportOptions) -> Path:
    if options.split is None:
        return folder
    found = [each.name for each in _subfolders(folder)]
    if options.split not in found:
        raise ValueError(
            f"{folder}: expected --split with one of its folders "
            f"({', '.join(found) or 'it has none'}), got {options.split!r}"
        )
    return folder / options.split


def _check_classes(folder: Path, found: list[str], options: ImportOptions) -> None:
    """Raise ValueError if the folders may not be classes, or if another split has others."""
    splits = {name: split[1] for name in found if (split := _SPLIT.search(name.lower()))}
    # A class may be called "train". If there is a "val" as well, both are most likely splits, and
    # so is a folder of folders alone.
    only_folders = [
        name
        for name in (found if len(found) == 1 else splits)
        if _subfolders(folder / name) and not any(map(_is_media, _visible(folder / name)))
    ]
    if len(splits) == len(found) or len(set(splits.values())) > 1 or only_folders:
        parts = list(splits) or only_folders
        raise ValueError(
            f"{folder}: {', '.join(parts)} may be parts of a dataset or classes; say --split "
            f"{parts[0]} to import that part, or --classes {SORTED_CLASSES} to take them for "
            "classes"
        )
    if options.split is None:
        return
    for other in _subfolders(folder.parent):
        names = [each.name for each in _subfolders(other)]
        if names and names != found and _SPLIT.search(other.name.lower()):
            lone = min(set(names) ^ set(found))
            where = (folder if lone in found else other).name
            raise ValueError(
                f"{folder} and {other} have different classes ({lone} is only in {where}), so the "
                "same number would mean different classes; say --classes NAME,NAME,... for both, "
                f"or --classes {SORTED_CLASSES} to number the classes of {folder.name} alone"
            )


def _grouped(
    paths: Iterable[Path], stems: Collection[Path], omissions: Omissions
) -> dict[Path, dict[str, Path]]:
    """Group files by the names that they share: stem to extension to file."""
    groups: dict[Path, dict[str, Path]] = {}
    for path in paths:
        # The shortest stem counts: `a.mask.png` belongs to `a.jpg`, though it is an image itself.
        dots = [i for i, letter in enumerate(path.name) if letter == "." and i]
        found = next((i for i in dots if path.with_name(path.name[:i]) in stems), None)
        if found is None:
            if not is_documentation(path.name):
                omissions.add("files that belong to no sample", str(path))
            continue
        extension = path.name[found:].lower()
        group = groups.setdefault(path.with_name(path.name[:found]), {})
        if group.setdefault(extension, path) != path:
            raise ValueError(
                f"{group[extension]} and {path} are both {extension!r} of {path.name[:found]}"
            )
    return groups


def _key_of(folder: Path, path: Path) -> str:
    return clean_key(path.relative_to(folder).as_posix())


def _is_media(path: Path) -> bool:
    return path.suffix.lower() in MEDIA_SUFFIXES


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.is_dir()]


def _walk(
    folder: Path, omissions: Omissions, above: frozenset[Path] = frozenset()
) -> Iterator[Path]:
    """Walk over the files below a folder, following links as torchvision does.

    Raises:
        ValueError: A link leads back to a folder above it.
        FileNotFoundError: The target of a link does not exist.
    """
    real = folder.resolve()
    if real in above:
        raise ValueError(f"{folder}: this link leads back to {real}, a folder above it; remove it")
    for path in folder.iterdir():
        if path.name.startswith("."):
            if not is_documentation(path.name):
                omissions.add("hidden files and folders", str(path))
        elif path.is_dir():
            yield from _walk(path, omissions, above | {real})
        elif path.is_file():
            yield path
        elif path.is_symlink():
            raise FileNotFoundError(
                f"{path}: the target of this link does not exist; correct or remove the link"
            )
        else:
            omissions.add("pipes, sockets and devices", str(path))
