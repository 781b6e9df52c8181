"""One adapter per library, all with the same functions.

- `versions()` names what is measured.
- `random_reader(folder, **peer_options)` returns a function from a global index to the number of
  bytes in that sample, after all of its fields have been turned into `bytes`.
- `epoch_loader(folder, options, **peer_options)` returns a function from an epoch number to an
  iterable of batches: lists of tuples of bytes, or with `options["decode"]` pairs
  `(images, labels)` where images are `(batch, 224, 224, 3)` uint8.
- `convert(folder)` returns the path of the library's own files, made on first use.

A library that has no random access has no `random_reader`, one that reads the shards alone no
`convert`.
"""
