"""Times a pre-training update on random data: ours, or transformers' compiled by torch.

    python bench/update.py --set albert=albert_base_v2 --set max_seq_length=128 \\
        --set max_predictions_per_seq=20 --set train_batch_size=16
    pip install torch==2.13.0 transformers==5.23.0
    python bench/update.py --peer --sequences=16

Prints a line of JSON: median seconds and CPU seconds per update, sequences per second, memory. The
peer is ALBERT-base at length 128 in bfloat16 autocast, with 20 predictions, both heads, clipping
and AdamW (torch has no LAMB).
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

STEPS, VOCABULARY = 6, 30000
LENGTH, PREDICTIONS = 128, 20  # of the peer
PEER_CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def make_ours(path: str | None, overrides: list[str]) -> tuple[Callable[[], object], int]:
    """Returns a function that runs an update, after two warm-up updates, and its sequences."""
    import tensorflow as tf

    from albert_tf import config_io
    from albert_tf.objectives.all_objectives import OBJECTIVES
    from albert_tf.train import train_state, train_step
    from albert_tf.train_config import PretrainConfig

    config = config_io.load(PretrainConfig, path, overrides)
    rng, size, tokens = np.random.default_rng(0), config.train_batch_size, config.max_seq_length
    predictions, vocab_size = config.max_predictions_per_seq, config.albert.vocab_size
    batch = {
        "input_ids": rng.integers(5, vocab_size, (size, tokens)),
        "input_mask": np.ones((size, tokens)),
        "segment_ids": rng.integers(0, 2, (size, tokens)),
        "masked_lm_positions": np.sort(rng.integers(1, tokens, (size, predictions))),
        "masked_lm_ids": rng.integers(5, vocab_size, (size, predictions)),
        "next_sentence_labels": rng.integers(0, 2, (size, 1)),
    }
    batch = {name: value.astype(np.int32) for name, value in batch.items()}
    batch["masked_lm_weights"] = np.ones((size, predictions), np.float32)
    objective, here = OBJECTIVES[config.sentence_task], tf.distribute.get_strategy()
    run_updates = train_step.make_run_updates(train_state.make_train_state(config, here, objective))
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    run_updates(batches, 2)
    return lambda: run_updates(batches, 1), size


def make_peer(sequences: int) -> Callable[[], object]:
    """Returns the same for transformers."""
    import torch
    from transformers import AlbertConfig, AlbertForPreTraining

    model = torch.compile(AlbertForPreTraining(AlbertConfig(**PEER_CONFIG)).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(5, VOCABULARY, (sequences, LENGTH))
    labels = torch.full_like(ids, -100)  # not predicted
    labels[:, 1 : 1 + PREDICTIONS] = ids[:, 1 : 1 + PREDICTIONS]
    order, mask = torch.randint(0, 2, (sequences,)), torch.ones_like(ids)

    def update() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(ids, mask, labels=labels, sentence_order_label=order).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(2):
        update()
    return update


def time_call(function: Callable[[], object]) -> tuple[float, float]:
    """Returns seconds and CPU seconds."""
    start, cpu_start = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - start, time.process_time() - cpu_start


def print_numbers(seconds: float, cpu_seconds: float, sequences: float) -> None:
    """Prints the line of JSON for a batch."""
    numbers = {
        "seconds": round(seconds, 4),
        "cpu_seconds": round(cpu_seconds, 4),
        "sequences_per_second": round(sequences / seconds, 2),
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    print(json.dumps(numbers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", help="JSON file with a PretrainConfig")
    parser.add_argument("--set", action="append", default=[], help="key=value for the config")
    parser.add_argument("--steps", type=int, default=STEPS, help="updates to time")
    parser.add_argument("--peer", action="store_true", help="time transformers")
    parser.add_argument("--sequences", type=int, default=16, help="sequences per update of --peer")
    given = parser.parse_args()
    if given.peer:
        update, sequences = make_peer(given.sequences), given.sequences
    else:
        update, sequences = make_ours(given.config, given.set)
    times = [time_call(update) for _ in range(given.steps)]
    seconds, cpu_seconds = map(statistics.median, zip(*times, strict=True))
    print_numbers(seconds, cpu_seconds, sequences)


if __name__ == "__main__":
    main()
