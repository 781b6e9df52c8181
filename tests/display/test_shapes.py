"""Shapes in JSON, drawn over the picture of a sample."""

import base64
import json
import re
from typing import Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import cbor2
import numpy as np
import pytest
from helpers.pictures import save
from helpers.shapecases import SHAPE_CASES
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

import wids
from wids.display.annotations import Shape, find_shapes, shapes_of, summarise_shapes
from wids.display.fieldview import view_field
from wids.display.mediaview import EXIF_ORIENTATION
from wids.display.shapes import draw_over
from wids.display.thumbnails import thumbnail

GREY = save(Image.new("RGB", (200, 100), (90, 90, 90)), "PNG")


def shapes_in(document: Any) -> list[Shape]:
    """Return the shapes of a document that are drawn."""
    return list(find_shapes(document).drawn)


# One box in the pixels of a stored image of 200 x 100, in several ways.
STORED = [
    {"bbox": [120, 10, 60, 30]},
    {"bbox_xyxy": [120, 10, 180, 40]},
    {"segmentation": [[120, 10, 180, 10, 180, 40, 120, 40]]},
    {"keypoints": [120, 10, 2, 180, 40, 2]},
    {"rle": {"size": [100, 200], "counts": [12_010, *[30, 70] * 59, 30, 2_060]}},
]


def drawn_over(size: tuple[int, int], document: Any, orientation: int = 1) -> list[Element]:
    """Draw the shapes of a document over a grey image of a size; return the elements of the SVG."""
    shown = size[::-1] if orientation > 4 else size
    picture = thumbnail(".png", save(Image.new("RGB", shown), "PNG"), size=64)
    drawing = draw_over(picture, size, shapes_in(document), orientation)
    root = ET.fromstring(drawing.data)
    assert root.get("viewBox") == f"0 0 {shown[0]} {shown[1]}"
    return [each for each in root if not each.tag.endswith("image")]


def rectangles(path: Element) -> list[tuple[float, ...]]:
    """Return left, top, right and bottom of the rectangles of a path."""
    found = re.findall(r"M(\S+) (\S+)H(\S+)V(\S+)H\S+Z", path.get("d", ""))
    corners = [tuple(map(float, each)) for each in found]
    return [(min(x, a), min(y, b), max(x, a), max(y, b)) for x, y, a, b in corners]


def extent(element: Element) -> tuple[float, ...]:
    """Return left, top, right and bottom of all points of an element."""
    if element.tag.endswith("path"):
        numbers = [number for each in rectangles(element) for number in each]
    elif element.tag.endswith("circle"):
        numbers = [float(element.get("cx", "")), float(element.get("cy", ""))]
    else:
        numbers = [float(each) for each in re.split("[ ,]", element.get("points", ""))]
    return min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])


@pytest.mark.parametrize(("document", "expected"), SHAPE_CASES)
def test_shapes_are_found_as_datasets_write_them(document: Any, expected: list[Any]) -> None:
    """Boxes, polygons, keypoints and masks are found by the names of their numbers."""
    found = shapes_in(document)
    assert [
        (each.kind, list(each.values), each.label, each.form or "") for each in found
    ] == expected
    summary = view_field(".json", json.dumps(document).encode()).summary
    drawn = summary.get("shapes", {"drawn": []})["drawn"]
    assert [
        (each["kind"], each["values"], each["label"], each["form"] or "") for each in drawn
    ] == expected


@pytest.mark.parametrize(
    ("annotation", "category"),
    [
        ({"category_id": 2}, 2),
        ({"category_id": 2.0}, 2),
        ({"category_id": 2.5}, None),
        ({"label": "2"}, 2),
        ({"label": "02"}, None),
        ({"name": "2"}, None),
        ({"id": 2}, None),
    ],
)
def test_labels_that_are_numbers_of_classes_are_told(
    annotation: dict[str, Any], category: int | None
) -> None:
    """Numbers of classes are so as 2, 2.0 and "2"; names and numbers of annotations are not."""
    (shape,) = shapes_in({"bbox": [1, 2, 3, 4], **annotation})
    assert shape.category == category
    assert shape.label == str(next(iter(annotation.values())))


