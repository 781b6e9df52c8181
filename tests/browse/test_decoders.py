"""Decoder processes: hostile pictures do not delay others, and memory is bounded."""

import io
import math
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import numpy as np
import pytest
import urllib3
from helpers.browsing import Command
from helpers.pictures import draw, many_scans, progressive, save, slow_picture
from helpers.shards import write_shard
from helpers.specimens import npy, npz_bomb, png_bomb, specimens, tone
from helpers.waiting import eventually
from PIL import Image

from wids.browse.decoders import DecoderLimits, Decoders, Job
from wids.display.fieldview import view_field
from wids.display.thumbnails import thumbnail
from wids.errors import DecodeError

SMALL = save(draw(8, 8), "PNG")
PATIENCE_SECONDS = 600.0  # more than a slow picture takes on a busy machine
MOST_NBYTES = 700_000_000  # of all processes of the page


def drawn(decoders: Decoders, extension: str, data: bytes, size: int = 64) -> Job:
    """Begin to draw a field."""
    return decoders.begin(Job("thumbnail", extension, len(data), size=size), lambda: [data])


def described(decoders: Decoders, extension: str, data: bytes) -> Job:
    """Begin to describe a field."""
    return decoders.begin(Job("view", extension, len(data)), lambda: [data])


def progressive_noise(side: int) -> bytes:
    """Make a progressive JPEG of which all pixels are in memory before the first is drawn."""
    noise = Image.effect_noise((side, side), 50)
    image = Image.merge("RGB", [noise] * 3)
    return save(image, "JPEG", progressive=True, subsampling=0, quality=60)


def _children() -> set[int]:
    """List the processes that threads of this one started and that still run."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(child) for each in lists for child in each.read_text().split()}


def own_nbytes(process: int) -> int:
    """Return the private memory of a process; 0 once it has ended."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return int(next(each for each in lines if each.startswith("RssAnon")).split()[1]) << 10
    return 0


@pytest.fixture
def make() -> Iterator[Callable[..., Decoders]]:
    """Return a function that makes decoders with one quick process, and closes them."""
    made: list[Decoders] = []

    def make_one(**limits: Any) -> Decoders:
        limits = {"processes": 1, "deadline_seconds": PATIENCE_SECONDS, **limits}
        made.append(Decoders(DecoderLimits(**limits)))
        made[-1].start()
        return made[-1]

    yield make_one
    for decoders in made:
        decoders.close()


@pytest.fixture(scope="module")
def decoders() -> Iterator[Decoders]:
    decoders = Decoders(DecoderLimits(processes=1, deadline_seconds=PATIENCE_SECONDS))
    yield decoders
    decoders.close()


class Held:
    """A field whose bytes come once they may."""

    def __init__(self, nbytes: int) -> None:
        self._data = SMALL + bytes(nbytes - len(SMALL))
        self.is_asked_for, self.may_go = Event(), Event()
        self.job = Job("thumbnail", ".png", nbytes, size=64)

    def pieces(self) -> list[bytes]:
        self.is_asked_for.set()
        self.may_go.wait()
        return [self._data]


@pytest.mark.parametrize("extension", [".jpg", ".depth.png", ".mask.PNG", ".npy", ".wav", ".mp4"])
def test_a_decoder_draws_and_describes_as_this_process_does(
    decoders: Decoders, extension: str
) -> None:
    """A decoder process gives the same pictures and descriptions as a direct call."""
    data = specimens()[extension]
    found = drawn(decoders, extension, data).result.result()
    assert found == thumbnail(extension, data, size=64)
    view = described(decoders, extension, data).result.result()
    assert view == view_field(extension, data)


def test_a_broken_picture_is_an_error_and_the_next_is_drawn(decoders: Decoders) -> None:
    """After a damaged picture, the same processes draw the next one."""
    drawn(decoders, ".png", SMALL).result.result()
    before = _children()
    for data in (b"no picture", png_bomb()):
        with pytest.raises(DecodeError, match="no picture of"):
            drawn(decoders, ".png", data).result.result()
    assert before < _children()  # and the one that has tried it again
    before = _children()
    assert drawn(decoders, ".png", SMALL).result.result().width == 8
    assert _children() == before


