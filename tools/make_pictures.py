"""Make the pictures of the page in the documents: docs/browsing*.jpg, docs/finding-mistakes*.jpg.

The page shows crops of the photographs of the benchmarks, with a class, a caption and boxes each.
Some crops have a wrong class and one shard has almost one class alone, so that there is something
to find. Chromium, as for the tests of the page, takes the pictures.

    python tools/make_pictures.py
"""

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import wids

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]
import data  # noqa: E402
from helpers.chromium import wait_until  # noqa: E402

CLASSES = ["portrait", "cat", "coffee", "tissue", "rocket", "retina", "motorcycle", "galaxies"]
PHOTOS = [  # of the classes, in the same order
    *("astronaut.png", "chelsea.png", "coffee.png", "ihc.png", "rocket.jpg", "retina.jpg"),
    *("motorcycle_left.png", "hubble_deep_field.jpg"),
]
SHARES = [0.2, 0.2, 0.16, 0.12, 0.12, 0.1, 0.06, 0.04]
CAPTIONS = {
    "portrait": "an astronaut in an orange suit",
    "cat": "a tabby cat that looks at something",
    "coffee": "a cup of coffee on a red saucer",
    "rocket": "a rocket between its towers at dusk",
    "motorcycle": "a red motorcycle in a garage",
}
# Boxes of what is seen in the photographs: name, left, top, width, height.
BOXES = {
    "portrait": [
        ("face", 175, 65, 110, 140), ("helmet", 282, 343, 215, 169), ("badge", 136, 348, 75, 76),
    ],
    "cat": [("eye", 136, 84, 55, 65), ("eye", 296, 110, 43, 52), ("nose", 234, 220, 58, 47)],
    "coffee": [("cup", 173, 19, 245, 287), ("spoon", 324, 214, 99, 111)],
    "motorcycle": [("wheel", 121, 235, 160, 165), ("wheel", 513, 281, 170, 169)],
    "rocket": [("rocket", 309, 124, 29, 286)],
}  # fmt: skip
NUM_SHARDS, SHARD_SAMPLES = 6, 400
ODD_SHARD, ODD_CLASS = 4, 3
QUALITY = 80


def sample_of(photos: list[Image.Image], rng: np.random.Generator, number: int, shard: int) -> Any:
    """Cut a crop out of one of the photographs, with what is known of it."""
    label = ODD_CLASS if shard == ODD_SHARD else int(rng.choice(len(CLASSES), p=SHARES))
    name, photo = CLASSES[label], photos[label]
    width, height = (int(side * rng.uniform(0.6, 1)) for side in photo.size)
    left, top = (
        int(rng.integers(a - b + 1)) for a, b in zip(photo.size, (width, height), strict=True)
    )
    stream = io.BytesIO()
    crop = photo.crop((left, top, left + width, top + height))
    crop.thumbnail((720, 720))
    crop.save(stream, "JPEG", quality=88)
    scale = crop.width / width
    boxes = [
        {"label": what, "bbox": [round(scale * each) for each in (x - left, y - top, w, h)]}
        for what, x, y, w, h in BOXES.get(name, [])
        if left <= x and top <= y and x + w <= left + width and y + h <= top + height
    ]
    is_wrong = rng.random() < 0.02
    sample = {
        "__key__": f"{name}/{number:06d}",
        ".jpg": stream.getvalue(),
        ".cls": int(rng.integers(len(CLASSES))) if is_wrong else label,
        # As plain an embedding as there is: the colours of 6 x 6 parts.
        ".colours.npy": np.asarray(crop.resize((6, 6)), np.float32).ravel() / 255,
        ".json": {"sharpness": round(float(rng.beta(6, 2)), 3), "objects": boxes},
    }
    return sample | ({".txt": CAPTIONS[name]} if name in CAPTIONS else {})


def make_dataset(folder: Path) -> Path:
    """Write the shards and the spec."""
    named = dict(zip(data.PHOTOS, data.photos(), strict=True))
    photos = [named[name] for name in PHOTOS]
    rng = np.random.default_rng(7)
    rows = []
    for shard in range(NUM_SHARDS):
        path = folder / f"photographs-{shard}.tar"
        with wids.TarWriter(str(path)) as writer:
            for place in range(SHARD_SAMPLES):
                writer.write(sample_of(photos, rng, shard * SHARD_SAMPLES + place, shard))
        rows.append({"url": path.name, "nsamples": SHARD_SAMPLES, "filesize": path.stat().st_size})
    spec = {"wids_version": 1, "name": "photographs", "class_names": CLASSES, "shardlist": rows}
    (folder / "photographs.json").write_text(json.dumps(spec))
    return folder / "photographs.json"


