"""Asks exported models random requests of raw text, as a server does, and fails if one is wrong.

    PYTHONPATH=tests/fixtures python bench/fuzz_export.py [--seed=0] [--number=20000] [--kinds=span]

Exports tiny random models of every kind with a SentencePiece and a WordPiece vocabulary. NUMBER is
of requests to all of them, each with a seed of its own; what is wrong is printed with flags that
ask it again. Requests are batches of up to five texts; one text in a thousand has a megabyte.
"""

import faulthandler
import os
import sys
import tempfile
import time

import fuzzing
from absl import app, flags, logging

from albert_tf.export import model_kinds

SEED = flags.DEFINE_integer("seed", 0, "of all requests")
NUMBER = flags.DEFINE_integer("number", 20_000, "of requests", lower_bound=1)
FIRST = flags.DEFINE_integer("first", 0, "number of the first request to each model")
KINDS = flags.DEFINE_list("kinds", list(model_kinds.KINDS), "of models")
VOCABULARIES = flags.DEFINE_list("vocabularies", list(fuzzing.VOCABULARIES), "of models")
# Whoever takes longer hangs: what it was doing is printed.
LONGEST = 600


def fuzz(kind: str, vocabulary: str, numbers: range) -> int:
    """Returns how many of the requests to a model are wrong."""
    begin, slowest, num_refused, num_wrong = time.perf_counter(), 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        served = fuzzing.export(kind, vocabulary, os.path.join(folder, "export"))
        for number in numbers:
            faulthandler.dump_traceback_later(LONGEST, exit=True)
            verdict = fuzzing.check_text(served, f"{SEED.value} {kind} {vocabulary} {number}")
            slowest = max(slowest, verdict.seconds)
            num_refused += verdict.is_refused
            if verdict.wrong:
                num_wrong += 1
                print(
                    f"--seed={SEED.value} --kinds={kind} --vocabularies={vocabulary} "
                    f"--first={number} --number=1: {verdict.wrong}",
                    flush=True,
                )
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{kind} {vocabulary}: {len(numbers):,} requests, {num_refused:,} refused with a sentence, "
        f"{num_wrong} wrong; the slowest took {slowest:.2f} CPU seconds, "
        f"all {time.perf_counter() - begin:.0f} s",
        flush=True,
    )
    return num_wrong


def main(_: list[str]) -> None:
    faulthandler.enable()
    logging.set_verbosity(logging.ERROR)
    models = [(kind, vocabulary) for kind in KINDS.value for vocabulary in VOCABULARIES.value]
    each = -(-NUMBER.value // len(models))
    numbers = range(FIRST.value, FIRST.value + each)
    if num_wrong := sum(fuzz(*model, numbers) for model in models):
        sys.exit(f"{num_wrong} requests are wrong")


if __name__ == "__main__":
    app.run(main)