def polygons(count: int) -> dict[str, Any]:
    """Make annotations of COCO, polygons of 100 points."""
    corners = [[float(place % 97), float(place % 89)] for place in range(100)]
    flat = [number for pair in corners for number in pair]
    return {"annotations": [{"id": n, "segmentation": [flat]} for n in range(count)]}


@pytest.mark.parametrize("count", [40, 400])
def test_shapes_of_a_document_that_makes_no_tree_are_found(count: int) -> None:
    """Documents of many nodes, or of many bytes, have their shapes and the number left out."""
    summary = view_field(".json", json.dumps(polygons(count)).encode()).summary
    assert "tree" not in summary
    shapes = summary["shapes"]
    assert [each["label"] for each in shapes["drawn"]] == [str(n) for n in range(min(count, 300))]
    assert shapes["drawn"][0]["values"] == polygons(1)["annotations"][0]["segmentation"][0]
    assert (shapes["left_out"], shapes["whole"]) == (max(count - 300, 0), True)


def test_hostile_documents_are_searched_within_bounds() -> None:
    """Masks without end are searched up to a bound, and what contains itself is not searched."""
    endless: list[Any] = [{"bbox": [1, 2, 3, 4]}]
    endless += [endless, endless]
    summary = view_field(".cbor", cbor2.dumps(endless, value_sharing=True)).summary
    assert "hex" in summary
    assert "shapes" not in summary
    assert find_shapes({"bbox": [1, 2, 3, 10**400], 5: [[1, 2, 3, 4]]}).drawn == ()
    runs = {"size": [1, 20_000], "counts": [1] * 20_000}
    masks = find_shapes({"masks": [runs] * 1000})
    assert (len(masks.drawn), masks.whole) == (13, False)
    alone = find_shapes({"polygon": [1.5] * 200_000, "bbox": [1, 2, 3, 4]})
    assert [each.kind for each in alone.drawn] == ["box"]
    assert alone.left_out == 1


KEYS = ["shapes", "drawn", "left_out", "whole", "kind", "values", "label", "form", "category"]


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.sampled_from([*KEYS, "box", "xywh"]),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
    )
)
def test_shapes_that_a_decoder_made_up_are_refused(junk: Any) -> None:
    """Of a summary only shapes are read that are as they are written, whatever else it holds."""
    summary = summarise_shapes({"boxes": [[1, 2, 3, 4]] * 2, "labels": [3, "x"]})
    found = shapes_of(summary)
    assert found is not None
    assert found.as_dict() == summary["shapes"]
    shape = summary["shapes"]["drawn"][0]
    for name in ("kind", "values", "label", "form", "category"):
        changed = shapes_of({"shapes": {**summary["shapes"], "drawn": [{**shape, name: junk}]}})
        kept = () if changed is None else changed.drawn
        assert all(each.kind == "box" for each in kept)
        assert all(isinstance(value, int | float) for each in kept for value in each.values)
    assert shapes_of({"shapes": junk}) is None or isinstance(junk, dict)
    assert shapes_of({}) is None


def packed(runs: list[int]) -> str:
    """Write the lengths of runs as COCO does, after the description of its format."""
    text = ""
    for place, run in enumerate(runs):
        rest = run - runs[place - 2] if place > 2 else run
        while True:
            low, rest = rest & 31, rest >> 5
            ends = rest == (-1 if low & 16 else 0)
            text += chr(48 + low + (0 if ends else 32))
            if ends:
                break
    return text


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32), st.booleans())
def test_a_mask_of_runs_has_the_pixels_of_the_array(
    height: int, width: int, seed: int, packs: bool
) -> None:
    """A mask is drawn where the array that was encoded has ones, whichever way it is written."""
    chance = np.random.default_rng(seed)
    flat = np.repeat(chance.integers(0, 2, height * width), chance.integers(1, 50))
    mask = flat[: height * width].reshape(width, height).T.astype(bool)
    column_major = np.concatenate([[False], mask.T.ravel()])
    changes = np.flatnonzero(np.diff(column_major))
    runs = np.diff([0, *changes, mask.size]).tolist()
    counts = packed(runs) if packs else runs
    elements = drawn_over((width, height), {"rle": {"size": [height, width], "counts": counts}})
    drawn = np.zeros((height, width), int)
    for left, top, right, bottom in (each for path in elements for each in rectangles(path)):
        drawn[int(top) : int(bottom), int(left) : int(right)] += 1
    assert (drawn == mask).all()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["bbox", "x", "y", "w", "h", "label", "labels", "keypoints", "polygon"]
            ),
            inner,
            max_size=5,
        )
    ),
)


