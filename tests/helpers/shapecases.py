"""Documents and the shapes that are found in them.

A shape is its kind, its numbers, its label and the form of its numbers; "" stands for none.
"""

from typing import Any

__all__ = ["SHAPE_CASES"]

Found = tuple[str, list[float], str, str]

SHAPE_CASES: list[tuple[Any, list[Found]]] = [
    ({"bbox": [1, 2, 3, 4]}, [("box", [1, 2, 3, 4], "", "")]),
    ({"bbox_xyxy": [1, 2, 3, 4]}, [("box", [1, 2, 3, 4], "", "xyxy")]),
    (
        {"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "labels": ["cat", 7]},
        [("box", [1, 2, 3, 4], "cat", ""), ("box", [5, 6, 7, 8], "7", "")],
    ),
    ({"bbox": [1, 2, 3, 4], "labels": ["cat", "dog"]}, [("box", [1, 2, 3, 4], "", "")]),
    ({"bbox": [1, 2, 3, 4], "label": True, "name": "cat"}, [("box", [1, 2, 3, 4], "cat", "")]),
    (
        {"objects": [{"name": "dog", "xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}]},
        [("box", [1, 2, 3, 4], "dog", "xyxy")],
    ),
    # The names of classes that a document of COCO has itself.
    (
        {
            "annotations": [
                {"id": 9, "bbox": [1, 2, 3, 4], "category_id": number}
                for number in (1, 2.0, "3", 4)
            ],
            "categories": [{"id": n, "name": f"class {n}"} for n in (1, 2, 3)],
        },
        [
            ("box", [1, 2, 3, 4], label, "")
            for label in ("1 class 1", "2 class 2", "3 class 3", "4")
        ],
    ),
    ({"x": 1, "y": 2, "w": 3, "h": 4}, [("box", [1, 2, 3, 4], "", "xywh")]),
    ({"segmentation": [[1, 1, 9, 1, 5, 9]]}, [("polygon", [1, 1, 9, 1, 5, 9], "", "")]),
    ({"polygon": [[1, 1], [9, 1], [5, 9]]}, [("polygon", [1, 1, 9, 1, 5, 9], "", "")]),
    ({"keypoints": [4, 5, 2, 0, 0, 0, 7, 8, 1]}, [("points", [4, 5, 7, 8], "", "")]),
    ({"landmarks": [4, 5, 7, 8]}, [("points", [4, 5, 7, 8], "", "")]),
    ({"bbox": [1, 2, "3", 4], "box": [True, 1, 2, 3], "size": [1, 2, 3, 4]}, []),
    ({"bbox": [1, 2, 1e308, 4]}, []),
    ({"x1": 1, "y1": 2, "x2": 1e308, "y2": 4}, []),
    # Runs go down the columns: the end of the first, all of two, the beginning of the fourth.
    (
        {"category_id": 3, "segmentation": {"size": [4, 5], "counts": [2, 12, 6]}},
        [("mask", [0, 2, 1, 2, 1, 0, 2, 4, 3, 0, 1, 2], "3", "")],
    ),
    ({"rle": {"size": [2, 2], "counts": [0, 4]}}, [("mask", [0, 0, 2, 2], "", "")]),
    ({"rle": {"size": [2, 2], "counts": [4]}}, [("mask", [], "", "")]),
    # A sum that is not the size, a negative run, and strings that end within a number.
    ({"rle": {"size": [2, 2], "counts": [0, 5]}}, []),
    ({"rle": {"size": [2, 2], "counts": [5, -1]}}, []),
    ({"rle": {"size": [2, 2], "counts": "4P"}}, []),
    ({"rle": {"size": [2, 2], "counts": "PPPPPPPPPP4"}}, []),
    ({"rle": {"size": [2, 2], "counts": "\u20ac"}}, []),
    ({"rle": {"size": [65536, 1], "counts": [65536]}}, []),
    ({"rle": {"size": [2, 2], "counts": "04"}}, [("mask", [0, 0, 2, 2], "", "")]),
    # Columns of one pixel each, 40,000 numbers a mask: the thirteenth exceeds what is drawn.
    (
        [{"rle": {"size": [1, 20_000], "counts": [1] * 20_000}}] * 20,
        [("mask", [n for x in range(1, 20_000, 2) for n in (x, 0, 1, 1)], "", "")] * 13,
    ),
]