def test_decoders_work_again_once_processes_can_be_started(
    make: Callable[..., Decoders], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a machine starts no process, each job has an error, and later ones are done."""

    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    decoders = make()
    decoders._quick[0].end()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                drawn(decoders, ".png", SMALL).result.result(PATIENCE_SECONDS)
    assert drawn(decoders, ".png", SMALL).result.result(PATIENCE_SECONDS).width == 8


def test_a_slow_picture_holds_up_no_other(make: Callable[..., Decoders]) -> None:
    """Pictures are drawn while a slow one is, which ends with its process."""
    decoders = make()
    slow = drawn(decoders, ".jpg", progressive(3000, 95))
    eventually(lambda: slow.is_left)
    for _ in range(3):
        assert drawn(decoders, ".png", SMALL).result.result().width == 8
    assert not slow.result.done()
    decoders.close()
    with pytest.raises(DecodeError, match="ended|server ends"):
        slow.result.result()
    with pytest.raises(DecodeError, match="server ends"):
        drawn(decoders, ".png", SMALL).result.result()


def test_a_slow_picture_ends_at_its_deadline(make: Callable[..., Decoders]) -> None:
    """A picture that takes longer than the deadline is an error, and the next one is drawn."""
    decoders = make(soon_seconds=0.01, deadline_seconds=0.1)
    # The other one where the machine is busy.
    with pytest.raises((DecodeError, TimeoutError), match=r"not decoded within 0\.1 s|timed out"):
        drawn(decoders, ".png", save(Image.new("RGB", (4000, 4000)), "PNG")).result.result()
    decoders.close()
    assert drawn(make(), ".png", SMALL).result.result().width == 8


def test_what_a_quick_process_could_not_decode_is_decoded_by_the_patient_one(
    make: Callable[..., Decoders],
) -> None:
    """A picture that takes too long, or a process that dies, costs another try and no picture."""
    decoders = make(soon_seconds=0.01)
    job = drawn(decoders, ".png", save(Image.effect_noise((900, 900), 50), "PNG"))
    assert job.result.result().width == 64
    decoders = make(nbytes=1 << 20)  # so that it dies at its first field
    assert drawn(decoders, ".npy", npy(draw(64, 48))).result.result().width == 64


def test_time_that_other_programs_use_does_not_count(make: Callable[..., Decoders]) -> None:
    """A picture whose process gets no processor for longer than its time is drawn by it later."""
    before = _children()
    decoders = make(soon_seconds=0.5)
    (child,) = _children() - before

    def pieces() -> list[bytes]:
        os.kill(child, signal.SIGSTOP)
        Timer(0.7, os.kill, [child, signal.SIGCONT]).start()
        return [SMALL]

    job = decoders.begin(Job("thumbnail", ".png", len(SMALL), size=64), pieces)
    assert job.result.result().width == 8
    assert _children() - before == {child}


def test_a_picture_whose_process_gets_no_time_is_no_broken_one(
    make: Callable[..., Decoders],
) -> None:
    """A process that gets no processor at all is given up for another one."""
    before = _children()
    decoders = make(soon_seconds=0.05, deadline_seconds=0.1)
    assert drawn(decoders, ".png", SMALL).result.result().width == 8
    for child in _children() - before:  # two, where the first one was already given up
        os.kill(child, signal.SIGSTOP)
    quick = drawn(decoders, ".png", SMALL)
    with suppress(TimeoutError):  # where the machine is busy now; never another error
        assert quick.result.result().width == 8


def test_descriptions_come_first_and_then_what_somebody_waits_for(
    make: Callable[..., Decoders],
) -> None:
    """Small pictures come before large ones, and last those that nobody asks for any more."""
    decoders, ends = make(), []
    held = Held(16 << 20)
    decoders.begin(held.job, held.pieces)
    held.is_asked_for.wait()
    large = npy(np.zeros((4000, 4000), np.uint8))
    names = ("left", "second", "first")
    jobs = {name: Job("thumbnail", ".npy", len(large), size=64) for name in names}
    for name, job in jobs.items():
        job.asked_at = -math.inf if name == "left" else math.inf  # however slow the machine is
    jobs["second"].cost += 1
    jobs["view"] = Job("view", ".npy", len(large))
    for name, job in jobs.items():
        job.result.add_done_callback(lambda _, name=name: ends.append(name))
        decoders.begin(job, lambda: [large])
    eventually(lambda: all(job.is_left for job in jobs.values()))
    held.may_go.set()
    for job in jobs.values():
        job.result.result()
    assert ends == ["view", "first", "second", "left"]


@pytest.mark.parametrize(
    ("extension", "data"),
    [
        (".jpg", progressive_noise(2850)),  # of which libjpeg says that the data is broken
        (".webp", save(Image.new("RGB", (1500, 1500)), "WEBP")),
        (".png", save(Image.new("RGB", (3000, 3000)), "PNG")),
        (".npy", npy(np.zeros((700, 900)))),
    ],
)
def test_what_takes_more_memory_than_a_quick_process_has_is_drawn(
    make: Callable[..., Decoders], extension: str, data: bytes
) -> None:
    """Whatever a library says when its memory ran out, the process with more memory draws it."""
    decoders = make(nbytes=30 << 20, soon_seconds=PATIENCE_SECONDS)
    assert drawn(decoders, extension, data).result.result().width == 64
    view = described(decoders, extension, data).result.result()
    assert view.error is None


@pytest.mark.parametrize(
    "kind",
    [
        "progressive JPEG",
        pytest.param("PNG", marks=pytest.mark.slow),
        pytest.param("16-bit PNG", marks=pytest.mark.slow),
        pytest.param("WebP", marks=pytest.mark.slow),
    ],
)
def test_the_largest_pictures_are_drawn_within_the_limits(decoders: Decoders, kind: str) -> None:
    """64 megapixels are drawn at 4096 pixels; what needs more memory yet says so."""
    extension, width = ".png", 4000
    if kind == "progressive JPEG":
        extension, data = ".jpg", progressive(8000, 0)
    elif kind == "PNG":
        width, data = 4096, save(Image.new("RGB", (8000, 8000)), "PNG")
    elif kind == "16-bit PNG":
        values = np.arange(8000, dtype=np.uint16).repeat(8000).reshape(8000, 8000)
        data = save(Image.fromarray(values), "PNG", compress_level=1)
    else:
        extension, data = ".webp", save(Image.new("RGB", (8000, 8000)), "WEBP", method=0)
    job = drawn(decoders, extension, data, 4096)
    if kind == "WebP":
        with pytest.raises(DecodeError, match="more memory"):
            job.result.result()
    else:
        assert job.result.result().width == width


def test_refusals_say_why(decoders: Decoders) -> None:
    """An image of 63,000,000 pixels in one row, or of 900 scans, is refused with the reason."""
    for extension, data, why in (
        (".png", png_bomb(63_000_000, 1), "65536"),
        (".jpg", many_scans(900), "scans"),
    ):
        with pytest.raises(DecodeError, match=why):
            drawn(decoders, extension, data).result.result()


def test_libraries_write_nothing_to_the_terminal(decoders: Decoders, capfd) -> None:
    """Messages of libmpg123 do not appear on the terminal."""
    damaged = b"ID3\x03\x00\x00\x00\x00\x00\x0a" + b"\xff\xfb\x90\x64" + tone()[:4000]
    described(decoders, ".mp3", damaged).result.result()
    with suppress(DecodeError):
        drawn(decoders, ".mp3", damaged).result.result()
    assert "mpg123" not in capfd.readouterr().err


def test_a_large_jpeg_is_turned_as_exif_says() -> None:
    """A JPEG that is decoded at a fraction of its size is turned, and has its colours."""
    image = Image.new("RGB", (8000, 5000), (200, 0, 0))
    image.paste((0, 0, 200), (4000, 0, 8000, 5000))
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a right angle, so that left is up
    drawn = thumbnail(".jpg", save(image, "JPEG", exif=exif), size=2000)
    shown = Image.open(io.BytesIO(drawn.data)).convert("RGB")
    assert shown.size == (drawn.width, drawn.height) == (1250, 2000)
    above, below = shown.getpixel((600, 100)), shown.getpixel((600, 1900))
    assert np.abs(np.subtract([above, below], [(200, 0, 0), (0, 0, 200)])).max() < 20


@pytest.mark.slow
def test_an_idle_decoder_keeps_no_memory_of_pictures(make: Callable[..., Decoders]) -> None:
    """The memory of pictures is given back to the system when they are drawn."""
    before = _children()
    decoders = make(soon_seconds=PATIENCE_SECONDS)
    for shape in ((1000, 1000), (2000, 2000), (3000, 2500)):
        data = save(Image.effect_noise(shape, 50).convert("RGB"), "PNG")
        drawn(decoders, ".png", data, 1280).result.result()
    assert max(map(own_nbytes, _children() - before)) < 45 << 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Serve pictures that take long or much memory, and one that does not."""
    folder = tmp_path_factory.mktemp("slow")
    samples = [
        {"__key__": "slow", ".jpg": progressive(4000, 900)},
        {"__key__": "fine", ".jpg": save(draw(64, 48), "JPEG")},
        {"__key__": "wide", ".png": png_bomb(63_000_000, 1)},
        {"__key__": "arrays", ".npz": npz_bomb()},
        *(
            {"__key__": f"large{number}", ".png": save(Image.new(mode, (8000, 8000)), "PNG")}
            for number, mode in enumerate(["RGB", "RGBA"])
        ),
        *({"__key__": f"hostile{number}", ".jpg": slow_picture()} for number in range(10)),
    ]
    with Command(write_shard(folder / "a.tar", samples), folder) as server:
        yield server


@pytest.mark.slow
def test_all_bombs_at_once_stay_within_the_memory_and_delay_no_other(served: Command) -> None:
    """While every bomb is asked for, other pictures are drawn, and all processes stay small."""
    first = served.get("api/sample", i=0)  # begins to describe and to draw it
    processes = {served.process.pid}
    most, ends = 0, []

    def fetch(index: int, soon: int) -> None:
        answer = served.get("thumb", i=index, f=0, s=96, soon=soon)
        ends.append((index, answer.headers["Content-Type"], len(answer.content)))

    threads = [Thread(target=fetch, args=[index, 1]) for index in range(2, 16)]
    threads += [Thread(target=fetch, args=[index, ""]) for index in (4, 5)]  # "": waits for it
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        answer = served.get("thumb", i=1, f=0, s=144, soon=1)
        assert answer.headers["Content-Type"].startswith("image/")
        for path in Path(f"/proc/{served.process.pid}/task").glob("*/children"):
            with suppress(OSError):
                processes |= {int(each) for each in path.read_text().split()}
        most = max(most, sum(map(own_nbytes, processes)))
    assert served.get("thumb", i=1, f=0, s=144).headers["Content-Type"] == "image/png"
    assert most < MOST_NBYTES
    kinds = {index: kind for index, kind, _ in ends[-2:]}
    assert set(kinds) == {4, 5}  # after which the placeholders of all others had come
    assert set(kinds.values()) <= {"image/png", "image/jpeg"}
    assert first.ok
    assert own_nbytes(served.process.pid) < 250 << 20


def test_a_field_that_is_cut_while_it_is_read_ends_nothing(tmp_path: Path) -> None:
    """A shard that is truncated during a download ends only that download."""
    path = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".bin": bytes(64 << 20)}])
    with Command(path, tmp_path) as server:
        with server.get("raw", i=0, f=0, stream=True) as answer:
            answer.raw.read(1000)
            os.truncate(path, 4096)
            received = 0
            with suppress(urllib3.exceptions.HTTPError):
                received = sum(len(piece) for piece in answer.raw.stream(1 << 20))
            assert received < 64 << 20
        assert server.get("api/dataset").status_code == 200