@given(JSON, st.integers(1, 8))
def test_any_document_can_be_drawn(document: Any, orientation: int) -> None:
    """Whatever a document holds, the drawing is an SVG."""
    drawn_over((200, 100), document, orientation)


@pytest.mark.parametrize(
    "document",
    [
        {"bbox": [50, 20, 100, 60]},  # COCO: position and size
        {"bbox": [50, 20, 150, 80], "more": {"bbox": [120, 60, 190, 90]}},  # corners
        {"bbox": [0.25, 0.2, 0.5, 0.6]},  # shares
        {"x1": 50, "y1": 20, "x2": 150, "y2": 80},
    ],
)
def test_boxes_lie_where_they_are(document: Any) -> None:
    """A box is drawn in the pixels of the image, whatever its form."""
    assert extent(drawn_over((200, 100), document)[0]) == (50, 20, 150, 80)


def sample() -> dict[str, Any]:
    mask = np.zeros((100, 200), np.uint8)
    mask[:, 100:] = 1
    document = json.dumps({"bbox": [10, 10, 50, 50], "label": "\x1b[31m<b>cat</b>"})
    return {
        "__key__": "k",
        ".png": GREY,
        ".seg.png": save(Image.fromarray(mask), "PNG"),
        ".json": document.encode(),
    }


@pytest.mark.parametrize("orientation", range(5, 9))
@pytest.mark.parametrize("document", STORED, ids=lambda document: next(iter(document)))
def test_shapes_of_the_stored_pixels_are_turned(document: Any, orientation: int) -> None:
    """Shapes that lie in the stored image alone are turned with it, here as by Pillow."""
    filled = np.zeros((100, 200), np.uint8)
    filled[10:40, 120:180] = 1
    marked = Image.fromarray(filled)
    marked.getexif()[EXIF_ORIENTATION] = orientation
    rows, columns = np.nonzero(np.asarray(ImageOps.exif_transpose(marked)))
    expected = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    found = [extent(each) for each in drawn_over((200, 100), document, orientation)]
    lowest, highest = np.min(found, axis=0)[:2], np.max(found, axis=0)[2:]
    assert (*lowest, *highest) == expected


def test_a_card_has_the_overlay_beside_the_picture() -> None:
    """A notebook shows the picture as it is, and beside it with its boxes, their labels escaped."""
    page = wids.show(sample())._repr_html_()
    (drawing,) = re.findall(r"image/svg\+xml;base64,([^\"]+)", page)
    root = ET.fromstring(base64.b64decode(drawing))
    image, box, label = root
    assert (image.get("width"), image.get("height")) == ("200", "100")
    assert rectangles(box) == [(10, 10, 60, 60)]
    assert label.text == "\\x1b[31m<b>cat</b>"
    assert page.count("base64,") == 3
    assert "with .json" in page
    without = {name: value for name, value in sample().items() if name in ("__key__", ".png")}
    assert wids.show(without)._repr_html_().count("base64,") == 1


def test_shapes_that_are_left_out_are_said() -> None:
    """Below the picture with its first shapes stands how many there are."""
    boxes = {"boxes": [[n % 60, n % 40, 5, 5] for n in range(350)]}
    page = wids.show({".png": GREY, ".json": json.dumps(boxes).encode()})._repr_html_()
    assert "The first 300 of 350 shapes are drawn." in page
