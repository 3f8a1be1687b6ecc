"""Trains and serves for long, and measures what grows: memory, file descriptors, threads.

    PYTHONPATH=tests/fixtures python bench/soak.py training [--minutes=120]
    PYTHONPATH=tests/fixtures python bench/soak.py serving [--requests=100000] [--threads=8]

Training is bin/run_pretraining of a tiny model on generated text, with a line of the log, a
checkpoint or an evaluation every second or so; SIGTERM ends it, and it must have saved. Serving
loads an export of a tiny model as a server does, answers random requests one after the other, then
the same from all threads at once, and compares.

Prints one line of JSON. The growth in MB per hour is the slope by least squares after the first
third: `resident` is what the process has of the machine, `in_use` what malloc has given out and not
got back; the difference is what malloc keeps for later. With --trim it has to give that to the
machine before each measurement. Fails if an answer differs, or a descriptor is left.
"""

import argparse
import ctypes
import gc
import json
import os
import random
import runpy
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BIN = Path(__file__).parents[1] / "bin"
NUM_DISTINCT = 400  # requests
MODEL = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 505,
    "max_position_embeddings": 32,
}
SETTINGS = {
    "albert": MODEL,
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "train_batch_size": 16,
    "eval_batch_size": 16,
    "num_train_steps": 100_000_000,
    "num_warmup_steps": 100,
    "steps_per_loop": 50,
    "save_checkpoints_steps": 500,
    "eval_steps": 1000,
    "max_eval_examples": 64,
    "shuffle_buffer_size": 500,
}


class Heap(ctypes.Structure):
    """What `mallinfo2` of glibc gives."""

    _names = "arena ordblks smblks hblks mapped usmblks fsmblks in_use fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


class Sample(NamedTuple):
    """What this process holds after `seconds`; memory in bytes."""

    seconds: float
    resident: int
    in_use: int
    descriptors: int
    threads: int


class Watch:
    """Measures this process every few seconds in a thread, until `stop`."""

    def __init__(self, interval: float, *, trims: bool):
        self.samples: list[Sample] = []
        self._is_over, self._start = threading.Event(), time.monotonic()
        self._libc, self._interval, self._trims = ctypes.CDLL(None), interval, trims
        self._libc.mallinfo2.restype = Heap
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(self._interval):
            gc.collect()  # or garbage counts
            if self._trims:
                self._libc.malloc_trim(0)
            self.samples.append(self._measure())

    def _measure(self) -> Sample:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        heap = self._libc.mallinfo2()
        return Sample(
            time.monotonic() - self._start,
            int(status["VmRSS"].split()[0]) * 1024,
            heap.mapped + heap.in_use,
            len(os.listdir("/proc/self/fd")),
            int(status["Threads"]),
        )

    def stop(self) -> dict[str, Any]:
        """Returns the figures; the first third warms up."""
        self._is_over.set()
        self._thread.join()
        samples = self.samples[len(self.samples) // 3 :]
        result: dict[str, Any] = {"minutes": round(samples[-1].seconds / 60, 1)}
        for name in ("resident", "in_use"):
            values = [getattr(sample, name) / 1e6 for sample in samples]
            hours = [sample.seconds / 3600 for sample in samples]
            result[f"{name}_mb"] = [round(values[0], 1), round(values[-1], 1)]
            result[f"{name}_mb_per_hour"] = round(float(np.polyfit(hours, values, 1)[0]), 2)
        for name in ("descriptors", "threads"):
            numbers = [getattr(sample, name) for sample in samples]
            result[name] = [min(numbers), max(numbers)]
        return result


def write_inputs() -> None:
    words = [f"w{number}" for number in range(500)]
    Path("vocabulary").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    Path("vocabulary/vocab.txt").write_text("\n".join(pieces))
    rng = random.Random(0)
    lines = [" ".join(rng.choices(words, k=rng.randint(4, 20))) for _ in range(4000)]
    lines[::20] = [f"{line}\n" for line in lines[::20]]  # ends of documents
    Path("text").write_text("\n".join(lines))
    Path("config.json").write_text(json.dumps(SETTINGS))


def run_program(name: str, arguments: str) -> None:
    sys.argv = [str(BIN / name), *arguments.split()]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code:
            raise


def soak_training(options: argparse.Namespace) -> dict[str, Any]:
    write_inputs()
    run_program(
        "create_pretraining_data",
        "--input_files=text --vocabulary=vocabulary --output_dir=data --masking=online "
        "--max_seq_length=32 --max_predictions_per_seq=5 --dupe_factor=1 --num_processes=1",
    )
    watch = Watch(options.interval, trims=options.trim)
    threading.Timer(60 * options.minutes, os.kill, (os.getpid(), signal.SIGTERM)).start()
    run_program(
        "run_pretraining",
        "--config=config.json --train_files=data/train-* --eval_files=data/train-* --workdir=run",
    )
    steps = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])["step"]
    if not Path(f"run/model.ckpt-{steps}.index").exists():
        sys.exit(f"step {steps} was not saved")
    done = {"steps": steps, "lines": steps // 50, "checkpoints": steps // 500}
    return done | watch.stop()


def soak_serving(options: argparse.Namespace) -> dict[str, Any]:
    import fuzzed_requests
    import fuzzing

    served = fuzzing.export("span", "sentencepieces", "export")
    rng = random.Random(0)
    inputs = served.inputs["question"]
    requests = [fuzzed_requests.texts(rng, inputs, 0) for _ in range(NUM_DISTINCT)]

    def answer(number: int) -> dict[str, Any] | str:
        try:
            return served.ask("question", requests[number])
        except Exception as error:
            return type(error).__name__

    def count_wrong(numbers: list[int]) -> int:
        return sum(not is_same(answer(number), expected[number]) for number in numbers)

    expected = [answer(number) for number in range(NUM_DISTINCT)]
    order = np.random.default_rng(0).integers(0, NUM_DISTINCT, options.requests).tolist()
    watch = Watch(options.interval, trims=options.trim)
    with ThreadPoolExecutor(options.threads) as pool:
        parts = [order[k :: options.threads] for k in range(options.threads)]
        wrong = sum(pool.map(count_wrong, parts))
    figures = watch.stop()
    results = {"requests": len(order), "threads_that_ask": options.threads}
    results["refused"] = sum(isinstance(expected[number], str) for number in order)
    return results | {"wrong": wrong} | figures


def is_same(one: Any, other: Any) -> bool:
    """Whether two answers are equal to the bit, or the same refusal."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and one == other
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tolist() == other[name].tolist()
        for name in one
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["training", "serving"])
    parser.add_argument("--minutes", type=float, default=120.0, help="of training")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8, help="that ask at once")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between measurements")
    parser.add_argument("--trim", action="store_true", help="malloc gives back what it keeps")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = (soak_training if options.part == "training" else soak_serving)(options)
    print(json.dumps(results))
    if results.get("wrong") or results["descriptors"][0] + 3 < results["descriptors"][1]:
        sys.exit("answers differ, or descriptors are left open")


if __name__ == "__main__":
    main()
