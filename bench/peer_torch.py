"""Times Hugging Face's ALBERT, compiled by torch, on random data: what a user would take instead.

    python -m venv peer && peer/bin/pip install torch==2.13.0 transformers==5.23.0
    peer/bin/python bench/peer_torch.py             # an update, as bench/pretraining_update.py
    peer/bin/python bench/peer_torch.py --lengths=lengths.npy [--eager] [--forward]

ALBERT-base at length 128 in bfloat16 autocast. An update has 20 predictions, both heads, clipping
and AdamW (torch has no LAMB). With --lengths (see bench/finetuning.py) it fine-tunes a classifier
on sequences of such lengths, 50 batches of 32 ordered by length and padded to their longest, as
`group_by_length` does; with --forward, too, it predicts all, the longest first. Prints one line of
JSON. bench/time_requests.py times requests.
"""

import argparse
import json
import resource
import time

import numpy as np
import torch
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    AlbertForSequenceClassification,
)

LENGTH, PREDICTIONS, STEPS, VOCABULARY = 128, 20, 6, 30000
BATCH = 32
CONFIG = AlbertConfig(
    vocab_size=VOCABULARY,
    hidden_size=768,
    num_attention_heads=12,
    intermediate_size=3072,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def make_update(batch):
    model = torch.compile(AlbertForPreTraining(CONFIG).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = batch["input_ids"]
    labels = torch.full_like(ids, -100)  # not predicted
    labels[:, 1 : 1 + PREDICTIONS] = ids[:, 1 : 1 + PREDICTIONS]
    order = torch.randint(0, 2, (len(ids),))

    def update():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch, labels=labels, sentence_order_label=order).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return update


def run_lengths(lengths, *, eager, forward):
    """Returns the seconds and CPU seconds of each batch, and the number of sequences."""
    config = AlbertConfig(**{**CONFIG.to_dict(), "num_labels": 2})
    model = AlbertForSequenceClassification(config).train(not forward)
    model = model if eager else torch.compile(model, dynamic=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    rng = np.random.default_rng(0)
    rng.shuffle(lengths)
    chosen = np.sort(lengths if forward else lengths[: 50 * BATCH])[::-1]
    batches = [chosen[i : i + BATCH] for i in range(0, len(chosen), BATCH)]
    if not forward:
        rng.shuffle(batches)

    def run(sizes):
        sizes = torch.tensor(sizes.copy())
        ids = torch.randint(5, VOCABULARY, (len(sizes), int(sizes.max())))
        mask = (torch.arange(ids.shape[1]) < sizes[:, None]).long()
        inputs = {"input_ids": ids, "attention_mask": mask}
        if forward:
            with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
                model(**inputs)
            return
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**inputs, labels=torch.randint(0, 2, (len(sizes),))).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for sizes in batches[:3]:
        run(sizes)
    return [time_call(lambda sizes=sizes: run(sizes)) for sizes in batches], len(chosen)


def time_call(function):
    start, cpu_start = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - start, time.process_time() - cpu_start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=16, help="of an update")
    parser.add_argument("--steps", type=int, default=STEPS, help="to time, after two to warm up")
    parser.add_argument("--lengths", help="lengths.npy: fine-tune on sequences of these lengths")
    parser.add_argument("--forward", action="store_true", help="with --lengths: predict")
    parser.add_argument("--eager", action="store_true", help="with --lengths: do not compile")
    arguments = parser.parse_args()
    if arguments.lengths:
        options = {"eager": arguments.eager, "forward": arguments.forward}
        times, sequences = run_lengths(np.load(arguments.lengths), **options)
        print_numbers(np.mean(times, axis=0), sequences / len(times))
        return
    sequences = arguments.sequences
    ids = torch.randint(5, VOCABULARY, (sequences, LENGTH))
    step = make_update({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    times = []
    for _ in range(2 + arguments.steps):
        times.append(time_call(step))
    print_numbers(np.median(times[2:], axis=0), sequences)


def print_numbers(times, sequences):
    seconds, cpu_seconds = times
    numbers = {
        "seconds": round(seconds, 4),
        "cpu_seconds": round(cpu_seconds, 4),
        "sequences_per_second": round(sequences / seconds, 2),
        "resident_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
