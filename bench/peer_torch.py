"""Times one pre-training update of Hugging Face's ALBERT, compiled by torch, on random data.

    python -m venv peer && peer/bin/pip install torch==2.13.0 transformers==5.23.0
    peer/bin/python bench/peer_torch.py

What a user would pick instead of this project: base, 16 x 128, 20 predictions, both heads, bfloat16
autocast, clipping, AdamW (torch has no LAMB). Prints one line of JSON, as bench/train_step.py does.
"""

import json
import resource
import statistics
import time

import torch
from transformers import AlbertConfig, AlbertForPreTraining

SEQUENCES, LENGTH, PREDICTIONS, STEPS = 16, 128, 20, 6
VOCABULARY = 30000


def make_step():
    config = AlbertConfig(
        vocab_size=VOCABULARY,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = torch.compile(AlbertForPreTraining(config).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(5, VOCABULARY, (SEQUENCES, LENGTH))
    labels = torch.full_like(ids, -100)  # not predicted
    labels[:, 1 : 1 + PREDICTIONS] = ids[:, 1 : 1 + PREDICTIONS]
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": labels,
        "sentence_order_label": torch.randint(0, 2, (SEQUENCES,)),
    }

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main():
    step = make_step()
    seconds, cpu_seconds = [], []
    for _ in range(2 + STEPS):
        start, cpu_start = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    median = statistics.median(seconds[2:])
    found = {
        "seconds": round(median, 4),
        "cpu_seconds": round(statistics.median(cpu_seconds[2:]), 4),
        "sequences_per_second": round(SEQUENCES / median, 2),
        "resident_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
