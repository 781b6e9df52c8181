"""What cannot be imported without a loss is refused, by file, line and cure; the rest is kept."""

import csv
import io
import json
import os
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.importing import imported, jpeg, refused, write
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from wids.cli import main
from wids.importing.layout import clean_key
from wids.importing.tables import read_rows

PICTURE = jpeg()


# File, its content, options, and words of the message.
TABLES = [
    ("t.csv", b"a,b\n1,2\n3\n", "", ["line 3", "expected 2 values", "['3']"]),
    ("t.csv", b"a,b\n1,2,3\n", "", ["line 2", "expected 2 values"]),
    ("t.csv", b"a;b\n1;2\n", "", ["expected columns with a ','", "'a;b'", "(.csv) or tabs"]),
    ("t.tsv", b"a,b\n1,2\n", "", ["expected columns with a '\\t'", "'a,b'"]),
    ("t.csv", b"a,b,a\n1,2,3\n", "", ["two columns have the name 'a'; rename one"]),
    ("t.csv", b'a,b\n1,x\n2,"y\n3,z\n', "", ["line 3, or a row that begins there: unexpected end"]),
    ("t.csv", b'a,b\n1,"x\n2,y\n3,"z"\n', "", ["line 2, or a row that begins there: ',' expected"]),
    ("t.csv", b"a\n\xff\xfe\n", "", ["t.csv: is not UTF-8", "iconv"]),
    ("t.csv", b'a,b\n"1,2\n', "", ["t.csv: line"]),
    ("t.csv", b"a,label\n1,cat\n", "--field label=cls", ["row 0", "'cat'", "--classes auto"]),
    ("t.csv", b"a,b\n1,cat\n", "--classes auto", ["one column of classes, found none"]),
    ("t.csv", b"label,cls\n1,2\n", "--classes auto", ["found label, cls", "--field COLUMN=cls"]),
    ("t.csv", b"label\ncat\nowl\n", "--classes cat,dog", ["row 1", "'owl'", "add it to --classes"]),
    ("t.csv", b"file_name\n1.jpg\n", "", ["row 0", "1.jpg"]),
    ("t.csv", b"a\n1\n", "--file picture", ["no column 'picture'; its columns are a"]),
    ("t.csv", b"a,b\n1,2\n", "--field a=txt --field b=txt", ["txt"]),
    ("t.csv", b"a\n1\n", "--field b=txt", ["no column 'b'"]),
    ("t.csv", b"label\ncat\n", "--field b=cls --classes auto", ["no column 'b'"]),
    ("t.csv", b"a\n1\n", "--field a", ["expected --field COLUMN=EXT"]),
    ("t.csv", b"key,a\nx,1\nx,2\n", "", ["'x'"]),
    ("t.jsonl", b'{"a": 1}\n{"a": \n', "", ["line 2: expected a JSON object"]),
    ("t.jsonl", b'{"a": 1}\n[1]\n', "", ["line 2: expected a JSON object, found [1]"]),
    ("t.jsonl", b'{"a": 1, "a": 2}\n', "", ["line 1", "two columns have the name 'a'"]),
    ("t.jsonl", b'{"a": {"b": 1, "b": 2}}\n', "", ["line 1", "two columns have the name 'b'"]),
    ("t.jsonl", b'{"a": "\xff"}\n', "", ["t.jsonl: is not UTF-8"]),
    ("t.jsonl", b'{"a": 1}\n{"a": 1e400}\n', "", ["line 2: ", "1e400 is too large for a 64-bit"]),
    (
        "t.jsonl",
        b'{"a": 1}\n{"a": ' + b"[" * 99_999,
        "",
        ["line 2: expected a JSON object"],
    ),
    ("t.jsonl", b'{"key": true}\n', "", ["the key column 'key' holds True"]),
    ("t.parquet", b"PAR1 is how it begins", "", ["t.parquet: cannot be read as Parquet", "fetch"]),
]


