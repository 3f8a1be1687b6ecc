"""What the tests of training build: a tiny model, random examples, a folder of records."""

import json
import os
import pathlib
from typing import Any

import numpy as np
import sentencepiece as spm
import tensorflow as tf

from albert_tf import config, features, manifest, model, optimizers, pretraining, tokenization

SEQUENCE, PREDICTIONS, VOCAB = 14, 3, 61
TRAIN = {"train-0.tfrecord": 21, "train-1.tfrecord": 16}
EVAL = {"eval-0.tfrecord": 10}


def albert(**overrides: Any) -> config.AlbertConfig:
    values = {
        "vocab_size": VOCAB,
        "embedding_size": 6,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 10,
        "max_position_embeddings": 16,
    }
    return config.AlbertConfig(**(values | overrides))


def settings(**overrides: Any) -> config.PretrainConfig:
    values = {
        "albert": albert(),
        "max_seq_length": SEQUENCE,
        "max_predictions_per_seq": PREDICTIONS,
        "train_batch_size": 8,
        "eval_batch_size": 4,
        "num_train_steps": 12,
        "num_warmup_steps": 2,
        "learning_rate": 0.05,
        "dtype": "float32",
        "steps_per_loop": 2,
        "save_checkpoints_steps": 4,
        "eval_steps": 0,
        "shuffle_buffer_size": 10,
        "seed": 5,
    }
    values |= overrides
    values["num_warmup_steps"] = min(values["num_warmup_steps"], values["num_train_steps"] - 1)
    return config.PretrainConfig(**values)


def network(
    strategy: tf.distribute.Strategy,
    albert_config: config.AlbertConfig,
    *,
    num_train_steps: int = 100,
    task: str = "sop",
    **options: Any,
):
    """A model and its optimizer, built for the weights that are trained."""
    with strategy.scope():
        built = model.AlbertForPretraining(albert_config, seed=3, **options)
        optimizer = optimizers.make(
            "lamb", learning_rate=0.05, num_train_steps=num_train_steps, num_warmup_steps=2
        )
        optimizer.build(pretraining.trained_weights(built, task))
    return built, optimizer


def examples(number: int, seed: int = 0) -> dict[str, np.ndarray]:
    """`number` random pre-training examples, one of them padded, some predictions unused."""
    rng = np.random.default_rng(seed)
    values = {
        features.INPUT_IDS: rng.integers(5, VOCAB, (number, SEQUENCE)),
        features.INPUT_MASK: np.ones((number, SEQUENCE), int),
        features.SEGMENT_IDS: rng.integers(0, 2, (number, SEQUENCE)),
        features.TOKEN_BOUNDARY: np.ones((number, SEQUENCE), int),
        features.MASKED_LM_POSITIONS: rng.integers(0, SEQUENCE, (number, PREDICTIONS)),
        features.MASKED_LM_IDS: rng.integers(5, VOCAB, (number, PREDICTIONS)),
        features.NEXT_SENTENCE_LABELS: rng.integers(0, 2, (number, 1)),
    }
    if number:
        values[features.INPUT_MASK][number // 2, 5:] = 0
    found = {name: value.astype(np.int32) for name, value in values.items()}
    weights = rng.integers(0, 2, (number, PREDICTIONS)).astype(np.float32)
    weights[:, 0] = 1
    return {**found, features.MASKED_LM_WEIGHTS: weights}


def write_vocabulary(directory: str) -> str:
    """A real SentencePiece vocabulary of VOCAB pieces. Returns the folder."""
    os.makedirs(directory, exist_ok=True)
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 4)) for _ in range(60)]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(rng.choice(words, 9)) for _ in range(200)]),
        model_prefix=os.path.join(directory, "spiece"),
        vocab_size=VOCAB,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["(", ")", '"', "-", ".", "–", "£", "€"],
        minloglevel=2,
    )
    return directory


def write_records(
    directory: str,
    sizes: dict[str, int],
    *,
    vocabulary_sha256: str,
    examples_of: Any = examples,
    **changes: Any,
) -> str:
    """Record files of the given numbers of examples, with their manifest. Returns the folder."""
    os.makedirs(directory, exist_ok=True)
    for number, (name, size) in enumerate(sizes.items()):
        values = examples_of(size, seed=number)
        with tf.io.TFRecordWriter(os.path.join(directory, name)) as writer:
            for row in range(size):
                one = {key: value[row] for key, value in values.items()}
                writer.write(features.to_example(one))
    data = {
        "sentence_task": "sop",
        "max_seq_length": SEQUENCE,
        "max_predictions_per_seq": PREDICTIONS,
    }
    manifest.write(
        directory,
        {
            "settings": data | changes,
            "vocabulary": {"size": VOCAB, "sha256": vocabulary_sha256},
            "files": sizes,
            "statistics": {},
        },
    )
    return directory


def write_data(folder: pathlib.Path, like: str | None = None, **changes) -> str:
    """Records with a vocabulary of their own, or with that of the records in `like`."""
    vocabulary = str(folder / manifest.VOCABULARY)
    if like is None:
        write_vocabulary(vocabulary)
    else:
        tokenization.copy(f"{like}/{manifest.VOCABULARY}", vocabulary)
    sha256 = tokenization.load(vocabulary).sha256
    write_records(str(folder), TRAIN | EVAL, vocabulary_sha256=sha256, **changes)
    return str(folder)


def run(data, workdir, settings, *, strategy=None, evaluate=False, **options):
    eval_files = [f"{data}/eval-*"] if evaluate else []
    strategy = strategy or tf.distribute.get_strategy()
    pretraining.run(settings, strategy, [f"{data}/train-*"], eval_files, str(workdir), **options)


def metrics(workdir):
    lines = (pathlib.Path(workdir) / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for record in found:
        for measured in ("sequences_per_second", "seconds_left"):
            record.pop(measured, None)
    return found


def all_tensors(workdir, prefix=None):
    reader = tf.train.load_checkpoint(prefix or tf.train.latest_checkpoint(str(workdir)))
    names = [n for n in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in n]
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}


def assert_same_end(one, other):
    """Losses and every saved tensor agree to the bit."""
    assert metrics(one) == metrics(other)
    expected, actual = all_tensors(one), all_tensors(other)
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
