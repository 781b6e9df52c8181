"""Decoder processes: hostile pictures do not delay others, and memory is bounded."""

import io
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import numpy as np
import pytest
import requests
import urllib3
from helpers.browsing import Command, browsing
from helpers.pictures import draw, progressive, save, slow_picture
from helpers.shards import write_shard
from helpers.specimens import npy, png_bomb, specimens, tone
from PIL import Image

import wids
from wids.browse.decoders import DecoderLimits, Decoders, Lane, NoMemoryError, TookLongError, Turns
from wids.browse.fieldreader import FieldReader
from wids.browse.samplepages import FieldViews
from wids.browse.thumbnailpool import Thumbnails
from wids.display.fieldview import view_field
from wids.display.thumbnails import Thumbnail, thumbnail
from wids.errors import DecodeError

needs_processor_time = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="no other system tells it"
)
PATIENCE_SECONDS = 600.0  # more than a slow picture takes on a busy machine
ONE_OF_EACH = DecoderLimits(
    processes=1,
    slow_processes=1,
    soon_seconds=0.05,
    deadline_seconds=PATIENCE_SECONDS,
    nbytes=1 << 30,
)


def draw_with(decoders: Decoders, extension: str, data: bytes, **options: Any) -> Thumbnail:
    return decoders.thumbnail(extension, len(data), lambda: [data], size=64, **options)


