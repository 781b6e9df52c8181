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
from wids.importing.layout import clean_key, family_of, sniffed
from wids.importing.options import (
    SORTED_CLASSES,
    Imported,
    ImportOptions,
    is_documentation,
    split_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["MEDIA_SUFFIXES", "folder_kind", "open_image_folder", "open_samples"]

MEDIA_SUFFIXES = tuple(
    suffix for suffix, each in FORMAT_OF.items() if each.kind in {"image", "audio", "video"}
)
# First bytes of images that the table of magic numbers does not have: AVIF (whose first box lists
# its brands), JPEG 2000 (file and codestream), Netpbm, and TIFF of 64 bits.
_OTHER_PICTURES = re.compile(
    rb"....ftyp.{0,60}avi[fs]|\0\0\0\x0cjP  |\xffO\xffQ|P[1-7Ff]\s|II\+\0|MM\0\+", re.DOTALL
)
_NO_PICTURE = "samples whose image is not an image (perhaps an error page of a server)"
_HIDDEN = "hidden files and folders"
_MOST_SHOWN = 20  # classes in a message


def folder_kind(folder: Path, options: ImportOptions) -> str:
    """Return the kind of a folder of files: "imagefolder" or "samples".

    Raises:
        ValueError: It may be of both kinds.
    """
    if options.split is not None:
        folder = _split_folder(folder, options.split)
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
    folder = Path(sources[0]).expanduser()
    if options.split is not None:
        folder = _split_folder(folder, options.split)
        if options.classes is None:
            _check_splits_agree(folder)
    folders = _subfolders(folder)
    if not folders:
        raise ValueError(
            f"{folder}: expected one folder per class with its images, found no folder in it; "
            "--from samples takes its files without classes"
        )
    found = [each.name for each in folders]
    if options.classes is None:
        _check_classes(folder, found)
    names = _class_names(folder, found, options.classes)
    omissions = Omissions(strict=options.strict)
    samples = _classified(folder, names, omissions, rekeyed=options.rekeyed)
    return Imported(samples, {"classes": names}, omissions=omissions)


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
    folder = Path(sources[0]).expanduser()
    if options.split is not None:
        folder = _split_folder(folder, options.split)
    omissions = Omissions(strict=options.strict)
    paths = sorted(_walk(folder, omissions))
    if not paths:
        raise ValueError(f"{folder}: expected the files of samples in it, found no file")
    samples = _grouped(folder, paths, omissions, rekeyed=options.rekeyed)
    return Imported(samples, omissions=omissions)


def _split_folder(folder: Path, split: str) -> Path:
    found = [each.name for each in _subfolders(folder)]
    if split not in found:
        raise ValueError(
            f"{folder}: expected --split with one of its folders "
            f"({', '.join(found) or 'it has none'}), got {split!r}"
        )
    return folder / split


def _check_splits_agree(split: Path) -> None:
    """Raise ValueError if another split has other classes, since numbers would be ambiguous."""
    own = [each.name for each in _subfolders(split)]
    for other in _subfolders(split.parent):
        names = [each.name for each in _subfolders(other)]
        if other == split or not names or not own or not split_of(other.name) or names == own:
            continue
        lone = min(set(own) ^ set(names))
        every = sorted({*own, *names})
        shown = ",".join(every) if len(every) <= _MOST_SHOWN else "FILE, with one name a line,"
        raise ValueError(
            f"{split} and {other} have different classes ({lone} is only in "
            f"{(split if lone in own else other).name}), so the same number would mean different "
            f"classes; say --classes {shown} for both, or --classes {SORTED_CLASSES} to number "
            f"the classes of {split.name} alone"
        )


def _check_classes(folder: Path, found: list[str]) -> None:
    """Raise ValueError if the folders may not be classes."""
    parts = [name for name in found if split_of(name)]
    # A class may be called "train". If there is a "val" as well, both are most likely splits, and
    # so is a "train" of folders alone: of the classes in it, beside an "extra" of the same.
    nested = [name for name in parts if _holds_folders_alone(folder / name)]
    if len(parts) == len(found) or len(set(map(split_of, parts))) > 1 or nested:
        raise ValueError(
            f"{folder}: {', '.join(parts)} may be parts of a dataset or classes; say "
            f"--split {parts[0]} to import that part, or --classes {SORTED_CLASSES} to take them "
            "for classes"
        )
    only = folder / found[0]
    if len(found) == 1 and _holds_folders_alone(only):
        raise ValueError(
            f"{folder}: holds the one folder {only.name}, which holds folders; import {only} if "
            f"those are the classes, or say --classes {SORTED_CLASSES} if {only.name} is the one "
            "class"
        )


def _holds_folders_alone(folder: Path) -> bool:
    """Return whether a folder has folders and no pictures beside them."""
    return bool(_subfolders(folder)) and not any(map(_is_media, _visible(folder)))


def _class_names(folder: Path, found: list[str], wanted: Sequence[str] | str | None) -> list[str]:
    """Return the classes in order; by default sorted as torchvision sorts them."""
    if wanted is None or wanted == SORTED_CLASSES:
        return found
    unknown = next((name for name in found if name not in wanted), None)
    if unknown is not None:
        raise ValueError(
            f"{folder / unknown}: is none of the classes {', '.join(wanted)}; add it to --classes"
        )
    return list(wanted)


def _classified(
    folder: Path, names: list[str], omissions: Omissions, *, rekeyed: bool
) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") and not is_documentation(path.name):
            omissions.add(_HIDDEN, str(path))
        elif not path.is_dir() and not is_documentation(path.name):
            omissions.add("files that lie in no class", str(path))
    for number, name in enumerate(names):
        if not (folder / name).is_dir():
            omissions.add("classes without a folder", name)
            continue
        paths = sorted(_walk(folder / name, omissions))
        pictures = _pictures_of(paths)
        if not pictures:
            omissions.add("classes without a picture", name)
        keys = _keys_of(pictures, folder)
        if not rekeyed:
            _check_differ(keys, pictures)
        beside = _files_beside(pictures, paths, omissions)
        for path, key in zip(pictures, keys, strict=True):
            data = path.read_bytes()
            if _is_disguised(path, data):
                omissions.add(_NO_PICTURE, str(path))
                continue
            others = {
                extension: other.read_bytes() for extension, other in beside.get(path, {}).items()
            }
            _check_class(others, number, path)
            origin = {"class": name, "path": path.relative_to(folder).as_posix()}
            # A file of the user replaces the field that would be made here.
            told = {path.suffix.lower(): data, ".cls": number, ".json": origin}
            yield {"__key__": key, **told, **others}


def _check_class(others: dict[str, bytes], number: int, path: Path) -> None:
    """Raise ValueError if a file beside an image contradicts the class of its folder."""
    told = others.get(".cls", b"%d" % number).strip()
    if told != b"%d" % number:
        raise ValueError(
            f"{path.with_suffix('.cls')}: says the class {told!r:.40}, and its folder is class "
            f"{number}; --from samples takes the files as they are"
        )


def _pictures_of(paths: list[Path]) -> list[Path]:
    """Return the image files of a class or, if there are none, its sound and video files."""
    pictures = [path for path in paths if path.suffix.lower() in IMAGE_EXTENSIONS]
    return pictures or [path for path in paths if _is_media(path)]


def _files_beside(
    pictures: list[Path], paths: Iterable[Path], omissions: Omissions
) -> dict[Path, dict[str, Path]]:
    """Map each image to the files that share its name, by extension."""
    by_stem: dict[Path, list[Path]] = {}
    for picture in pictures:
        by_stem.setdefault(picture.with_suffix(""), []).append(picture)
    beside: dict[Path, dict[str, Path]] = {}
    taken = set(pictures)
    for path in paths:
        if path in taken:
            continue
        stem = next((each for each in _stems(path) if each in by_stem), None)
        if stem is None:
            if not is_documentation(path.name):
                omissions.add("files that belong to no picture", str(path))
            continue
        for picture in by_stem[stem]:
            extension = path.name[len(stem.name) :].lower()
            other = beside.setdefault(picture, {}).setdefault(extension, path)
            if other != path:
                raise ValueError(f"{other} and {path} are both {extension!r} of {picture.name}")
    return beside


def _stems(path: Path) -> Iterator[Path]:
    """Yield the path truncated at each dot of its name, from the last dot to the first."""
    name = path.name
    while (dot := name.rfind(".")) > 0:
        name = name[:dot]
        yield path.with_name(name)


def _grouped(
    folder: Path, paths: list[Path], omissions: Omissions, *, rekeyed: bool
) -> Iterator[dict[str, Any]]:
    """Yield one sample for each set of files that share a name."""
    media = [path for path in paths if _is_media(path)]
    stems = {path.with_suffix("") for path in media or paths}
    groups: dict[Path, dict[str, Path]] = {}
    for path in paths:
        # The shortest stem counts: `a.mask.png` belongs to `a.jpg`, though it is an image itself.
        found = [each for each in _stems(path) if each in stems]
        if found and path.suffix:
            _join(groups.setdefault(found[-1], {}), path, found[-1])
        elif not is_documentation(path.name):
            omissions.add("files that belong to no sample", str(path))
    keys = [clean_key(stem.relative_to(folder).as_posix()) for stem in groups]
    if not rekeyed:
        _check_differ(keys, list(groups))
    for key, group in zip(keys, groups.values(), strict=True):
        fields = {extension: path.read_bytes() for extension, path in group.items()}
        disguised = [each for each in fields if _is_disguised(group[each], fields[each])]
        if disguised:
            omissions.add(_NO_PICTURE, str(group[disguised[0]]))
        else:
            yield {"__key__": key, **fields}


def _join(group: dict[str, Path], path: Path, stem: Path) -> None:
    extension = path.name[len(stem.name) :].lower()
    if extension in group:
        raise ValueError(f"{group[extension]} and {path} are both {extension!r} of {stem.name}")
    group[extension] = path


def _is_disguised(path: Path, data: bytes) -> bool:
    """Return whether a file is named like an image but does not begin like one."""
    if path.suffix.lower() not in IMAGE_EXTENSIONS or family_of(sniffed(data)) == "image":
        return False
    return _OTHER_PICTURES.match(data) is None


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
                omissions.add(_HIDDEN, str(path))
        elif path.is_dir():
            yield from _walk(path, omissions, above | {real})
        elif path.is_file():
            yield path
        elif path.is_symlink() and not path.exists():
            raise FileNotFoundError(
                f"{path}: the target of this link does not exist; correct or remove the link"
            )
        else:
            omissions.add("pipes, sockets and devices", str(path))


def _keys_of(files: list[Path], folder: Path) -> list[str]:
    """Return a key for each path, without dots; with the suffix only where keys would be equal."""
    stems = [path.with_suffix("") for path in files]
    counts = Counter(stems)
    kept = [stem if counts[stem] == 1 else path for stem, path in zip(stems, files, strict=True)]
    return [clean_key(path.relative_to(folder).as_posix()) for path in kept]


def _check_differ(keys: list[str], files: list[Path]) -> None:
    """Raise ValueError if two files have the same key."""
    # A key keeps its folders, so files of different classes never meet.
    file_of: dict[str, Path] = {}
    for key, path in zip(keys, files, strict=True):
        if key in file_of:
            raise ValueError(
                f"{file_of[key]} and {path} both get the key {key!r}, since the last part of a "
                "key has no dots; rename one of them, or number the samples (--rekey)"
            )
        file_of[key] = path
