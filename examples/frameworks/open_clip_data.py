"""Train with open_clip on exact epochs: every pair once, as many batches on each rank.

    torchrun --nproc-per-node 8 open_clip_data.py --train-data train.json --model ViT-B-32 \
        --dataset-type webdataset --batch-size 256 --epochs 32 \
        --name run --save-every 1000 --save-most-recent --resume latest

All arguments are those of `open_clip_train.main`, and the four of `parse_options`. `--train-data`
is what `wids.open` opens, or several of them joined by `::`, with
`--train-data-upsampling-factors 1::2` for their weights. No more needed are `--train-num-samples`,
which makes epochs of another length, and `--dataset-resampled`.
"""

import argparse
import functools
import sys
from pathlib import Path

import numpy as np
import open_clip_train.data
import open_clip_train.main
import open_clip_train.train
import torch
from open_clip_train.file_utils import pt_load
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, default_collate
from torchvision.transforms.functional import to_tensor

import wids

IMAGES = ".jpg;.jpeg;.png;.webp"


def parse_options(arguments):
    """Return the options of this program, and the arguments that are open_clip's."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    # Steps after which `epoch_latest.pt` is written, from which `--resume latest` goes on.
    parser.add_argument("--save-every", type=int)
    # Patches that a batch of a NaFlex model may have, in place of --batch-size pairs.
    parser.add_argument("--max-tokens", type=int)
    # Patches that an image may have, ascending: a batch has as many images as fit of one of these.
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 96, 128, 192, 256, 384, 576])
    parser.add_argument("--patch-size", type=int, default=16)
    return parser.parse_known_args(arguments)


def open_pairs(location):
    """Open the samples that have an image and a text."""
    dataset = wids.open(location).rename({".image": IMAGES, ".text": ".txt"})
    pairs = dataset.filter("image is not null and text is not null")
    return pairs.with_options(fields=[".image", ".text"])


def get_pairs(args, preprocess, is_train, epoch=0, tokenizer=None, options=None):
    """Return what open_clip's loop reads, in place of `open_clip_train.data.get_wds_dataset`."""
    options = options or parse_options([])[0]
    naflex = NaFlex(options, preprocess) if is_train and options.max_tokens else None
    prepare = naflex or preprocess

    def to_pair(sample):
        # Seeded by sample and epoch, a crop is the same in a run that was resumed.
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(wids.random_seed(sample))
            return prepare(sample[".image"].convert("RGB")), tokenizer(sample[".text"])[0]

    locations = (args.train_data if is_train else args.val_data).split("::")
    opened = [open_pairs(each) for each in locations]
    sources = [pairs.map(to_pair) for pairs in opened]
    if is_train:
        factors = args.train_data_upsampling_factors or "::".join("1" * len(sources))
        weights = [float(f) * len(s) for f, s in zip(factors.split("::"), sources, strict=True)]
        count = args.train_num_samples
        samples = sources[0]
        if len(sources) > 1 or count is not None:
            total = sum(map(len, sources)) if count is None else count
            samples = wids.Mixture(sources, weights, num_samples=total)
        sampler = wids.DistributedShardSampler(samples, seed=args.seed)
        sampler.set_epoch(epoch)
        ranks = args.world_size
    else:  # one process evaluates, on all samples in their order
        samples = wids.concat(sources)
        sampler = wids.DistributedShardSampler(samples, 1, 0, shuffle=False, pad=False)
        ranks = 1
    if naflex is None:
        batches = wids.BatchSampler(sampler, args.batch_size, drop_last=is_train)
    else:  # the last batch of a length is smaller: rare lengths would else never be seen
        batches = wids.BatchSampler(sampler, **naflex.sizes(opened))
    loader = SavingLoader(
        samples,
        batch_sampler=batches,
        num_workers=args.workers,
        collate_fn=default_collate if naflex is None else collate_patches,
    )
    if is_train:
        loader.save_every = (options.save_every or 0) * args.accum_freq
        saved = pt_load(args.resume, map_location="cpu") if args.resume else {}
        if "order" in saved:  # in the middle of an epoch
            batches.load_state_dict(saved["order"])
            loader.used_before = saved["batches"]
    loader.num_batches = len(batches)
    exact = is_train and naflex is None
    loader.num_samples = len(batches) * args.batch_size * ranks if exact else len(sampler) * ranks
    return open_clip_train.data.DataInfo(dataloader=loader, sampler=sampler)


