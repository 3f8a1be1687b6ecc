"""Tests the names, shapes and types of features against the published ones."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.kinds import task_table
from albert_tf.records import features

# {key of the published format: (length, type)}: S 7, P 5.
PUBLISHED = {
    "input_ids": ([7], tf.int64),
    "input_mask": ([7], tf.int64),
    "segment_ids": ([7], tf.int64),
    "token_boundary": ([7], tf.int64),
    "masked_lm_positions": ([5], tf.int64),
    "masked_lm_ids": ([5], tf.int64),
    "masked_lm_weights": ([5], tf.float32),
    "next_sentence_labels": ([1], tf.int64),
}


def values(seed):
    rng = np.random.default_rng(seed)
    integers = {
        name: rng.integers(0, 30000, shape)
        for name, (shape, dtype) in PUBLISHED.items()
        if dtype == tf.int64
    }
    integers["input_mask"] = np.repeat([1, 0], [5, 2])
    return {**integers, "masked_lm_weights": [1.0, 1.0, 1.0, 0.0, 0.0]}


def test_keys_shapes_and_types_are_the_published_ones():
    spec = features.pretraining(7, 5)
    published = {name: x for name, x in PUBLISHED.items() if name != "token_boundary"}  # not read
    assert {name: (f.shape, f.dtype) for name, f in spec.items()} == published
    assert all(feature.default_value is None for feature in spec.values())


def test_what_is_written_is_read():
    examples = [values(seed) for seed in range(3)]
    serialized = tf.constant([features.to_example(example) for example in examples])
    boundary = {"token_boundary": tf.io.FixedLenFeature([7], tf.int64)}
    batch = features.parse(serialized, features.pretraining(7, 5) | boundary)
    assert set(batch) == set(PUBLISHED)
    for name, (shape, dtype) in PUBLISHED.items():
        assert batch[name].shape == (3, *shape)
        assert batch[name].dtype == (tf.float32 if dtype == tf.float32 else tf.int32)
        np.testing.assert_array_equal(batch[name], [example[name] for example in examples])


def test_records_of_other_writers_are_read(tmp_path):
    """Written as the published code writes them, with a key that nobody reads."""
    path, expected = str(tmp_path / "published.tfrecord"), values(4)
    example = tf.train.Example()
    for name, value in {**expected, "unread": [3]}.items():
        feature = example.features.feature[name]
        kind = feature.float_list if name == "masked_lm_weights" else feature.int64_list
        kind.value.extend(value)
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(example.SerializeToString())
    spec = features.pretraining(7, 5)
    [batch] = list(tf.data.TFRecordDataset(path).batch(1).map(lambda x: features.parse(x, spec)))
    assert set(batch) == set(PUBLISHED) - {"token_boundary"}
    for name, value in batch.items():
        np.testing.assert_array_equal(value, [expected[name]])


@pytest.mark.parametrize(
    "spoil", [lambda v: v.pop("segment_ids"), lambda v: v.update(input_ids=[1])]
)
def test_records_of_another_shape_are_refused(spoil):
    example = values(0)
    spoil(example)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"segment_ids|input_ids"):
        features.parse(tf.constant([features.to_example(example)]), features.pretraining(7, 5))


SPANS = ("p_mask", "unique_ids", "start_positions", "end_positions", "is_impossible")
OF_KIND = {
    "classification": {"label_ids": ([1], tf.int64)},
    "regression": {"label_ids": ([1], tf.float32)},
    "multiple_choice": {"label_ids": ([1], tf.int64)},
    "span": {name: ([7 if name == "p_mask" else 1], tf.int64) for name in SPANS},
    "span_or_none": {name: ([7 if name == "p_mask" else 1], tf.int64) for name in SPANS},
    "token_classification": {"label_ids": ([7], tf.int64)},
    "multi_label": {"label_ids": ([4], tf.float32)},
}


@pytest.mark.parametrize("kind", OF_KIND)
def test_keys_shapes_and_types_of_tasks(kind):
    length = 28 if kind == "multiple_choice" else 7
    tokens = {name: ([length], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    spec = task_table.KINDS[kind].data.make_features(7, 4)
    assert {name: (f.shape, f.dtype) for name, f in spec.items()} == tokens | OF_KIND[kind]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_floats_are_floats_whatever_their_name(dtype):
    tokens = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [1] * 7)
    written = features.to_example({**tokens, "label_ids": np.array([3.8], dtype)})
    spec = task_table.KINDS["regression"].data.make_features(7)
    batch = features.parse(tf.constant([written]), spec)
    np.testing.assert_array_equal(batch["label_ids"], np.array([[3.8]], np.float32))


def to_choices(lengths, width):
    """An example of a multiple choice, whose sequences count their tokens from 1."""
    ids = [i + 1 if i < length else 0 for length in lengths for i in range(width)]
    mask = [int(x > 0) for x in ids]
    values = {"input_ids": ids, "input_mask": mask, "segment_ids": mask, "label_ids": [0]}
    return features.to_example(values)


def test_sequences_of_unlike_lengths_are_padded_and_cut_to_one():
    spec = task_table.KINDS["multiple_choice"].data.make_features(6, 2)
    raw = tf.constant([to_choices([2, 3], 3), to_choices([4, 1], 6)])
    assert features.count_tokens(raw, spec).numpy().tolist() == [3, 4]
    whole, short = features.parse(raw, spec), features.parse(raw, spec, tf.constant(4))
    assert whole["input_ids"].shape == (2, 12)
    first, second = [1, 2, 0, 0, 1, 2, 3, 0], [1, 2, 3, 4, 1, 0, 0, 0]
    assert short["input_ids"].numpy().tolist() == [first, second]
    np.testing.assert_array_equal(features.shorten(whole, spec, 4)["input_ids"], [first, second])


@pytest.mark.parametrize(("mask", "length"), [([0] * 6 + [1], None), ([1, 0, 1, 0, 0, 0, 0], 2)])
def test_padding_before_tokens_is_refused(mask, length):
    pretraining = {**values(0), "input_mask": mask}
    ids = {name: [1] * 7 for name in ("input_ids", "segment_ids")}
    text = {**ids, "input_mask": mask, "label_ids": [0]}
    choices = {name: x if name == "label_ids" else [*[1] * 7, *x] for name, x in text.items()}
    for example, spec in (
        (pretraining, features.pretraining(7, 5)),
        (text, task_table.KINDS["classification"].data.make_features(7)),
        (choices, task_table.KINDS["multiple_choice"].data.make_features(7, 2)),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match="input_mask has a token after pa"):
            features.parse(tf.constant([features.to_example(example)]), spec, length)


def test_places_beyond_a_window_hold_no_answer():
    spec = task_table.KINDS["span"].data.make_features(4)
    values = {name: [1] for name in OF_KIND["span"]}
    tokens = {name: [1, 1] for name in ("input_ids", "input_mask", "segment_ids")}
    raw = tf.constant([features.to_example({**values, **tokens, "p_mask": [0, 1]})])
    assert features.parse(raw, spec)["p_mask"].numpy().tolist() == [[0, 1, 1, 1]]


@pytest.mark.parametrize("width", [3, 14])
def test_sequences_of_an_impossible_length_are_refused(width):
    values = {name: [1] * width for name in ("input_ids", "input_mask", "segment_ids")}
    raw = tf.constant([features.to_example({**values, "label_ids": [0]})])
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_seq_length"):
        features.parse(raw, task_table.KINDS["multiple_choice"].data.make_features(6, 2))
