"""The page in a real browser, where pictures or shards are slow to come."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.browsing import browsing
from helpers.chromium import wait_until
from helpers.pictures import draw, save, slow_picture
from helpers.shards import write_shard

Open = Callable[..., Any]


def test_a_slow_picture_takes_its_place_later(tmp_path: Path, open_page: Open) -> None:
    """Pictures behind slow ones are shown first; the slow ones follow by themselves."""
    fine = save(draw(64, 48), "JPEG")
    samples = [
        {"__key__": f"{n}", ".jpg": slow_picture() if n < 2 else fine, ".cls": f"{n}"}
        for n in range(12)
    ]
    path = write_shard(tmp_path / "a.tar", samples)
    with browsing([str(path)]) as server:
        page = open_page(server.url)
        page.evaluate("""() => {
            window.order = [];
            document.addEventListener("load", (event) => {
                const tile = event.target.closest?.("[data-position]");
                if (!tile || event.target.naturalWidth <= 3) return;
                order.push(Number(tile.dataset.position));
            }, true);
        }""")
        wait_until(
            page,
            "[...document.querySelectorAll('.tile img')].filter(each => each.naturalWidth > 3)"
            ".length === 12",
        )
        assert set(page.evaluate("order")[-2:]) <= {0, 1}
