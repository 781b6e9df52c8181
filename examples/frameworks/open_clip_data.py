"""Train with open_clip on exact epochs: every pair once, as many batches on each rank.

    torchrun --nproc-per-node 8 open_clip_data.py --train-data train.json --model ViT-B-32 \
        --dataset-type webdataset --batch-size 256 --epochs 32

All arguments are those of `open_clip_train.main`. `--train-data` is what `wids.open` opens, or
several of them joined by `::`, with `--train-data-upsampling-factors 1::2` for their weights. No
more needed are `--train-num-samples`, which makes epochs of another length, and
`--dataset-resampled`.
"""

import sys

import open_clip_train.data
from open_clip_train.main import main
from torch.utils.data import DataLoader, default_collate

import wids

IMAGES = ".jpg;.jpeg;.png;.webp"


def open_pairs(location, preprocess, tokenizer):
    """Open samples as pairs of an image and its tokens; without those that lack one of the two."""
    dataset = wids.open(location).rename({".image": IMAGES, ".text": ".txt"})
    pairs = dataset.filter("image is not null and text is not null")
    pairs = pairs.with_options(fields=[".image", ".text"])

    def to_pair(sample):
        return preprocess(sample[".image"].convert("RGB")), tokenizer(sample[".text"])[0]

    return pairs.map(to_pair)


def get_pairs(args, preprocess, is_train, epoch=0, tokenizer=None):
    """Return what open_clip's loop reads, in place of `open_clip_train.data.get_wds_dataset`."""
    locations = (args.train_data if is_train else args.val_data).split("::")
    sources = [open_pairs(each, preprocess, tokenizer) for each in locations]
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
    batches = wids.BatchSampler(sampler, args.batch_size, drop_last=is_train)
    loader = DataLoader(
        samples, batch_sampler=batches, num_workers=args.workers, collate_fn=default_collate
    )
    loader.num_batches = len(batches)
    loader.num_samples = len(batches) * args.batch_size * ranks if is_train else len(samples)
    return open_clip_train.data.DataInfo(dataloader=loader, sampler=sampler)


if __name__ == "__main__":
    open_clip_train.data.get_wds_dataset = get_pairs
    main(sys.argv[1:])
