"""Tiny models of every kind, to be exported, and requests to them."""

import dataclasses

import numpy as np
import tensorflow as tf
import tiny_checkpoints
import tiny_run

from albert_tf import tokenization, weight_names
from albert_tf.finetune_config import FinetuneConfig
from export import kinds, saved_model, sources

LONGEST, LENGTH = 16, 14
LABELS = {"classification": ("bad", "fine", "good"), "multiple_choice": tuple("ABCDE")}
OUTPUTS_OF_HEAD = {"classification": 3, "regression": 1, "multiple_choice": 1}


def settings(config, lengths=None):
    values = lengths or {"max_seq_length": LENGTH, "doc_stride": 4, "max_query_length": 5}
    return FinetuneConfig(albert=config, max_qa_length=6, **values)


def contents(kind, vocabulary=None, **changes):
    """A checkpoint of that kind; `vocabulary` is a folder, `changes` are of the config."""
    if vocabulary:
        changes["vocab_size"] = tokenization.load(str(vocabulary)).size
    found = tiny_checkpoints.make(vocabulary, **changes)
    parts = weight_names.parts(found.config)
    number = OUTPUTS_OF_HEAD.get(kind)
    shapes = {
        name: tuple(number if size == weight_names.ANY else size for size in shape)
        for part in sorted(kinds.KINDS[kind].parts)
        for name, shape in parts[part].items()
    }
    return dataclasses.replace(found, weights=tiny_checkpoints.weights(shapes))


def source(kind, vocabulary=None, lengths=None, **choices):
    """A model of that kind, of other lengths if given; `choices` are those of the user."""
    lengths = lengths and lengths._asdict()
    changes = {"max_position_embeddings": lengths["max_seq_length"]} if lengths else {}
    found = contents(kind, vocabulary, **changes)
    values = {
        "kind": kind,
        "settings": settings(found.config, lengths),
        "labels": LABELS.get(kind, ()),
        "may_be_none": kind == "span_or_none",
        "text": vocabulary is not None,
    }
    return sources.from_contents(found, kinds.Options(**(values | choices)))


def ids(found, batch=3, length=7, seed=0):
    """Token ids for a model, with padding, {name: array}."""
    rng = np.random.default_rng(seed)
    choices = [len(found.options.labels)] if found.kind.rank == 3 else []
    shape = [batch, *choices, length]
    lengths = rng.integers(2, length + 1, shape[:-1])
    mask = np.arange(length) < lengths[..., np.newaxis]
    values = {
        "input_ids": rng.integers(0, tiny_run.VOCAB, shape),
        "input_mask": mask,
        "segment_ids": mask & (np.arange(length) >= 2),
        "masked_lm_positions": rng.integers(0, length, [batch, 4]),
        "p_mask": ~mask,
    }
    return {name: tf.constant(values[name].astype(np.int32)) for name in found.inputs}


def examples(found, batch):
    """The same, a serialised tf.train.Example each."""
    rows = []
    for row in range(batch["input_ids"].shape[0]):
        feature = {
            name: tf.train.Feature(
                int64_list=tf.train.Int64List(value=value[row].numpy().reshape(-1))
            )
            for name, value in batch.items()
        }
        made = tf.train.Example(features=tf.train.Features(feature=feature))
        rows.append(made.SerializeToString())
    return tf.constant(rows, shape=[len(rows)], dtype=tf.string)


def ask_session(folder, requests):
    """Asks a SavedModel in a session of TensorFlow 1: {signature: {name: array}} -> the same."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        found = {}
        for name, inputs in requests.items():
            signature = meta.signature_def[name]
            feeds = {signature.inputs[key].name: np.array(x) for key, x in inputs.items()}
            fetches = {key: info.name for key, info in signature.outputs.items()}
            found[name] = session.run(fetches, feeds)
        return found


def exporter(tmp_path_factory):
    """A function that exports a kind without text, once: the model and its folder."""
    made = {}

    def export(kind, **choices):
        key = (kind, *choices.items())
        if key not in made:
            found = source(kind, **choices)
            folder = tmp_path_factory.mktemp(kind) / "model"
            made[key] = found, saved_model.write(found, str(folder))
        return made[key]

    return export


def expected(found, batch):
    """What the network says itself."""
    return found.kind.answer(found.network, batch, found.options)


def assert_same(answers, wanted, tolerance=1e-5):
    assert set(answers) == set(wanted)
    for name, value in wanted.items():
        if value.dtype == tf.string or value.dtype == tf.int32:
            np.testing.assert_array_equal(answers[name], value, err_msg=name)
        else:
            np.testing.assert_allclose(answers[name], value, tolerance, tolerance, err_msg=name)