@contextmanager
def served(spec: Path) -> Iterator[str]:
    """Serve the page in a process of its own; return its URL."""
    command = [
        sys.executable,
        "-m",
        "wids",
        "browse",
        spec.name,
        "--json",
        "--port",
        "0",
        "--no-token",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=spec.parent) as process:
        try:
            yield json.loads(process.stdout.readline())["url"] if process.stdout else ""
        finally:
            process.terminate()


def take(page: Any, name: str) -> None:
    """Save what is seen as a JPEG among the documents."""
    wait_until(page, "!document.querySelector('progress')")
    seen = "image.getBoundingClientRect().top < innerHeight"
    drawn = "image.complete && image.naturalWidth"
    wait_until(page, f"[...document.images].every((image) => !({seen}) || ({drawn}))")
    page.wait_for_timeout(1500)
    shot = Image.open(io.BytesIO(page.screenshot()))
    path = ROOT / "docs" / name
    shot.convert("RGB").save(path, "JPEG", quality=QUALITY, optimize=True)
    print(path.relative_to(ROOT), *shot.size, path.stat().st_size)


def place_of_mistake(page: Any) -> tuple[float, float]:
    """Return where on the screen a cat is drawn that has the class of the coffees."""
    found = page.evaluate("fetch('api/map?colour=cls').then((answer) => answer.json())")
    tiles = page.evaluate("fetch('api/page?cls=coffee&count=240').then((answer) => answer.json())")[
        "tiles"
    ]
    wrong = next(tile["index"] for tile in tiles if tile["key"].startswith("cat/"))
    places = np.array(found["places"]).reshape(-1, 2)
    # As the page fits its points into the canvas.
    far = len(places) // 200
    ends = np.sort(places, axis=0)[[far, -1 - far]]
    left, top, width, height = page.locator("canvas").bounding_box().values()
    unit = min(width, height) / (1.12 * float(np.ptp(ends, axis=0).max()))
    x, y = places[found["indexes"].index(wrong)] - ends.mean(axis=0)
    return left + width / 2 + unit * x, top + height / 2 - unit * y


def main() -> None:
    """Make the dataset, and the pictures."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        spec = make_dataset(Path(folder))
        path = next(
            filter(Path.exists, map(Path, ("/usr/bin/chromium", "/usr/bin/chromium-browser")))
        )
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with served(spec) as url:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.add_init_script("localStorage.setItem('wids-facets', 'on')")
            page.goto(f"{url}?cls=cat,coffee&where=json.sharpness+>=+0.5")
            page.locator(".histogram").first.wait_for()
            for number in (1, 6):
                page.locator(".mark").nth(number).click()
            page.mouse.move(0, 0)
            take(page, "browsing.jpg")
            page.goto(f"{url}?cls=cat&where=json.objects[3].label+=+'nose'&p=3")
            page.locator(".layer rect").first.wait_for(state="attached")
            take(page, "browsing-sample.jpg")
            page.evaluate("localStorage.clear()")
            page.set_viewport_size({"width": 1120, "height": 600})
            page.goto(f"{url}?cls=galaxies&size=s")
            page.locator(".histogram").first.wait_for()
            for mistake in page.locator(".tile:not([title^=galaxies])").all():
                mistake.locator("xpath=..").locator(".mark").click()
            page.mouse.move(0, 0)
            take(page, "finding-mistakes.jpg")
            page.set_viewport_size({"width": 1280, "height": 800})
            page.goto(f"{url}?view=dataset")
            page.locator(".dataset .bars").first.wait_for()
            take(page, "browsing-dataset.jpg")
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(f"{url}?look=map")
            page.get_by_role("button", name="portrait").wait_for()
            left, top, width, height = page.locator("canvas").bounding_box().values()
            page.mouse.move(left + 0.4 * width, top + 0.2 * height)
            page.keyboard.down("Shift")
            page.mouse.down()
            page.mouse.move(left + 0.6 * width, top + 0.43 * height, steps=5)
            page.mouse.up()
            page.keyboard.up("Shift")
            page.locator("canvas").focus()
            page.keyboard.press("ArrowRight")
            page.locator(".map-card img").wait_for()
            take(page, "browsing-map.jpg")
            page.set_viewport_size({"width": 1120, "height": 640})
            page.goto(f"{url}?look=map")
            page.get_by_role("button", name="portrait").wait_for()
            page.mouse.move(*place_of_mistake(page))
            page.locator(".map-card img").wait_for()
            take(page, "finding-mistakes-map.jpg")
        browser.close()


if __name__ == "__main__":
    main()