def _children() -> set[int]:
    """List the processes that threads of this one started and that still run."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(child) for each in lists for child in each.read_text().split()}


class _Noting(Decoders):
    """Decoders that note the lane of each attempt."""

    def __init__(self, limits: DecoderLimits) -> None:
        super().__init__(limits)
        self.lanes: list[str] = []
        self.may_draw = Event()
        self.may_draw.set()

    def thumbnail(self, *args: Any, lane: Lane = "regular", **options: Any) -> Thumbnail:
        """Note the lane, and draw once that is allowed."""
        self.lanes.append(lane)
        self.may_draw.wait()
        return super().thumbnail(*args, lane=lane, **options)


@pytest.fixture
def decoders() -> Iterator[Decoders]:
    decoders = Decoders(DecoderLimits(processes=1, slow_processes=1, soon_seconds=0.5))
    yield decoders
    decoders.close()


@pytest.mark.parametrize("extension", [".jpg", ".depth.png", ".mask.PNG", ".npy", ".wav", ".mp4"])
def test_a_decoder_draws_and_describes_as_this_process_does(
    decoders: Decoders, extension: str
) -> None:
    """A decoder process gives the same pictures and descriptions as a direct call."""
    data = specimens()[extension]
    assert draw_with(decoders, extension, data) == thumbnail(extension, data, size=64)
    assert decoders.view(extension, len(data), lambda: [data]) == view_field(extension, data)


def test_a_broken_picture_is_an_error_and_the_next_is_drawn(decoders: Decoders) -> None:
    """After a damaged picture, the same process draws the next one."""
    for data in (b"no picture", png_bomb()):
        with pytest.raises(DecodeError, match="no picture of"):
            draw_with(decoders, ".png", data)
    assert draw_with(decoders, ".png", save(draw(64, 48), "PNG")).width == 64


def test_a_slow_picture_holds_up_no_other() -> None:
    """With one process, another picture is drawn while a slow one is decoded."""
    limits = DecoderLimits(processes=1, deadline_seconds=PATIENCE_SECONDS, nbytes=1 << 30)
    decoders = Decoders(limits)
    slow, sent, ends = slow_picture(), Event(), []

    def pieces() -> list[bytes]:
        sent.set()
        return [slow]

    def draw_slow() -> None:
        # It ends with its process, however long it would take.
        with pytest.raises(DecodeError, match="ended without an answer"):
            decoders.thumbnail(".jpg", len(slow), pieces, size=64)
        ends.append("slow")

    thread = Thread(target=draw_slow)
    thread.start()
    sent.wait()
    assert draw_with(decoders, ".png", save(draw(64, 48), "PNG")).width == 64
    ends.append("other")
    decoders.close()
    thread.join()
    assert ends == ["other", "slow"]


def test_a_slow_picture_ends_at_its_deadline() -> None:
    """A picture that takes longer than the deadline is an error."""
    limits = DecoderLimits(processes=1, soon_seconds=0.01, deadline_seconds=0.1, nbytes=1 << 30)
    decoders = Decoders(limits)
    with pytest.raises(DecodeError, match=r"not decoded within 0\.1 s"):
        draw_with(decoders, ".jpg", slow_picture())
    decoders.close()


@needs_processor_time
def test_time_that_other_programs_use_does_not_count() -> None:
    """A picture whose process gets no processor for longer than the deadline is drawn later."""
    before = _children()
    decoders = Decoders(DecoderLimits(processes=1, soon_seconds=1.0, deadline_seconds=1.0))
    small = save(draw(8, 8), "PNG")

    def pieces() -> list[bytes]:
        (child,) = _children() - before
        os.kill(child, signal.SIGSTOP)
        Timer(1.3, os.kill, [child, signal.SIGCONT]).start()
        return [small]

    assert decoders.thumbnail(".png", len(small), pieces, size=64).width == 8
    decoders.close()


@needs_processor_time
def test_a_picture_whose_process_gets_no_time_is_drawn_by_another(tmp_path: Path) -> None:
    """A process that gets no processor at all is given up, and the picture is not taken for bad."""
    before = _children()
    decoders = Decoders(DecoderLimits(processes=1, soon_seconds=0.5, deadline_seconds=0.5))
    small = save(draw(8, 8), "PNG")
    draw_with(decoders, ".png", small)
    (child,) = _children() - before
    os.kill(child, signal.SIGSTOP)
    with wids.ShardListDataset(
        [write_shard(tmp_path / "a.tar", [{"__key__": "a", ".png": small}])]
    ) as dataset:
        reader = FieldReader(dataset)
        thumbnails = Thumbnails(reader, decoders)
        drawing = thumbnails.get(reader.locate(0), 0, 96)
        assert drawing.picture.result(PATIENCE_SECONDS).width == 8
        thumbnails.close()
    decoders.close()


def test_pictures_that_somebody_waits_for_come_first(tmp_path: Path) -> None:
    """A slow picture that is still asked for is drawn before older ones that nobody asks for."""
    names = ["first", "left", "shown"]
    large = save(Image.new("1", (7000, 7000)), "PNG")
    samples = [{"__key__": name, ".png": large} for name in names]
    ends: list[str] = []
    decoders = _Noting(ONE_OF_EACH)
    decoders.may_draw.clear()
    with wids.ShardListDataset([write_shard(tmp_path / "a.tar", samples)]) as dataset:
        reader = FieldReader(dataset)
        thumbnails = Thumbnails(reader, decoders)
        drawings = []
        for index, name in enumerate(names):
            drawing = thumbnails.get(reader.locate(index), 0, 96)
            drawing.picture.add_done_callback(lambda _, name=name: ends.append(name))
            drawing.soon.result(PATIENCE_SECONDS)  # it waits in the slow lane
            drawings.append(drawing)
            while not decoders.lanes:
                pass
        drawings[1].wanted_until = 0.0
        decoders.may_draw.set()
        wait([drawing.picture for drawing in drawings], PATIENCE_SECONDS)
        thumbnails.close()
    decoders.close()
    assert ends == ["first", "shown", "left"]


def test_only_so_many_pictures_may_be_slow() -> None:
    """The number of slow pictures is bounded; further ones fail and may be requested again."""
    limits = DecoderLimits(
        processes=1, slow_processes=0, soon_seconds=0.01, large_nbytes=1 << 30, nbytes=1 << 30
    )
    decoders = Decoders(limits)
    with pytest.raises(TookLongError, match="reload"):
        draw_with(decoders, ".jpg", slow_picture())
    decoders.close()


def test_a_slow_picture_that_had_no_room_is_drawn_in_the_slow_lane() -> None:
    """The slow lane draws what the regular lane gave up, and the regular lane goes on meanwhile."""
    decoders = Decoders(ONE_OF_EACH)
    slow, ends, goes_on = slow_picture(), [], Event()

    def draw_slow(**options: Any) -> None:
        assert draw_with(decoders, ".jpg", slow, **options).width == 64
        ends.append("slow")

    first = Thread(target=draw_slow, kwargs={"on_slow": goes_on.set})
    first.start()
    goes_on.wait()
    with pytest.raises(TookLongError):
        draw_with(decoders, ".jpg", slow)
    second = Thread(target=draw_slow, kwargs={"lane": "slow"})
    second.start()
    for _ in range(10):
        drawn = None
        while drawn is None:  # on a busy machine, any picture may take long
            with suppress(TookLongError):
                drawn = draw_with(decoders, ".png", save(draw(8, 8), "PNG"))
        assert drawn.width == 8
    ends.append("others")
    for thread in (first, second):
        thread.join()
    decoders.close()
    assert ends[-1] == "slow"


def test_turns_go_to_those_who_wait_in_their_order() -> None:
    """A turn that is given back goes to who waits longest, not to who asks next."""
    turns, order = Turns(1), []
    turns.acquire()

    def wait_for(name: str) -> None:
        turns.acquire()
        order.append(name)

    for number, name in enumerate(["first", "second"], start=1):
        Thread(target=wait_for, args=[name], daemon=True).start()
        while turns.num_waiting < number:
            pass
    assert not turns.acquire(timeout=0.001)
    for number in (1, 2):
        turns.release()
        assert not turns.acquire(timeout=0)
        while len(order) < number:
            pass
    turns.release()
    assert turns.acquire(timeout=0)
    assert order == ["first", "second"]


def test_memory_goes_to_those_who_wait_in_their_order() -> None:
    """Who waits for much memory is not passed by those who ask for little that would be free."""
    room = Turns(10)
    room.acquire(4)
    much = room.ask(8)
    assert not much.is_set()
    assert not room.acquire(1, timeout=0)
    room.release(4)
    assert much.is_set()
    assert room.acquire(2, timeout=0)
    assert not room.acquire(1, timeout=0)


def test_who_no_longer_waits_for_memory_is_in_nobodys_way() -> None:
    """After one who gave up waiting for much memory, the next gets the little that is free."""
    room = Turns(10)
    room.acquire(4)
    assert not room.acquire(8, timeout=0.001)
    assert room.acquire(6, timeout=0)


def test_a_request_that_cannot_wait_is_answered_while_no_decoder_is_free(path: Path) -> None:
    """Without a free decoder, a request with `soon` gets the placeholder of pictures to come."""
    with browsing([path], limits=DecoderLimits(processes=0)) as server:
        query = {"i": 1, "f": 0, "s": 96, "soon": 1}
        answer = server.session.get(f"{server.url}thumb", params=query, timeout=60)
        assert b'width="3" height="2"' in answer.content


def test_the_process_with_more_memory_takes_the_place_of_a_slow_one() -> None:
    """While a slow picture is drawn, one that needs much memory waits, so that not all add up."""
    decoders = Decoders(ONE_OF_EACH)
    ends, goes_on = [], Event()

    def draw_slow() -> None:
        draw_with(decoders, ".jpg", slow_picture(), on_slow=goes_on.set)
        ends.append("slow")

    slow = Thread(target=draw_slow)
    slow.start()
    goes_on.wait()
    assert draw_with(decoders, ".png", save(draw(8, 8), "PNG"), lane="large").width == 8
    ends.append("large")
    slow.join()
    decoders.close()
    assert ends == ["slow", "large"]


def test_what_needs_much_memory_has_one_process_that_may_take_it() -> None:
    """A picture of 36 megapixels is drawn by the process with more memory."""
    decoders = Decoders(replace(ONE_OF_EACH, nbytes=128 << 20))
    data = save(Image.new("RGB", (6000, 6000)), "PNG")
    with pytest.raises(NoMemoryError, match="128 MiB"):
        draw_with(decoders, ".png", data)
    assert draw_with(decoders, ".png", data, lane="large").width == 64
    large = progressive(4600, 0)
    with pytest.raises(NoMemoryError):
        draw_with(decoders, ".jpg", large)
    assert draw_with(decoders, ".jpg", large, lane="large").width == 64
    with pytest.raises(DecodeError, match="truncated"):
        draw_with(decoders, ".jpg", large[:5000], lane="large")
    decoders.close()


@pytest.mark.parametrize(
    ("kind", "most_mib"), [("progressive JPEG", 600), ("PNG", 400), ("16-bit PNG", 400)]
)
def test_the_largest_pictures_take_little_more_than_their_pixels(kind: str, most_mib: int) -> None:
    """64 megapixels are drawn at 4096 without a second copy of them, or of what is picked."""
    extension, data = ".jpg", b""
    if kind == "PNG":
        extension, data = ".png", save(Image.new("RGB", (8000, 8000)), "PNG")
    if kind == "16-bit PNG":
        values = np.arange(8000, dtype=np.uint16).repeat(8000).reshape(8000, 8000)
        extension, data = ".png", save(Image.fromarray(values), "PNG", compress_level=1)
    limits = replace(ONE_OF_EACH, large_nbytes=most_mib << 20)
    decoders = Decoders(limits)
    data = data or progressive(8000, 0)
    drawn = decoders.thumbnail(extension, len(data), lambda: [data], size=4096, lane="large")
    decoders.close()
    expected = {"PNG": ("image/jpeg", 4096), "16-bit PNG": ("image/png", 4000)}
    assert (drawn.media_type, drawn.width) == expected.get(kind, ("image/jpeg", 4000))


def test_the_largest_progressive_jpeg_is_drawn_within_the_limits_of_the_server() -> None:
    """A progressive JPEG of 64 megapixels, which takes most memory of all, has enough of it."""
    decoders = Decoders(replace(DecoderLimits(), deadline_seconds=PATIENCE_SECONDS))
    data = progressive(8000, 0)
    drawn = decoders.thumbnail(".jpg", len(data), lambda: [data], size=4096, lane="large")
    decoders.close()
    assert drawn.width == 4000


def test_a_webp_that_needs_too_much_memory_is_refused_for_that() -> None:
    """What libwebp says where memory is exhausted is reported as the lack of memory that it is."""
    decoders = Decoders(replace(DecoderLimits(), deadline_seconds=PATIENCE_SECONDS))
    data = save(Image.new("RGB", (8000, 8000)), "WEBP", method=0)
    with pytest.raises(NoMemoryError, match="456 MiB"):
        draw_with(decoders, ".webp", data, lane="large")
    decoders.close()


def test_no_slow_process_keeps_memory_while_the_large_one_works() -> None:
    """The process with more memory waits for all slow ones, and idle ones end before it starts."""
    before, seen = _children(), []
    decoders = Decoders(replace(ONE_OF_EACH, slow_processes=2))
    ends, goes_on = [], Event()
    small = save(draw(8, 8), "PNG")

    def draw_slow() -> None:
        draw_with(decoders, ".jpg", slow_picture(), on_slow=goes_on.set)
        ends.append("slow")

    def pieces() -> list[bytes]:
        seen.append(_children() - before)
        return [small]

    slow = Thread(target=draw_slow)
    slow.start()
    goes_on.wait()
    decoders.thumbnail(".png", len(small), pieces, size=64, lane="large")
    ends.append("large")
    slow.join()
    decoders.close()
    assert ends == ["slow", "large"]
    assert [len(processes) for processes in seen] == [1]


class _Held:
    """A field that is sent to its decoder once it may be."""

    def __init__(self) -> None:
        self.data = save(draw(8, 8), "PNG")
        self.is_asked_for, self.may_go = Event(), Event()

    def draw_with(self, decoders: Decoders, **options: Any) -> Thread:
        """Begin to draw it, and return the thread once its decoder waits for it."""
        options = {"size": 64} | options
        thread = Thread(
            target=decoders.thumbnail, args=(".png", len(self.data), self._pieces), kwargs=options
        )
        thread.start()
        return thread

    def _pieces(self) -> list[bytes]:
        self.is_asked_for.set()
        self.may_go.wait()
        return [self.data]


def _limits_of(processes: set[int]) -> list[int]:
    """Return the memory limits of decoder processes, by their command lines."""
    commands = [Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0") for each in processes]
    return sorted(int(command[-2]) >> 20 for command in commands if command[0])


def test_all_processes_together_keep_within_one_bound() -> None:
    """Regular, slow and large processes, idle ones among them, add up to the bound at most."""
    before = _children()
    decoders = Decoders(DecoderLimits(processes=3, nbytes=64 << 20, large_nbytes=256 << 20))
    assert decoders.limits.total_nbytes == 320 << 20
    first, second = _Held(), _Held()
    threads = [each.draw_with(decoders) for each in (first, second)]
    for each in (first, second):
        each.is_asked_for.wait()
        each.may_go.set()
    for thread in threads:
        thread.join()
    assert _limits_of(_children() - before) == [64, 64]
    half, whole = _Held(), _Held()
    threads = [half.draw_with(decoders, lane="large", limit=128 << 20)]
    half.is_asked_for.wait()
    assert _limits_of(_children() - before) == [64, 64, 128]
    threads.append(whole.draw_with(decoders, lane="large"))
    half.may_go.set()
    whole.is_asked_for.wait()
    assert _limits_of(_children() - before) == [64, 256]
    for _ in range(9):
        assert draw_with(decoders, ".png", half.data).width == 8
    assert _limits_of(_children() - before) == [64, 256]
    whole.may_go.set()
    for thread in threads:
        thread.join()
    decoders.close()


def test_small_pictures_do_not_take_the_memory_that_a_large_one_waits_for() -> None:
    """A picture that waits for the whole room is drawn though small ones come without end."""
    decoders = Decoders(DecoderLimits(processes=2, soon_seconds=PATIENCE_SECONDS))
    held, large = [_Held(), _Held()], _Held()
    threads = [each.draw_with(decoders) for each in held]
    for each in held:
        each.is_asked_for.wait()
    threads.append(large.draw_with(decoders, lane="large"))
    large.may_go.set()
    assert not large.is_asked_for.wait(0.2)
    waiting = [_Held() for _ in range(4)]
    threads += [each.draw_with(decoders) for each in waiting]
    for each in held:
        each.may_go.set()
    assert large.is_asked_for.wait(PATIENCE_SECONDS)
    for each in waiting:
        each.may_go.set()
    for thread in threads:
        thread.join()
    decoders.close()


def test_large_fields_hold_up_no_description(tmp_path: Path) -> None:
    """A picture is described while more fields than there are threads wait for memory."""
    limits = DecoderLimits(processes=1, nbytes=48 << 20, soon_seconds=PATIENCE_SECONDS)
    large = {f".{n}.npy": npy(np.zeros((3000, 3000), np.uint8)) for n in range(12)}
    fields = {**large, ".png": save(draw(8, 8), "PNG")}
    decoders, held = Decoders(limits), _Held()
    thread = held.draw_with(decoders, lane="large")
    held.is_asked_for.wait()
    path = write_shard(tmp_path / "a.tar", [{"__key__": "a", **fields}])
    with wids.ShardListDataset([path]) as dataset:
        reader = FieldReader(dataset)
        located = reader.locate(0)
        views = FieldViews(reader, decoders, {}, 1.0)  # after which all large ones wait
        assert views.views(located, range(12)) == [None] * 12
        (number,) = [n for n, each in enumerate(located.fields) if each.extension == ".png"]
        patient = FieldViews(reader, decoders, {}, PATIENCE_SECONDS)
        found = (views.views(located, [number])[0] for _ in range(60))
        assert next(each.kind for each in found if each is not None) == "image"
        held.may_go.set()
        thread.join()
        assert [each and each.kind for each in patient.views(located, range(12))] == ["array"] * 12
        for each in (views, patient):
            each.close()
    decoders.close()


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


def test_an_idle_decoder_keeps_no_memory_of_pictures() -> None:
    """The memory of pictures is given back to the system when they are drawn."""
    before = _children()
    decoders = Decoders(replace(ONE_OF_EACH, soon_seconds=PATIENCE_SECONDS))
    for shape in ((1000, 1000), (2000, 2000), (4000, 3000)):
        data = save(Image.effect_noise(shape, 50).convert("RGB"), "PNG")
        decoders.thumbnail(".png", len(data), lambda data=data: [data], size=1280)
    (child,) = _children() - before
    status = Path(f"/proc/{child}/status").read_text()
    decoders.close()
    kept = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    assert int(kept.split()[1]) < 45 << 10


def test_what_needs_much_memory_fills_no_other_process(tmp_path: Path) -> None:
    """A picture is sent at once to the lane that its header asks for, and is drawn there."""
    pictures = {
        "large": {".png": save(Image.new("RGBA", (5600, 5600)), "PNG")},
        " large": {".jpg": progressive(5600, 0)},
        "large ": {".webp": save(Image.new("RGB", (4000, 3400)), "WEBP")},
        "regular": {".png": save(draw(64, 48), "PNG")},
        "regular refused": {".png": png_bomb()},
        "regular refused for its side": {".png": png_bomb(63_000_000, 1)},
        "slow": {".jpg": save(Image.new("L", (7000, 7000)), "JPEG")},
        " large ": {".npy": npy(np.zeros((6000, 6000), np.uint8))},
    }
    samples = [{"__key__": str(n), **fields} for n, fields in enumerate(pictures.values())]
    decoders = _Noting(replace(ONE_OF_EACH, soon_seconds=PATIENCE_SECONDS, nbytes=192 << 20))
    with wids.ShardListDataset([write_shard(tmp_path / "a.tar", samples)]) as dataset:
        reader = FieldReader(dataset)
        thumbnails = Thumbnails(reader, decoders)
        for index, key in enumerate(pictures):
            drawing = thumbnails.get(reader.locate(index), 0, 96)
            error = drawing.picture.exception(PATIENCE_SECONDS)
            lane, *refused = key.split()
            assert (error is not None) == bool(refused), error
            assert decoders.lanes[0] == lane
            assert refused or len(decoders.lanes) == 1
            decoders.lanes.clear()
        thumbnails.close()
    decoders.close()


def test_a_decoder_that_ends_is_an_error_of_its_field(decoders: Decoders) -> None:
    """A decoder that dies is an error of its field, and the next one gets a new process."""
    data = npy(draw(64, 48))
    small = Decoders(DecoderLimits(processes=1, nbytes=1 << 20, large_nbytes=1 << 20))
    with pytest.raises(DecodeError):
        draw_with(small, ".npy", data)
    small.close()
    assert draw_with(decoders, ".npy", data).width == 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write pictures of all kinds; returns the shard."""
    folder = tmp_path_factory.mktemp("slow")
    samples = [
        {"__key__": "slow", ".jpg": progressive(4000, 900)},
        {"__key__": "fine", ".jpg": save(draw(64, 48), "JPEG"), ".bad.mp3": b"\xff\xfb" * 999},
        *(
            {"__key__": f"large{number}", ".png": save(Image.new(mode, (8000, 8000)), "PNG")}
            for number, mode in enumerate(["RGB", "RGBA", "LA", "RGB"])
        ),
        {"__key__": "wide", ".png": png_bomb(63_000_000, 1)},
        *({"__key__": f"hostile{number}", ".jpg": slow_picture()} for number in range(10)),
    ]
    return write_shard(folder / "a.tar", samples)