@pytest.mark.parametrize(("name", "data", "options", "words"), TABLES)
def test_tables_that_would_lose_something_name_the_line(
    name: str, data: bytes, options: str, words: list[str], capsys
) -> None:
    """A torn row, a missing header, or a repeated name is refused with line and remedy."""
    Path(name).write_bytes(data)
    message = refused(capsys, name, *options.split())
    for word in words:
        assert word in message


def test_tables_of_other_types_are_refused_together(capsys) -> None:
    """Tables that differ in columns, or have bytes in one and text in another, are refused."""
    write({"a.csv": b"text\none\n", "b.csv": b"text,more\none,two\n"})
    assert "b.csv: expected the columns, types and classes of a.csv" in refused(
        capsys, "a.csv", "b.csv"
    )
    parquet.write_table(pa.table({"a": [b"\xff"]}), "one.parquet")
    parquet.write_table(pa.table({"a": ["x"]}), "two.parquet")
    assert "two.parquet: expected the columns, types" in refused(
        capsys, "one.parquet", "two.parquet"
    )


def test_classes_that_a_table_names_itself_are_kept_or_refused(capsys) -> None:
    """`--classes` is refused for a column whose class names the file has."""
    note = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["b", "a"]}}}}
    table = pa.table({"label": [0, 1]})
    table = table.replace_schema_metadata({b"huggingface": json.dumps(note).encode()})
    parquet.write_table(table, "t.parquet")
    assert "names the classes of 'label' itself" in refused(
        capsys, "t.parquet", "--classes", "auto"
    )
    assert [sample[".cls"] for sample in imported("t.parquet")] == [b"0", b"1"]
    assert json.loads(Path("out/x.json").read_text())["classes"] == ["b", "a"]


# Files, options, and words of the message.
FOLDERS = [
    ({"p/cat/1.jpg": PICTURE}, "p --split val", ["--split with one of its folders (cat)", "'val'"]),
    ({"p/1.txt": b"x"}, "p --from imagefolder --split val", ["(it has none)", "'val'"]),
    ({"p/cat/1.jpg": PICTURE}, "p --classes dog,owl", ["p/cat: is none of the classes dog, owl"]),
    (
        {"p/cat/1.jpg": PICTURE, "p/cat/1.cls": b"7"}, "p",
        ["p/cat/1.cls: says the class '7'", "class 0", "--from samples"],
    ),
    (
        {"p/cat/a.b.jpg": PICTURE, "p/cat/a_b.jpg": PICTURE}, "p",
        ["sample 1: sample 'cat/a_b' is in", "--rekey"],
    ),
    (
        {"p/a.b.jpg": PICTURE, "p/a_b.jpg": PICTURE}, "p --from samples",
        ["sample 1: sample 'a_b' is in", "--rekey"],
    ),
    ({"p/cat/1.JPG": PICTURE, "p/cat/1.txt": b"", "p/cat/1.TXT": b""}, "p", ["are both '.txt'"]),
    ({"p/1.jpg": PICTURE, "p/1.JPG": PICTURE}, "p --from samples", ["are both '.jpg' of 1"]),
    ({"p/train/1.jpg": PICTURE, "p/val/1.jpg": PICTURE}, "p", ["--split train", "--classes"]),
    ({"p/all/cat/1.jpg": PICTURE}, "p", ["--split all", "--classes auto"]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "arguments", "words"), FOLDERS)
def test_folders_that_could_mean_two_things_are_asked_about(
    files: dict[str, bytes], arguments: str, words: list[str], capsys
) -> None:
    """Ambiguous folders are refused by a message with the options to choose from."""
    write(files)
    message = refused(capsys, *arguments.split())
    for word in words:
        assert word in message


LEFT_OUT = [
    ({"p/cat/1.jpg": PICTURE, "p/notes.dat": b"x"}, "p", "files that lie in no class: 1"),
    ({"p/cat/1.jpg": PICTURE, "p/cat/2.txt": b"x"}, "p", "files that belong to no sample: 1"),
    ({"p/cat/1.jpg": PICTURE, "p/dog/1.txt": b"x"}, "p", "classes without a picture: 1, such as"),
    ({"p/cat/1.jpg": PICTURE}, "p --classes cat,dog", "classes without a folder: 1, such as dog"),
    ({"p/cat/1.jpg": PICTURE, "p/cat/.2.jpg": PICTURE}, "p", "p/cat/.2.jpg"),
    ({"p/cat/1.jpg": PICTURE, "p/.dog/2.jpg": PICTURE}, "p", "p/.dog"),
    ({"p/1.jpg": PICTURE, "p/2.dat": b"x"}, "p --from samples", "files that belong to no sample"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "arguments", "line"), LEFT_OUT)
