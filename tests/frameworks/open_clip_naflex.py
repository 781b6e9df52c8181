"""Two gloo ranks train open_clip with a NaFlex model of timm, in batches of a budget of tokens."""

# isort: off
import torchvision_for_cpus  # noqa: F401 (before all that import torchvision)

# isort: on
import io
import os
from pathlib import Path

import open_clip
import open_clip_data
import torch
import torch.distributed as dist
from open_clip_train.params import parse_args
from open_clip_train.scheduler import const_lr
from PIL import Image
from timm.models import NaFlexVit, NaFlexVitCfg, register_model
from torch.nn.parallel import DistributedDataParallel

import wids

COUNT, MAX_TOKENS, EPOCHS, SAVE_EVERY = 300, 128, 2, 20
LENGTHS = [8, 16, 32, 64]
PATCH = 16
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1}
VISION = {"timm_model_name": "naflexvit_tiny", "timm_proj": "", "image_size": 64}


@register_model
def naflexvit_tiny(pretrained: bool = False, num_classes: int = 0, **_: object) -> NaFlexVit:
    """Return timm's NaFlex model with one layer."""
    cfg = NaFlexVitCfg(patch_size=PATCH, embed_dim=32, depth=1, num_heads=2, global_pool="avg")
    return NaFlexVit(cfg, num_classes=num_classes)


def main(folder: Path) -> None:
    """Train on this rank, and check what all ranks saw."""
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write_pairs(folder)
    dist.barrier()
    args = parse_args(["--batch-size=4", "--workers=1", "--lr=1e-2"])
    args.train_data, args.train_data_upsampling_factors = str(folder / "train.json"), None
    args.rank, args.world_size, args.device, args.distributed = rank, ranks, "cpu", True
    args.distill = args.wandb = args.tensorboard = args.horovod = False
    args.save_logs, args.checkpoint_path, args.name = rank == 0, str(folder), "naflex"
    torch.manual_seed(0)
    model = open_clip.CLIP(16, VISION, TEXT, output_dict=True)
    transform = open_clip.image_transform(64, is_train=True)
    tokenizer = open_clip.SimpleTokenizer()
    lengths = ["--lengths", *map(str, LENGTHS)]
    saves = ["--save-every", str(SAVE_EVERY)]
    options, _ = open_clip_data.parse_options(["--max-tokens", str(MAX_TOKENS), *lengths, *saves])
    info = open_clip_data.get_pairs(args, transform, True, 0, tokenizer, options)

    def numbers_of(texts: torch.Tensor) -> list[int]:
        captions = [tokenizer.decode(text.tolist()) for text in texts]
        return [int("".join(filter(str.isdigit, each))) for each in captions]

    seen: list[tuple[list[int], list[int]]] = []

    def note(_module: torch.nn.Module, inputs: tuple) -> None:
        images, texts = inputs
        # Padded to what the longest image has, within the budget.
        count, padded = images["patches"].shape[:2]
        assert count == len(images), (count, len(images))
        assert count * padded <= MAX_TOKENS, (count, padded)
        numbers = numbers_of(texts)
        tokens = images["patch_valid"].sum(1).tolist()
        for number, count in zip(numbers, tokens, strict=True):
            whole = tokens_of(*size_of(number))
            assert count == whole or count <= LENGTHS[-1] < whole, (number, count, whole)
        assert tokens == (images["patches"].abs().sum(2) > 0).sum(1).tolist()
        seen.append((numbers, tokens))

    model.register_forward_pre_hook(note)
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trained.parameters(), args.lr)
    loss = open_clip.ClipLoss(gather_with_grad=True, rank=rank, world_size=ranks)
    for epoch in range(EPOCHS):
        scheduler = const_lr(optimizer, args.lr, 0, 100)
        data = {"train": info}
        open_clip_data.train_one_epoch(
            trained, data, loss, epoch, optimizer, None, scheduler, None, args
        )
    assert len(seen) == EPOCHS * info.dataloader.num_batches, len(seen)
    dist.barrier()  # the save of the first rank is complete
    args.resume = str(folder / "epoch_latest.pt")
    resumed = open_clip_data.get_pairs(args, transform, True, EPOCHS - 1, tokenizer, options)
    resumed.set_epoch(EPOCHS - 1)
    each = info.dataloader.num_batches
    used = (EPOCHS - 1) * each + each // SAVE_EVERY * SAVE_EVERY
    rest = [numbers_of(texts) for _, texts in resumed.dataloader]
    assert rest == [numbers for numbers, _ in seen[used:]]
    assert len(rest) == each % SAVE_EVERY > 0
    args.resume = None
    check_alone(model.eval(), transform, tokenizer, options, args)

    every: list[list] = [[] for _ in range(ranks)]
    dist.all_gather_object(every, seen)
    if rank == 0:
        check(every)
    # A thread of gloo that still lets go of a gathered tensor waits for the lock of Python, which
    # the end of the process group holds while it waits for that thread.
    dist.barrier()
    dist.destroy_process_group()


