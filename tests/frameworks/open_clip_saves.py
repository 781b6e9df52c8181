"""open_clip's own program over `open_clip_data.py`, killed in the middle of an epoch and resumed.

A run that nothing stops, and one that is killed and goes on in a fresh process, must see the same
batches and end with the same weights.
"""

# isort: off
import torchvision_for_cpus  # noqa: F401 (before all that import torchvision)

# isort: on
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import open_clip
import open_clip_data
import torch
from open_clip_loop import MODEL, write_pairs
from torch.nn.modules.module import register_module_forward_pre_hook

EPOCHS, EPOCH, SAVE_EVERY, KILLED_AT = 2, 10, 3, 18  # steps; the last save is that of step 16


def main() -> None:
    """Train without a stop, and with a kill, and compare."""
    folder = Path(tempfile.mkdtemp())
    write_pairs(folder)
    (folder / "tiny.json").write_text(json.dumps(MODEL))
    whole = train(folder, "whole", 0)
    assert len(whole) == EPOCHS * EPOCH, len(whole)
    for at in range(0, len(whole), EPOCH):
        seen = [caption for batch in whole[at : at + EPOCH] for caption in batch]
        assert len(set(seen)) == len(seen) == 40, seen

    before = train(folder, "killed", KILLED_AT)
    assert before == whole[:KILLED_AT]
    saved = torch.load(folder / "killed/checkpoints/epoch_latest.pt")
    used = saved["epoch"] * EPOCH + saved["batches"]
    assert used == KILLED_AT // EPOCH * EPOCH + KILLED_AT % EPOCH // SAVE_EVERY * SAVE_EVERY
    after = train(folder, "killed", 0)
    assert after == whole[used:], (after, whole[used:])

    weights, expected = (
        torch.load(folder / name / f"checkpoints/epoch_{EPOCHS}.pt")["state_dict"]
        for name in ("killed", "whole")
    )
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight), name
    print(f"killed at step {KILLED_AT}, resumed after {used}: {len(after)} batches, same weights")


def train(folder: Path, name: str, kill_at: int) -> list[list[str]]:
    """Run open_clip in a process of its own; return the captions of its batches."""
    record = folder / f"{name}-{kill_at}.jsonl"
    arguments = [
        "--train-data", str(folder / "a.json"), "--dataset-type", "webdataset", "--model", "tiny",
        "--batch-size", "4", "--epochs", str(EPOCHS), "--workers", "2", "--lr", "1e-2",
        "--warmup", "5", "--precision", "fp32", "--logs", str(folder), "--name", name,
        "--save-most-recent", "--resume", "latest", "--save-every", str(SAVE_EVERY),
    ]  # fmt: skip
    command = [sys.executable, __file__, str(record), str(kill_at), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    expected = -signal.SIGKILL if kill_at else 0
    assert done.returncode == expected, (done.returncode, done.stderr[-3000:])
    return [json.loads(line) for line in record.read_text().splitlines()]


def child(record: str, kill_at: int, arguments: list[str]) -> None:
    """Train, write the captions of each batch, and end by force at a step."""
    open_clip.add_model_config(Path(record).parent / "tiny.json")
    tokenizer = open_clip.SimpleTokenizer()
    steps = 0

    def note(module: torch.nn.Module, inputs: tuple) -> None:
        nonlocal steps
        if isinstance(module, open_clip.CLIP):
            captions = [tokenizer.decode(text.tolist()) for text in inputs[1]]
            with Path(record).open("a") as stream:
                stream.write(json.dumps(captions) + "\n")
            steps += 1
            if steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    register_module_forward_pre_hook(note)
    open_clip_data.main(arguments)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    else:
        main()
