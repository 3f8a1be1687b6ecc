"""Masks that are drawn while records are read: statistics, whole words, and what they depend on."""

import collections
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tiny_records

from albert_tf.data_prep.pretraining_data import masking
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.records import features, online_masking
from albert_tf.records.online_masking import OnlineMasking

# Ids: 0-4 special, 5-79 starts of words, 80-99 continuations.
V, S, P = 100, 64, 20
TOKENIZER = SimpleNamespace(
    size=V,
    cls_id=2,
    sep_id=3,
    mask_id=4,
    is_word_start=np.arange(V) < 80,
    replacement_ids=np.arange(5, V, dtype=np.int32),
)


def make_masking(**changes):
    values = {"max_seq_length": S, "max_predictions_per_seq": P, "ngram": 3}
    values |= {"masked_lm_prob": 0.15, "final_masked_lm_prob": 0.15, "tokenizer": TOKENIZER}
    return OnlineMasking(**(values | changes))


def make_sequences(number, seed=0):
    """Pairs of segments of random lengths; every other one fills the sequence."""
    rng = np.random.default_rng(seed)
    for row in range(number):
        length = S - 3 if row % 2 else int(rng.integers(2, S - 2))
        first = int(rng.integers(1, length))
        first, second = np.split(rng.integers(5, V, length), [first])
        yield np.array([2, *first, 3, *second, 3], np.int32)


def find_starts(ids):
    special = np.isin(ids, [2, 3])
    return TOKENIZER.is_word_start[ids] | special | np.append(False, special[:-1])


def serialize(sequences):
    """Records without masks, [B] strings."""
    rows = [
        {
            "input_ids": ids,
            "segment_ids": np.cumsum(np.append(0, ids[:-1] == 3)),
            "token_boundary": find_starts(ids).astype(int),
            "next_sentence_labels": [len(ids) % 2],
        }
        for ids in sequences
    ]
    return tf.constant([*map(features.to_example, rows)])


def read(raw, number=0, step=0, **changes):
    batch = make_masking(**changes).read(raw, tf.constant([[number, step]] * len(raw), tf.int64))
    return {name: value.numpy() for name, value in batch.items()}


SEQUENCES = list(make_sequences(200))


@pytest.fixture(scope="module")
def raw():
    return serialize(SEQUENCES)


def test_the_batch_is_what_the_model_reads(raw):
    batch = make_masking().read(raw)
    spec = features.pretraining(S, P)
    assert batch.keys() == spec.keys()
    for name, feature in spec.items():
        assert batch[name].shape == (len(raw), *feature.shape), name
        assert batch[name].dtype == (tf.float32 if feature.dtype == tf.float32 else tf.int32)


@pytest.mark.parametrize("ngram", [1, 5])
def test_whole_words_and_nothing_special(raw, ngram):
    batch = read(raw, ngram=ngram)
    for row, ids in enumerate(SEQUENCES):
        length, count = len(ids), int(batch["masked_lm_weights"][row].sum())
        assert batch["input_mask"][row].tolist() == [1] * length + [0] * (S - length)
        assert count <= max(1, round(length * 0.15))
        assert batch["masked_lm_weights"][row].tolist() == [1] * count + [0] * (P - count)
        positions = batch["masked_lm_positions"][row]
        assert sorted(set(positions[:count])) == positions[:count].tolist()
        assert not positions[count:].any()
        assert not batch["masked_lm_ids"][row, count:].any()
        np.testing.assert_array_equal(batch["masked_lm_ids"][row, :count], ids[positions[:count]])
        assert not np.isin(ids[positions[:count]], [2, 3]).any()
        unmasked = batch["input_ids"][row].copy()
        unmasked[positions[:count]] = ids[positions[:count]]
        np.testing.assert_array_equal(unmasked, np.pad(ids, (0, S - length)))
        bounds = [*np.flatnonzero(find_starts(ids)), length]
        chosen = set(positions[:count].tolist())
        for begin, end in itertools.pairwise(bounds):
            assert len(chosen & set(range(begin, end))) in (0, end - begin)


def test_the_choice_is_that_of_visiting_word_by_word(raw):
    """The words of `masking`, visited in the order and with the lengths of the online draws."""
    keys = online_masking._make_keys(raw, tf.zeros([len(raw)], tf.int64), 0)
    batch = read(raw)
    for row, ids in enumerate(SEQUENCES):
        starts = np.flatnonzero(find_starts(ids))
        order, draws = (x[0].numpy() for x in online_masking.draw(keys[row : row + 1], len(starts)))
        barriers = np.isin(ids[starts], [2, 3]).tobytes()
        lengths = np.searchsorted(np.cumsum([6 / 11, 3 / 11]), draws / 2**32, side="right") + 1
        words = masking._Words([*starts.tolist(), len(ids)], lengths.tolist(), barriers)
        most, visited = min(P, max(1, round(len(ids) * 0.15))), np.argsort(order).tolist()
        ngrams = masking._choose_ngrams(words, bytearray(barriers), visited, most)
        expected = sorted(place for begin, end in ngrams for place in range(begin, end))
        count = int(batch["masked_lm_weights"][row].sum())
        assert batch["masked_lm_positions"][row, :count].tolist() == expected