def test_what_is_left_out_is_counted_or_refused(
    files: dict[str, bytes], arguments: str, line: str, capsys
) -> None:
    """Files of no sample are listed, and refused with --strict."""
    write(files)
    assert len(imported(*arguments.split())) == 1
    assert line in capsys.readouterr().err
    assert main(["import", *arguments.split(), "--strict", "-o", "strict/x-%d.tar"]) == 1
    assert "which --strict forbids" in capsys.readouterr().err
    assert not list(Path().glob("strict/*.tar"))


def test_pipes_and_sockets_are_left_out(capsys) -> None:
    """Pipes and sockets are left out without waiting."""
    write({"p/cat/1.jpg": PICTURE})
    os.mkfifo("p/cat/2.jpg")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("p/cat/3.jpg")
        assert len(imported("p")) == 1
    assert "pipes, sockets and devices: 2" in capsys.readouterr().err


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
TABLE = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=5)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLE, st.sampled_from([("t.csv", ","), ("t.tsv", "\t")]), st.booleans())
def test_cells_are_those_that_csv_wrote(
    table: list[list[str]], kind: tuple[str, str], marked: bool
) -> None:
    """Quotes, line breaks, delimiters and the byte order mark of CSV files are parsed."""
    name, delimiter = kind
    columns = [f"c{place}" for place in range(len(table[0]))]
    assume(len(columns) > 1 or all(row[0] for row in table))  # csv skips rows without a cell
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([columns, *table])
    path = Path(name)
    path.write_bytes((b"\xef\xbb\xbf" if marked else b"") + stream.getvalue().encode())
    assert list(read_rows(path)) == [dict(zip(columns, row, strict=True)) for row in table]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | CELLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(CELLS, inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(CELLS, VALUES, max_size=4), max_size=5), st.sampled_from("\n\r"))
def test_json_lines_are_those_that_json_wrote(rows: list[dict[str, Any]], blank: str) -> None:
    """Every object of a JSON-lines file is imported, and empty lines are ignored."""
    text = f"{blank}\n".join(json.dumps(row) + "\n" for row in rows)
    Path("t.jsonl").write_text(text, encoding="utf-8", newline="")
    assert list(read_rows(Path("t.jsonl"))) == rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.fixed_dictionaries({"n": st.integers(-(2**63), 2**63 - 1), "s": CELLS}),
                min_size=1, max_size=9), st.integers(1, 4))  # fmt: skip
def test_parquet_rows_are_those_that_pyarrow_wrote(rows: list[dict[str, Any]], group: int) -> None:
    """Rows of all row groups come in order, with 64-bit integers unchanged."""
    parquet.write_table(pa.Table.from_pylist(rows), "t.parquet", row_group_size=group)
    assert list(read_rows(Path("t.parquet"))) == rows


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_keys_have_no_dot_in_their_last_part(text: str) -> None:
    """Dots in the last component of a key are replaced, and those of folders kept."""
    key = clean_key(text)
    assert "." not in key.rpartition("/")[2]
    assert key.rpartition("/")[0] == text.rpartition("/")[0]
    assert len(key) == len(text)


def test_a_damaged_parquet_is_named(capsys) -> None:
    """A damaged Parquet file raises an error with its path and a remedy."""
    parquet.write_table(pa.table({"a": [f"text {n}" for n in range(2000)]}), "t.parquet")
    data = bytearray(Path("t.parquet").read_bytes())
    data[100:400] = bytes(300)
    Path("t.parquet").write_bytes(data)
    message = refused(capsys, "t.parquet")
    assert "t.parquet" in message
    assert "fetch it again" in message