def check_alone(model, transform, tokenizer, options, args) -> None:
    """An image has the same features in a padded batch and alone."""
    info = open_clip_data.get_pairs(args, transform, True, 0, tokenizer, options)
    pairs = [info.dataloader.dataset[index] for index in range(6)]
    assert len({len(image["patches"]) for image, _ in pairs}) > 1
    with torch.no_grad():
        together = model.encode_image(open_clip_data.collate_patches(pairs)[0])
        for number, pair in enumerate(pairs):
            alone = model.encode_image(open_clip_data.collate_patches([pair])[0])[0]
            torch.testing.assert_close(alone, together[number], atol=1e-5, rtol=1e-4)


def check(every: list[list]) -> None:
    """Check the epochs of all ranks: batches of equal numbers, and all pairs."""
    for steps in zip(*every, strict=True):
        assert len({len(numbers) for numbers, _ in steps}) == 1, steps
    half = len(every[0]) // EPOCHS
    for epoch in range(EPOCHS):
        parts = [part for rank in every for part in rank[epoch * half : (epoch + 1) * half]]
        numbers = [number for part, _ in parts for number in part]
        tokens = sum(sum(each) for _, each in parts)
        padded = sum(len(each) * max(each) for _, each in parts)
        assert set(numbers) == set(range(COUNT))
        # At most one repeat for each length, so that two ranks have equally many.
        assert len(numbers) <= COUNT + len(LENGTHS), len(numbers)
        sizes = sorted({len(part) for part, _ in parts})
        print(
            f"naflex: epoch {epoch}: {len(parts)} batches of {sizes} images, {COUNT} pairs "
            f"and {len(numbers) - COUNT} repeats; {tokens} tokens are {tokens / padded:.1%} of the "
            f"padded, {tokens / (len(parts) * MAX_TOKENS):.1%} of the budget"
        )


def size_of(number: int) -> tuple[int, int]:
    """Return width and height of a picture."""
    return 16 + 37 * number % 150, 20 + 53 * number % 130


def tokens_of(width: int, height: int) -> int:
    """Return the patches of a picture at its size."""
    return -(-width // PATCH) * -(-height // PATCH)


def write_pairs(folder: Path) -> None:
    """Write pictures of mixed sizes with captions."""
    pattern, spec = str(folder / "train-%02d.tar"), str(folder / "train.json")
    with wids.ShardWriter(pattern, maxcount=40, spec=spec) as writer:
        for number in range(COUNT):
            stream = io.BytesIO()
            shade = (5 * number % 256, 90, 40)
            Image.new("RGB", size_of(number), shade).save(stream, "jpeg")
            text = f"a picture of number {number}"
            writer.write({"__key__": f"{number:04d}", "jpg": stream.getvalue(), "txt": text})


if __name__ == "__main__":
    main(Path(os.environ["RECORDS"]))
