"""The programs one after the other, from text to guessed words: what they say and learn."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from repository import ROOT

from albert_tf.records import features
from albert_tf.tokenizers import tokenization

LENGTH, PREDICTIONS = 48, 7
# Each animal does one thing only, and the sentences of a document begin in one order only.
DOES = {"cats": "purr", "dogs": "bark", "cows": "moo", "bees": "hum", "owls": "hoot"}
ORDER = ("first", "second", "third", "fourth", "fifth", "last")
PLACES = ("garden", "house", "field", "forest", "yard", "village")


def write_corpus(path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(900):
        for ordinal in ORDER:
            animal, place = rng.choice(list(DOES)), rng.choice(PLACES)
            lines.append(f"{ordinal} the {animal} {DOES[animal]} loudly in the {place}.")
        lines.append("")
    path.write_text("\n".join(lines))


@pytest.fixture
def program(run_program, capfd):
    """Runs a program; returns what it prints and logs."""

    def run(name: str, **flags: object) -> str:
        capfd.readouterr()
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        assert not run_program(ROOT / "bin" / name, *arguments)
        return "".join(capfd.readouterr())  # stdout first

    return run


def labels(pattern: pathlib.Path) -> np.ndarray:
    raw = list(tf.data.TFRecordDataset(tf.io.gfile.glob(str(pattern))).as_numpy_iterator())
    batch = features.parse(raw, features.pretraining(LENGTH, PREDICTIONS))
    return batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"].numpy() > 0]


def unigram_entropy(train: np.ndarray, held_out: np.ndarray) -> float:
    """Mean loss, in nats, of guessing pieces by how frequent they are."""
    counts = np.bincount(train, minlength=train.max() + 1) + 1e-9
    return float(-np.log(counts[held_out] / counts.sum()).mean())


@pytest.mark.usefixtures("as_users")
def test_from_text_to_guessed_words(program, tmp_path):
    text, vocabulary, data, run = (tmp_path / x for x in ("text.txt", "vocabulary", "data", "run"))
    write_corpus(text)
    output = program("train_vocabulary", input=text, output_dir=vocabulary, vocab_size=55)
    assert "55 pieces" in output
    options = {"input": text, "vocabulary": vocabulary, "max_seq_length": LENGTH}
    options |= {"max_predictions_per_seq": PREDICTIONS, "dupe_factor": 3, "eval_fraction": 0.1}
    output = program("create_pretraining_data", output_dir=data, **options)
    assert "with label 1" in output
    config = {
        "albert": {
            "vocab_size": 55,
            "embedding_size": 24,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 48,
        },
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": PREDICTIONS,
        "train_batch_size": 32,
        "num_train_steps": 300,
        # LAMB needs a longer run: at a high rate it may collapse (docs/research/results.md).
        "optimizer": "adamw",
        "num_warmup_steps": 50,
        "learning_rate": 0.006,
        "dtype": "float32",
        "steps_per_loop": 150,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    records = {"train_files": data / "train-*", "eval_files": data / "eval-*"}
    output = program("run_pretraining", config=f"{tmp_path}/config.json", output_dir=run, **records)
    assert "step 300/300" in output
    program("evaluate_pretraining", checkpoint=run, eval_files=data / "eval-*")
    content = json.loads((run / "evaluation.json").read_text())
    entropy = unigram_entropy(labels(data / "train-*"), labels(data / "eval-*"))
    assert content["sop"]["masked_lm_loss"] < entropy - 1
    output = program("predict", model=run, text="first the bees hum [MASK] in the yard.")
    piece = output.splitlines()[1].split()[0]
    # The vocabulary is too small for whole words, and one [MASK] may be any piece of the word.
    tokenizer = tokenization.load(str(vocabulary))
    pieces = [tokenizer.id_to_piece(id_) for id_ in tokenizer.encode("loudly")]
    assert piece in pieces, pieces
