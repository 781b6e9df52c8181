"""Decoding of batches for a device, on the processor where there is no GPU."""

import pytest
import torch
from helpers.pictures import draw, many_scans, psnr, save
from PIL import Image

import wids
import wids.reading.devicedecoder as devicedecoder_module
from wids.codecs.images import jpeg_size

PICTURES = [
    save(draw(120, 80, 0), "JPEG", quality=95),
    save(draw(64, 90, 1)[..., 0], "JPEG", quality=95),
    save(draw(50, 50, 2), "PNG"),
    save(Image.fromarray(draw(70, 40, 3)).convert("CMYK"), "JPEG"),
    save(draw(300, 200, 4), "JPEG", quality=90, progressive=True),
]
CROP = wids.CenterCrop(32, resize=36)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards of five pictures of different formats and sizes, with class and text."""
    folder = tmp_path_factory.mktemp("pictures")
    with wids.ShardWriter(f"{folder}/train-%03d.tar", maxcount=3) as writer:
        for number, picture in enumerate(PICTURES):
            writer.write(
                {"__key__": f"k{number}", ".jpg": picture, ".cls": number, ".txt": f"n{number}"}
            )
    return folder


@pytest.fixture(scope="module")
def dataset(folder):
    """The shards, with the pictures raw and the rest decoded."""
    with wids.ShardListDataset(folder, decoders={".jpg": bytes}) as dataset:
        yield dataset


def batch_of(dataset, decoder, batch_size=5):
    """Return the first batch that a loader makes with a device."""
    return next(iter(wids.Loader(dataset, batch_size, device=decoder)))


@pytest.mark.parametrize("options", [{"decoders": {".jpg": bytes}}, {"transformations": "bytes"}])
def test_pictures_are_those_of_the_image_decoder(folder, options):
    """Each picture has the pixels of `ImageDecoder`, but for its rounding between directions."""
    reference = wids.ImageDecoder("torch", "RGB", CROP, scaled=False)
    with wids.ShardListDataset(folder, **options) as dataset:
        batch = batch_of(dataset, wids.DeviceDecoder("cpu", size=CROP))
    for got, picture in zip(batch[".jpg"], PICTURES, strict=True):
        assert psnr(got * 255, reference(picture)) > 50


def test_mean_and_deviation_are_those_of_torchvision(dataset):
    """Pixels in [0, 1] lose the mean and are divided by the deviation, channel by channel."""
    plain = batch_of(dataset, wids.DeviceDecoder("cpu", size=CROP))[".jpg"]
    mean, std = (0.5, 0.25, 0.125), (0.5, 2.0, 4.0)
    got = batch_of(dataset, wids.DeviceDecoder("cpu", size=CROP, mean=mean, std=std))[".jpg"]
    expected = (plain - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_type_and_memory_format_are_as_asked(dataset, dtype, channels_last):
    """Pictures come in the type and memory format that the network wants."""
    decoder = wids.DeviceDecoder("cpu", size=CROP, dtype=dtype, channels_last=channels_last)
    pictures = batch_of(dataset, decoder)[".jpg"]
    assert pictures.dtype == dtype
    assert pictures.shape == (5, 3, 32, 32)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert pictures.is_contiguous(memory_format=layout)


def test_random_crops_have_one_size(dataset):
    """Crops of random boxes fill a batch, and differ from pass to pass."""
    decoder = wids.DeviceDecoder("cpu", size=wids.RandomResizedCrop(16))
    loader = wids.Loader(dataset, 5, device=decoder)
    first, second = (next(iter(loader))[".jpg"] for _ in range(2))
    assert first.shape == second.shape == (5, 3, 16, 16)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("damaged", [b"", b"no picture", PICTURES[0][:300]])
def test_damaged_pictures_are_errors_that_name_them(tmp_path, damaged):
    """A picture that cannot be decoded is named by sample, key and field."""
    with wids.ShardWriter(f"{tmp_path}/t-%03d.tar") as writer:
        writer.write({"__key__": "good", ".jpg": PICTURES[0]})
        writer.write({"__key__": "bad", ".jpg": damaged})
    with wids.ShardListDataset(tmp_path, transformations="bytes") as dataset:
        loader = wids.Loader(dataset, 2, device=wids.DeviceDecoder("cpu", size=CROP))
        with pytest.raises(wids.DecodeError, match=r"'\.jpg' of sample 1, key 'bad'"):
            next(iter(loader))


def test_pictures_of_different_sizes_are_refused(dataset):
    """A resize that keeps aspect ratios makes no batch, and the message says what does."""
    decoder = wids.DeviceDecoder("cpu", size=wids.Resize(16))
    with pytest.raises(ValueError, match="expected one size for all images"):
        batch_of(dataset, decoder)


def test_decoded_pictures_are_refused(folder):
    """Pictures that the dataset decoded already are refused with the way to leave them raw."""
    with (
        wids.ShardListDataset(folder, transformations="PIL") as decoded,
        pytest.raises(TypeError, match=r"expected raw images.*decoders="),
    ):
        batch_of(decoded, wids.DeviceDecoder("cpu", size=CROP))


def test_batches_without_names_are_refused(dataset):
    """A batch made by a `collate_fn` that returns no dict is refused."""
    loader = wids.Loader(
        dataset, 2, collate_fn=len, tensors=False, device=wids.DeviceDecoder("cpu")
    )
    with pytest.raises(TypeError, match="expected a batch with fields by name, got int"):
        next(iter(loader))


def test_a_jpeg_of_very_many_scans_never_reaches_the_gpu(monkeypatch):
    """The processor refuses it undecoded, with its key; the other pictures go to the GPU."""
    data, bomb = many_scans(1), many_scans(80, side=8192)
    assert jpeg_size(data) == (64, 64)
    assert jpeg_size(bomb) is None
    given = []

    def on_gpu(encoded):
        given.extend(each.tobytes() for each in encoded)
        return [None] * len(encoded)

    monkeypatch.setattr(devicedecoder_module, "jpeg_device", lambda *_: on_gpu)
    decoder = wids.DeviceDecoder("cpu", size=CROP)
    assert decoder({".jpg": [data]})[".jpg"].shape == (1, 3, 32, 32)
    with pytest.raises(wids.DecodeError, match="key 'bomb'.*8192 x 8192 pixels with over 64 scans"):
        decoder({".jpg": [data, bomb], "__key__": ["good", "bomb"]})
    assert given == [data, data]


def test_without_a_size_batches_are_only_moved(dataset):
    """A device by its name decodes nothing, and random crops come with a size alone."""
    for device in ("cpu", torch.device("cpu"), wids.DeviceDecoder("cpu")):
        batch = batch_of(dataset, device)
        assert batch[".jpg"] == PICTURES
        assert batch[".cls"].tolist() == [0, 1, 2, 3, 4]