class SavingLoader(DataLoader):
    """A loader that calls `save` between two steps, when the loop asks for the next batch."""

    save_every = 0
    save = None
    used_before = 0  # batches of this epoch that the run before has used

    def __iter__(self):
        for number, batch in enumerate(super().__iter__(), 1):
            yield batch
            used = self.used_before + number
            if self.save is not None and self.save_every and used % self.save_every == 0:
                # Workers have drawn ahead: the state is that after the batches that were used.
                self.save(used, self.batch_sampler.state_dict(consumed=number))
        self.used_before = 0


def train_one_epoch(
    model, data, loss, epoch, optimizer, scaler, scheduler, dist_model, args, tb_writer=None
):
    """Train by open_clip's loop, with saves in the form of its own in between."""
    loader = data["train"].dataloader

    def save(batches, order):
        # As of open_clip, which loads all but the last two. They are the same on all ranks.
        state = {"epoch": epoch, "name": args.name, "optimizer": optimizer.state_dict()}
        weights = model.state_dict()
        state["state_dict"] = {key.removeprefix("_orig_mod."): weights[key] for key in weights}
        if scaler is not None:
            state["scaler"] = scaler.state_dict()
        path = Path(args.checkpoint_path, open_clip_train.main.LATEST_CHECKPOINT_NAME)
        part = path.with_suffix(".part")
        torch.save({**state, "batches": batches, "order": order}, part)
        part.replace(path)

    loader.save = save if args.save_logs else None  # of the first rank
    # The loop counts from 0 in an epoch that goes on; the learning rate must not.
    steps = loader.used_before // args.accum_freq
    open_clip_train.train.train_one_epoch(
        model, data, loss, epoch, optimizer, scaler, lambda step: scheduler(step + steps),
        dist_model, args, tb_writer=tb_writer,
    )  # fmt: skip


class NaFlex:
    """Images of any aspect ratio as patches, in batches of at most `max_tokens` patches.

    Each image belongs to the shortest of `lengths` that holds it at its size, or is made smaller
    for the longest. A batch has images of one length: ranks must have equally many, since
    contrastive losses gather features of one shape.
    """

    def __init__(self, options, preprocess):
        from timm.data.naflex_transforms import Patchify, ResizeToSequence

        self.lengths = np.array(options.lengths)
        self.max_tokens, self.patch = options.max_tokens, options.patch_size
        self.normalize = preprocess.transforms[-1]
        self.patchify = Patchify(self.patch)
        self.resize = functools.partial(ResizeToSequence, self.patch, max_ratio=1.0)

    def length(self, width, height):
        """Return the length of images of these sizes."""
        patches = -(-width // self.patch) * -(-height // self.patch)
        number = np.searchsorted(self.lengths, patches)
        return self.lengths[np.minimum(number, self.lengths.size - 1)]

    def sizes(self, opened):
        """Return how a `BatchSampler` divides these pairs, by the headers of their images."""
        sides = [[pairs.column(".image", side) for side in ("width", "height")] for pairs in opened]
        sizes = {length: self.max_tokens // length for length in self.lengths.tolist()}
        return {
            "shape": np.concatenate([self.length(*each) for each in sides]),
            "batch_size": sizes,
        }

    def __call__(self, image):
        resized = self.resize(max_seq_len=int(self.length(*image.size)))(image)
        return self.patchify(self.normalize(to_tensor(resized)))


class Patches(dict):
    """Images as timm's NaFlex models take them, which open_clip's loop moves like a tensor."""

    def __len__(self):
        return len(self["patches"])

    def to(self, device, dtype=None, non_blocking=False):
        """Return them on a device; only the patches are of type `dtype`."""
        types = {name: dtype if name == "patches" else None for name in self}
        return Patches(
            (name, value.to(device, types[name], non_blocking=non_blocking))
            for name, value in self.items()
        )


def collate_patches(pairs):
    """Pad the patches of images to the most that one of them has."""
    images, texts = zip(*pairs, strict=True)
    padded = Patches(
        (name, pad_sequence([each[name] for each in images], batch_first=True))
        for name in ("patches", "patch_coord", "patch_valid")
    )
    return padded, torch.stack(texts)


def main(arguments):
    """Run `open_clip_train.main` on the pairs of this program."""
    options, arguments = parse_options(arguments)
    open_clip_train.data.get_wds_dataset = functools.partial(get_pairs, options=options)
    open_clip_train.main.train_one_epoch = train_one_epoch
    return open_clip_train.main.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
