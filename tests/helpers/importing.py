"""What tests of importers share: small files, and the samples that an import makes of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wids
from helpers.pictures import plain
from wids.cli import main

__all__ = ["fields_of", "imported", "jpeg", "new_header", "refused", "write"]


def jpeg(shade: int = 0) -> bytes:
    """Make a small JPEG."""
    return plain("JPEG", colour=(shade, 0, 0))


def write(files: Mapping[str, bytes]) -> None:
    """Write files in the working folder."""
    for name, data in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)


def fields_of(spec: str | Path) -> list[dict[str, Any]]:
    """Return the keys and the undecoded fields of all samples."""
    with wids.ShardListDataset(spec, transformations="bytes") as dataset:
        return [
            {name: value for name, value in sample.items() if name[:2] != "__" or name == "__key__"}
            for sample in dataset
        ]


def imported(*arguments: str) -> list[dict[str, Any]]:
    """Import into `out/x.json`, and return the keys and the undecoded fields."""
    assert main(["import", *arguments, "-o", "out/x-%03d.tar"]) == 0
    return fields_of("out/x.json")


def new_header() -> dict[str, Any]:
    """Return the spec of what was imported last."""
    return json.loads(Path("out/x.json").read_text())


def refused(capsys: Any, *arguments: str) -> str:
    """Import what must be refused; return the message, once no file is there."""
    capsys.readouterr()
    assert main(["import", *arguments, "-o", "refused/x-%03d.tar"]) == 1
    assert not list(Path().glob("refused/*"))
    return capsys.readouterr().err
