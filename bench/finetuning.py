"""Times updates, or predictions, on a task's records: sequences of different lengths.

    bin/create_finetuning_data --task=sst-2 ... --cache_dir=cache
    python bench/finetuning.py --records=cache/sst-2-train-... [--set train_batch_size=16]
    python bench/finetuning.py --records=cache/sst-2-dev-... --predict
    pip install torch==2.13.0 transformers==5.23.0
    python bench/finetuning.py --peer=compiled [--predict]        # or --peer=eager

Random weights of a base model, with the records' max_seq_length. Two windows of batches warm up,
because each new shape is compiled; the next window is timed. Predictions are for all records, after
a first pass that reads them. The peer is transformers' classifier on the lengths of the records
that were measured last (lengths.npy): 50 batches of 32, sorted by length and padded to their
longest, like `group_by_length`. Prints one line of JSON: seconds and CPU seconds per batch,
sequences per second, memory.
"""

import argparse
from collections.abc import Callable

import numpy as np
from update import PEER_CONFIG, VOCABULARY, print_numbers, time_call

LENGTHS, WARM_UP, BATCHES, BATCH = "lengths.npy", 100, 50, 32


def make_ours(
    records: str, overrides: list[str], *, predict: bool
) -> tuple[Callable[[], object], int, int]:
    """Returns a function that runs all timed batches, and the numbers of batches and sequences."""
    import tensorflow as tf

    from albert_tf import config_io
    from albert_tf.data_prep.task_data import task_dataset
    from albert_tf.pipelines import finetuning
    from albert_tf.records import features
    from albert_tf.tasks import inference
    from albert_tf.train import run_data, train_state, train_step
    from albert_tf.train.run_data import PhaseData
    from albert_tf.train_config import FinetuneConfig

    dataset = task_dataset.read(records)
    length = dataset.manifest["settings"]["max_seq_length"]
    values = {"albert": "albert_base_v2", "max_seq_length": length, "num_train_steps": 1000}
    config = config_io.load(FinetuneConfig, None, overrides, values)
    spec = dataset.task.make_features(length)
    read = tf.data.TFRecordDataset(dataset.records).batch(1000)
    lengths = np.concatenate([features.count_tokens(batch, spec) for batch in read])
    np.save(LENGTHS, lengths)
    objective = finetuning.make_objective(config, dataset.task)
    state = train_state.make_train_state(config, tf.distribute.get_strategy(), objective)
    if predict:
        run = inference.make_predict(
            config, state.strategy, state.model, dataset, num_branches=state.num_branches
        )
        run()
        return run, -(-len(lengths) // config.eval_batch_size), len(lengths)
    run_updates = train_step.make_run_updates(state)
    phase = PhaseData(config, [dataset.records])
    batches = iter(run_data.distribute_batches(state, phase))
    run_updates(batches, WARM_UP)
    return lambda: run_updates(batches, BATCHES), BATCHES, BATCHES * config.train_batch_size


def make_peer(*, is_compiled: bool, predict: bool) -> tuple[Callable[[], object], int, int]:
    """Returns the same for transformers; with `predict`, all sequences, longest first."""
    import torch
    from transformers import AlbertConfig, AlbertForSequenceClassification

    lengths, rng = np.load(LENGTHS), np.random.default_rng(0)
    model = AlbertForSequenceClassification(AlbertConfig(**PEER_CONFIG, num_labels=2))
    model = model.train(not predict)
    model = torch.compile(model, dynamic=True) if is_compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    rng.shuffle(lengths)
    chosen = np.sort(lengths if predict else lengths[: BATCHES * BATCH])[::-1]
    batches = [chosen[i : i + BATCH] for i in range(0, len(chosen), BATCH)]
    if not predict:
        rng.shuffle(batches)

    def run(sizes: np.ndarray) -> None:
        sizes = torch.tensor(sizes.copy())
        ids = torch.randint(5, VOCABULARY, (len(sizes), int(sizes.max())))
        mask = (torch.arange(ids.shape[1]) < sizes[:, None]).long()
        inputs = {"input_ids": ids, "attention_mask": mask}
        if predict:
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
    return lambda: [*map(run, batches)], len(batches), len(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", help="folder of a task's records")
    parser.add_argument("--peer", choices=("eager", "compiled"), help="time transformers")
    parser.add_argument("--predict", action="store_true", help="time predictions, not updates")
    parser.add_argument("--set", action="append", default=[], help="key=value for the config")
    given = parser.parse_args()
    if given.peer:
        made = make_peer(is_compiled=given.peer == "compiled", predict=given.predict)
    else:
        made = make_ours(given.records, given.set, predict=given.predict)
    run, count, sequences = made
    seconds, cpu_seconds = time_call(run)
    print_numbers(seconds / count, cpu_seconds / count, sequences / count)


if __name__ == "__main__":
    main()
