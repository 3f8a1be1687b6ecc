"""Times what a user waits for before the work starts: base size, random weights, tiny data.

    python bench/first_minute.py [--tree=ANOTHER_CLONE] [--runs=3]

Prints a line of JSON for each command: median seconds and CPU seconds of a new process. Training
is one update of 4 x 128 tokens, with everything around it. ANOTHER_CLONE runs its own programs on
its own data: that is how two versions are compared.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import app, flags

TREE = flags.DEFINE_string("tree", str(Path(__file__).parents[1]), "folder of the programs")
RUNS = flags.DEFINE_integer("runs", 3, "of each command")
ONE_UPDATE = "--set=num_train_steps=1 --set=num_warmup_steps=0 --set=max_seq_length=128 "
ONE_UPDATE += "--set=train_batch_size=4"
# {name: command}; those that begin with "-" only prepare.
COMMANDS = {
    "-records": "create_pretraining_data --input_files=text --vocabulary=vocabulary "
    "--output_dir=data --dupe_factor=1 --max_seq_length=128 --num_processes=1",
    "help": "run_pretraining --help",
    "pretrain tiny": f"run_pretraining --train_files=data/train-* --workdir=tiny {ONE_UPDATE} "
    "--set=albert=albert_tiny",
    "pretrain base": f"run_pretraining --train_files=data/train-* --workdir=run {ONE_UPDATE} "
    "--set=albert=albert_base_v2",
    "finetune base": "run_finetuning --task=own --mode=train --train_file=train.tsv "
    f"--text_column=t --label_column=y --init_checkpoint=run --workdir=tuned {ONE_UPDATE}",
    "fill_mask": "fill_mask --checkpoint=run --text=[MASK]",
    "classify": "classify --checkpoint=tuned --text=word",
}


def write_inputs(folder: Path) -> None:
    words = [f"{number:x}" for number in range(29995)]
    (folder / "vocabulary").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocabulary" / "vocab.txt").write_text("\n".join(pieces))
    rng = random.Random(0)
    lines = (" ".join(rng.choices(words, k=20)) for _ in range(400))
    (folder / "text").write_text("\n".join(lines))
    (folder / "train.tsv").write_text("t\ty\n" + "ab\tbad\nfe\tgood\n" * 4)


def time_command(command: str, folder: Path) -> tuple[float, float]:
    """Returns seconds and CPU seconds."""
    program, *options = command.split()
    environment = {**os.environ, "PYTHONPATH": TREE.value}
    start, before = time.perf_counter(), os.times()
    arguments = [sys.executable, f"{TREE.value}/bin/{program}", *options]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{command}\n{done.stderr.decode()}")
    seconds, after = time.perf_counter() - start, os.times()
    cpu = after.children_user - before.children_user + after.children_system
    return seconds, cpu - before.children_system


def main(_):
    times: dict[str, list[tuple[float, float]]] = {}
    for run in range(RUNS.value + 1):  # the first also fills Python's caches
        with tempfile.TemporaryDirectory() as name:
            write_inputs(Path(name))
            for label, command in COMMANDS.items():
                measured = time_command(command, Path(name))
                if run and not label.startswith("-"):
                    times.setdefault(label, []).append(measured)
    for label, pairs in times.items():
        seconds, cpu = (round(statistics.median(x), 2) for x in zip(*pairs, strict=True))
        print(json.dumps({"command": label, "seconds": seconds, "cpu_seconds": cpu}))


if __name__ == "__main__":
    app.run(main)
