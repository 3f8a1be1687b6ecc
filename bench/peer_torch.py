"""Times Hugging Face's ALBERT, compiled by torch, on random data: what a user would take instead.

    python -m venv peer && peer/bin/pip install torch==2.13.0 transformers==5.23.0
    peer/bin/python bench/peer_torch.py             # an update, as bench/pretraining_update.py
    peer/bin/python bench/peer_torch.py --forward   # vectors, as bench/serve.py

ALBERT-base at length 128 in bfloat16 autocast. An update has 20 predictions, both heads, clipping
and AdamW (torch has no LAMB). Prints one line of JSON.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from transformers import AlbertConfig, AlbertForPreTraining, AlbertModel

LENGTH, PREDICTIONS, STEPS, VOCABULARY = 128, 20, 6, 30000
CONFIG = AlbertConfig(
    vocab_size=VOCABULARY,
    hidden_size=768,
    num_attention_heads=12,
    intermediate_size=3072,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def make_forward(batch):
    model = torch.compile(AlbertModel(CONFIG).eval())

    def forward():
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            model(**batch)

    return forward


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forward", action="store_true", help="time a forward pass")
    parser.add_argument("--sequences", type=int, help="default: 16 of an update, 32 of a pass")
    arguments = parser.parse_args()
    sequences = arguments.sequences or (32 if arguments.forward else 16)
    ids = torch.randint(5, VOCABULARY, (sequences, LENGTH))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    step = make_forward(batch) if arguments.forward else make_update(batch)
    times = []
    for _ in range(2 + STEPS):
        start, cpu_start = time.perf_counter(), time.process_time()
        step()
        times.append((time.perf_counter() - start, time.process_time() - cpu_start))
    median, cpu_median = (statistics.median(column[2:]) for column in zip(*times, strict=True))
    numbers = {
        "seconds": round(median, 4),
        "cpu_seconds": round(cpu_median, 4),
        "sequences_per_second": round(sequences / median, 2),
        "resident_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