@pytest.fixture(scope="module")
def served(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with Command(path, tmp_path_factory.mktemp("cache")) as server:
        yield server


def test_a_slow_field_delays_neither_its_page_nor_others(served: Command) -> None:
    """The page of a sample with a refused picture shows the error."""
    while (field := served.get("api/sample", i=0).json()["fields"][0])["late"]:
        time.sleep(0.05)
    if "picture" in field:  # drawn in the background while the page is shown
        field = field["picture"] or served.get("api/picture", i=0, f=0).json()
    assert "scans" in field["error"]
    assert served.get("thumb", i=1, f=0, s=96).headers["Content-Type"] == "image/png"


def test_large_pictures_are_drawn_within_one_bound(served: Command) -> None:
    """Four pictures of 64 megapixels are drawn at once, and the server stays small."""
    kinds: list[str] = []

    def fetch(index: int) -> None:
        kinds.append(served.get("thumb", i=index, f=0, s=96).headers["Content-Type"])

    threads = [Thread(target=fetch, args=[index]) for index in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(kind in ("image/png", "image/jpeg") for kind in kinds), kinds
    assert served.own_nbytes < 250 << 20


def test_ten_slow_pictures_hold_up_no_other(path: Path) -> None:
    """A picture comes before those that are slow, and a page need not wait for these."""
    ends: list[Any] = []
    limits = DecoderLimits(soon_seconds=PATIENCE_SECONDS, deadline_seconds=PATIENCE_SECONDS)

    def fetch(index: int, **options: Any) -> bytes:
        query = {"i": index, "f": 0, "s": 96} | options
        answer = requests.get(f"{server.url}thumb", params=query, timeout=PATIENCE_SECONDS)
        ends.append(index)
        return answer.content

    with browsing([path], limits=limits) as server:
        for number in range(7, 17):
            assert b'width="3" height="2"' in fetch(number, soon=1)
        threads = [Thread(target=fetch, args=[number]) for number in range(7, 17)]
        for thread in threads:
            thread.start()
        assert fetch(1, soon=1).startswith(b"\x89PNG")
        ends.append("other")
        for thread in threads:
            thread.join()
        assert "other" in ends[10:15], ends
        assert b"svg" not in fetch(16, soon=2)[:20]


def test_a_side_too_long_is_refused(served: Command) -> None:
    """An image of 63,000,000 pixels in one row is refused, and the page says so."""
    picture = served.get("api/picture", i=6, f=0).json()
    assert "65536" in picture["error"]


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


def test_libraries_write_nothing_to_the_terminal(tmp_path: Path, capfd) -> None:
    """Messages of libmpg123 do not appear on the terminal."""
    damaged = b"ID3\x03\x00\x00\x00\x00\x00\x0a" + b"\xff\xfb\x90\x64" + tone()[:4000]
    path = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".mp3": damaged}])
    with Command(path, tmp_path) as server:
        server.get("api/sample", i=0)
        server.get("thumb", i=0, f=0, s=96)
    assert "mpg123" not in capfd.readouterr().err