def summarize(examples):
    """Shares that two ways to mask must have in common; examples are (ids, inputs, positions)."""
    counts, runs, kinds = (collections.Counter() for _ in range(3))
    tokens = 0
    for ids, inputs, positions in examples:
        counts[len(positions)] += 1
        tokens += len(ids)
        starts = set(np.flatnonzero(find_starts(ids)).tolist())
        for run in np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1):
            runs[min(4, sum(place in starts for place in run.tolist()))] += 1
        kinds["mask"] += int(np.sum(inputs[positions] == 4))
        kinds["kept"] += int(np.sum(inputs[positions] == ids[positions]))
        kinds["all"] += len(positions)
    shares = {f"{n} predictions": counts[n] / counts.total() for n in range(12)}
    shares |= {f"runs of {n} words": runs[n] / runs.total() for n in (1, 2, 3, 4)}
    shares |= {name: kinds[name] / kinds["all"] for name in ("mask", "kept")}
    return {**shares, "masked": kinds["all"] / tokens}


def test_the_statistics_are_those_of_records_with_masks(raw):
    config = DataConfig(max_predictions_per_seq=P, max_seq_length=S)
    passes = range(40)  # of 200 sequences: 55,000 predictions
    starts = [*map(find_starts, SEQUENCES)]
    static, online = [], []
    for number in passes:
        masked = tiny_records.mask_all(SEQUENCES, starts, TOKENIZER, number, config)
        static += [(ids, m.ids, m.positions) for ids, m in zip(SEQUENCES, masked, strict=True)]
        batch = read(raw, number)
        for row, ids in enumerate(SEQUENCES):
            count = int(batch["masked_lm_weights"][row].sum())
            online.append((ids, batch["input_ids"][row], batch["masked_lm_positions"][row, :count]))
    one, other = summarize(static), summarize(online)
    assert one["runs of 1 words"] > 0.4
    # Standard errors of the differences are at most 0.006: of half of 27,000 runs.
    for name, share in one.items():
        assert other[name] == pytest.approx(share, abs=0.02 if "runs" in name else 0.01), name


def test_every_word_is_equally_likely():
    raw = tf.repeat(serialize([np.array([2, *[7] * 20, 3, *[7] * 20, 3], np.int32)]), 3000)
    numbers = tf.stack([tf.range(3000, dtype=tf.int64), tf.zeros([3000], tf.int64)], axis=1)
    batch = make_masking(ngram=1).read(raw, numbers)
    positions = batch["masked_lm_positions"].numpy()[batch["masked_lm_weights"].numpy() > 0]
    counts = np.delete(np.bincount(positions, minlength=43), [0, 21, 42])
    assert np.abs(counts / (3000 * 6 / 40) - 1).max() < 0.2


def test_masks_depend_on_seed_pass_and_record_alone(raw):
    first = read(raw)
    for changes in ({"seed": 1}, {"number": 1}):
        other = read(raw, **changes)
        differs = (other["masked_lm_positions"] != first["masked_lm_positions"]).any(axis=1)
        assert differs.mean() > 0.9
    order = np.random.default_rng(0).permutation(len(SEQUENCES))[:7]
    part = read(tf.gather(raw, order))
    for name, value in part.items():
        np.testing.assert_array_equal(value, first[name][order], err_msg=name)


def test_the_share_to_mask_is_linear_in_the_step():
    raw = serialize([np.array([2, *[7] * 61, 3, 3], np.int32)])
    changes = {"masked_lm_prob": 0.3, "final_masked_lm_prob": 0.1, "ngram": 1}
    changes |= {"first_step": 10, "last_step": 20}
    for step, count in {0: 19, 10: 19, 15: 13, 20: 6, 30: 6}.items():
        assert read(raw, 0, step, **changes)["masked_lm_weights"].sum() == count, step


def test_rows_have_the_numbers_of_their_pass_and_step():
    batches = tf.data.Dataset.from_tensor_slices(list("abcdefghij")).batch(4, drop_remainder=True)
    numbered = online_masking.number_rows(lambda: batches, position=2, step=7, num_records=5)
    rows = [[[1, 7], [1, 7], [2, 7], [2, 7]], [[2, 8], [2, 8], [2, 8], [3, 8]]]
    assert [x[2].numpy().tolist() for x in numbered] == rows
