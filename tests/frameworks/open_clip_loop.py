"""open_clip's own training loop over `open_clip_data.py`, beside webdataset in the same order.

The pairs of an epoch are written to a tar in the order of the sampler, which webdataset reads from
its beginning to its end: both trainings must have the same losses and end with the same weights.
"""

# isort: off
import torchvision_for_cpus  # noqa: F401 (before all that import torchvision)

# isort: on
import copy
import io
import logging
import tempfile
from pathlib import Path

import open_clip
import open_clip_data
import torch
import webdataset
from open_clip_train.params import parse_args
from open_clip_train.scheduler import const_lr
from open_clip_train.train import train_one_epoch
from PIL import Image

import wids

SIZE, BATCH, COUNT = 32, 4, 43
MODEL = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": SIZE, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
}


def main() -> None:
    """Write pairs, train on them twice, and compare losses and weights."""
    folder = Path(tempfile.mkdtemp())
    write_pairs(folder)
    for data, factors, samples in (("a.json", None, 43), ("a.json::b.json", "2::1", None)):
        compare(folder, data, factors, samples)


def write_pairs(folder: Path) -> None:
    """Write two datasets: pictures of three formats, some without a caption."""
    for name, count in (("a", COUNT + 2), ("b", 20)):
        pattern = str(folder / f"{name}-%02d.tar")
        with wids.ShardWriter(pattern, maxcount=10, spec=str(folder / f"{name}.json")) as writer:
            for number in range(count):
                stream = io.BytesIO()
                shade = (5 * number % 256, 90, 40)
                kind = ("jpg", "png", "webp")[number % 3]
                Image.new("RGB", (40, 36), shade).save(stream, kind.replace("jpg", "jpeg"))
                sample = {"__key__": f"{name}{number:04d}", kind: stream.getvalue()}
                if number not in (5, 17) or name == "b":
                    sample["txt"] = f"a picture of shade {number}"
                writer.write(sample)


def compare(folder: Path, data: str, factors: str | None, samples: int | None) -> None:
    """Train for two epochs on pairs of wids, and on the same in their order by webdataset."""
    args = parse_args([f"--batch-size={BATCH}", "--epochs=2", "--workers=0", "--lr=1e-2"])
    args.train_data = "::".join(str(folder / each) for each in data.split("::"))
    args.train_data_upsampling_factors = factors
    args.rank, args.world_size, args.device, args.distributed = 0, 1, "cpu", False
    args.distill = args.wandb = args.tensorboard = args.horovod = False
    torch.manual_seed(0)
    model = open_clip.CLIP(**MODEL, output_dict=True)
    transform = open_clip.image_transform(SIZE, is_train=False)
    tokenizer = open_clip.SimpleTokenizer()
    info = open_clip_data.get_pairs(args, transform, is_train=True, tokenizer=tokenizer)
    if samples is not None:
        assert info.dataloader.num_batches == samples // BATCH, info.dataloader.num_batches
    ours = trained(copy.deepcopy(model), info, args)

    # The same pairs as members of one tar an epoch, in the order in which the loop got them.
    plain = open_clip_data.get_pairs(args, lambda image: image, True, tokenizer=lambda text: [text])

    class InOrder:
        def set_epoch(self, epoch: int) -> None:
            plain.set_epoch(epoch)
            drawn = [index for batch in plain.dataloader.batch_sampler for index in batch]
            if factors is not None:  # twice as often as its number of pairs, 43 beside 20, says
                share = sum(index < COUNT for index in drawn) / len(drawn)
                assert abs(share - 86 / 106) < 0.05, share
            path = folder / f"epoch-{epoch}.tar"
            with wids.TarWriter(str(path)) as tar:
                for number, index in enumerate(drawn):
                    image, text = plain.dataloader.dataset[index]
                    tar.write({"__key__": f"{number:06d}", "png": image, "txt": text})
            pipeline = webdataset.DataPipeline(
                webdataset.SimpleShardList(str(path)),
                webdataset.tarfile_to_samples(),
                webdataset.decode("pilrgb"),
                webdataset.rename(image="png", text="txt"),
                webdataset.map_dict(image=transform, text=lambda text: tokenizer(text)[0]),
                webdataset.to_tuple("image", "text"),
                webdataset.batched(BATCH, partial=False),
            )
            self.dataloader = webdataset.WebLoader(pipeline, batch_size=None, num_workers=0)
            self.dataloader.num_batches = info.dataloader.num_batches
            self.dataloader.num_samples = info.dataloader.num_samples

    theirs = trained(copy.deepcopy(model), InOrder(), args)
    assert ours[0] == theirs[0], (ours[0], theirs[0])
    assert len(ours[0]) == 2 * info.dataloader.num_batches
    for name, weight in ours[1].items():
        assert torch.equal(weight, theirs[1][name]), name
    print(f"{data}: {len(ours[0])} steps, the same losses, from {ours[0][0]} to {ours[0][-1]}")


def trained(model: torch.nn.Module, info: object, args: object) -> tuple[list[str], dict]:
    """Train by open_clip's loop; return the logged losses and the weights."""
    losses: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: losses.append(  # type: ignore[method-assign]
        record.getMessage().partition("Contrastive_loss: ")[2].partition(" ")[0]
    )
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    args.log_every_n_steps = 1
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    loss = open_clip.ClipLoss()
    for epoch in range(args.epochs):
        scheduler = const_lr(optimizer, args.lr, 0, 100)
        train_one_epoch(model, {"train": info}, loss, epoch, optimizer, None, scheduler, None, args)
    logging.getLogger().removeHandler(handler)
    return [each for each in losses if each], model.state_dict()


if __name__ == "__main__":
    main()
