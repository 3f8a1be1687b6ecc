from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data_prep.pretraining_data import record_writer, segments, shard_writer
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.masking import Masked
from albert_tf.data_prep.pretraining_data.segments import Pair
from albert_tf.records import features

S, P = 11, 4
TOKENIZER = SimpleNamespace(cls_id=2, sep_id=3)
PAIR = Pair(np.array([[130, 16_384], [1, 0]]), np.array([[7, 8, 2_000_000], [1, 0, 1]]), 1)
CONFIG = DataConfig(max_seq_length=S, max_predictions_per_seq=P)


def make_batch(pairs, positions):
    """The batch of pairs; `positions` are those of the masks, counted through all of them."""
    ids, starts = shard_writer.join_pairs(pairs, TOKENIZER)
    lengths = [segments.count_tokens(pair) + 3 for pair in pairs]
    masked = Masked(ids, np.array(positions), np.full(len(positions), 20_000), starts > 0)
    return shard_writer.make_batch(masked, lengths, pairs, CONFIG)


def test_batch():
    arrays = make_batch([PAIR, Pair(np.array([[9], [1]]), np.array([[10], [0]]), 0)], [1, 2])
    batch = {name: array.astype(int).tolist() for name, array in arrays.items()}
    assert batch == {
        "input_ids": [
            [2, 130, 16_384, 3, 7, 8, 2_000_000, 3, 0, 0, 0],
            [2, 9, 3, 10, 3, 0, 0, 0, 0, 0, 0],
        ],
        "input_mask": [[1] * 8 + [0] * 3, [1] * 5 + [0] * 6],
        "segment_ids": [[0] * 4 + [1] * 4 + [0] * 3, [0] * 3 + [1] * 2 + [0] * 6],
        "token_boundary": [[1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0], [1, 1, 1, 0, 1] + [0] * 6],
        "masked_lm_positions": [[1, 2, 0, 0], [0] * 4],
        "masked_lm_ids": [[20_000, 20_000, 0, 0], [0] * 4],
        "masked_lm_weights": [[1, 1, 0, 0], [0] * 4],
        "next_sentence_labels": [[1], [0]],
    }


def random_batch(max_int, num_examples=29, lengths=(512, 77)):
    rng = np.random.default_rng(0)
    longest, predictions = lengths
    return {
        "input_ids": rng.integers(max_int, size=(num_examples, longest)),
        "input_mask": rng.random((num_examples, longest)) < 0.5,
        "masked_lm_weights": rng.random((num_examples, predictions)) < 0.5,
        "next_sentence_labels": rng.integers(2, size=(num_examples, 1)),
    }


@pytest.mark.parametrize(
    ("max_int", "lengths"),
    [
        *((most, (13, 5)) for most in (2, 128, 129, 30_000, 1 << 21, 1 << 35, 1 << 62)),
        (30_000, (512, 77)),
        (30_000, (5000, 4000)),
    ],
)
def test_serialize_gives_the_bytes_of_protobuf(max_int, lengths):
    batch = random_batch(max_int, lengths=lengths)
    types = {name: float if "weights" in name else int for name in batch}
    rows = [{name: x[i].astype(types[name]) for name, x in batch.items()} for i in range(29)]
    assert record_writer.serialize(batch) == [features.to_example(row) for row in rows]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_reader_parses_what_is_written(tmp_path, suffix):
    batch = make_batch([PAIR] * 3, [9, 17, 18, 19, 20])
    path = str(tmp_path / f"train-00000-000-00.tfrecord{suffix}")
    record_writer.write(path, record_writer.serialize(batch))
    dataset = tf.data.TFRecordDataset(path, "GZIP" if suffix else "").batch(3)
    spec = features.pretraining(S, P)
    spec["token_boundary"] = spec["segment_ids"]
    parsed = features.parse(next(iter(dataset)), spec)
    assert parsed.keys() == batch.keys()
    for name, value in parsed.items():
        assert value.dtype == (tf.float32 if name == "masked_lm_weights" else tf.int32)
        np.testing.assert_array_equal(value, batch[name])


def test_a_failing_write_leaves_nothing(tmp_path):
    def examples():
        yield b"one"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        record_writer.write(str(tmp_path / "x.tfrecord"), examples())
    assert list(tmp_path.iterdir()) == []
