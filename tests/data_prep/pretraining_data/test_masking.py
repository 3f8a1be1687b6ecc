import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_records

from albert_tf.data_prep.pretraining_data import masking
from albert_tf.data_prep.pretraining_data.data_config import DataConfig

# Ids: 0-4 special, 5-79 starts of words, 80-99 continuations.
V = 100
TOKENIZER = SimpleNamespace(
    size=V, cls_id=2, sep_id=3, mask_id=4, replacement_ids=np.arange(5, V, dtype=np.int32)
)


def mask(ids, seed=0, **options):
    return mask_all([ids], seed, **options)[0]


def mask_all(sequences, seed=0, **options):
    config = DataConfig(**{"max_predictions_per_seq": 77, **options})
    starts = [np.array(ids) < 80 for ids in sequences]
    return list(tiny_records.mask_all(sequences, starts, TOKENIZER, seed, config))


def random_pair(seed, first=200, second=150):
    rng = np.random.default_rng(seed)
    return np.array([2, *rng.integers(5, V, first), 3, *rng.integers(5, V, second), 3])


def words(ids):
    """[(begin, end)] of all words but [CLS] and [SEP]."""
    starts = [i for i, x in enumerate(ids) if x < 80 or ids[i - 1] in (2, 3)]
    return [(a, b) for a, b in itertools.pairwise([*starts, len(ids)]) if ids[a] not in (2, 3)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ngram", [1, 3])
def test_whole_words_and_nothing_special(seed, ngram):
    sequences = [random_pair(seed), random_pair(seed, 1, 2), random_pair(seed, 90, 9)]
    made = mask_all(sequences, seed, ngram=ngram)
    for ids, masked in zip(sequences, made, strict=True):
        check_whole_words(ids, masked)
    again = mask_all(sequences, seed, ngram=ngram)
    assert [x.ids.tolist() for x in made] == [x.ids.tolist() for x in again]


def check_whole_words(ids, masked):
    assert 0 < len(masked.positions) <= max(1, round(len(ids) * 0.15))
    begins = {begin for begin, _ in words(ids)} | set(np.flatnonzero(np.isin(ids, [2, 3])))
    assert set(np.flatnonzero(masked.word_starts)) == begins
    assert masked.positions.tolist() == sorted(set(masked.positions.tolist()))
    assert not np.isin(ids[masked.positions], [2, 3]).any()
    np.testing.assert_array_equal(masked.labels, ids[masked.positions])
    rest = np.setdiff1d(np.arange(len(ids)), masked.positions)
    np.testing.assert_array_equal(masked.ids[rest], ids[rest])
    chosen = set(masked.positions.tolist())
    for begin, end in words(ids):
        assert len(chosen & set(range(begin, end))) in (0, end - begin)


@pytest.mark.parametrize(
    ("length", "cap", "expected"),
    [(512, 20, 20), (512, 77, 77), (128, 20, 19), (64, 20, 10), (5, 9, 1)],
)
def test_published_numbers_of_predictions(length, cap, expected):
    ids = [2, *[7] * (length - 3), 3, 3]
    assert len(mask(ids, max_predictions_per_seq=cap).positions) == expected


def test_a_word_that_does_not_fit_is_left_out():
    ids = [2, 7, 90, 90, 90, 3, 8, 3]
    positions = [mask(ids, seed, max_predictions_per_seq=1).positions.tolist() for seed in range(9)]
    assert positions == [[6]] * 9
    assert mask([2, 7, 90, 3, 8, 91, 3], max_predictions_per_seq=1).positions.tolist() == []


def test_replacements_are_eighty_ten_ten_and_never_special():
    inputs, labels = [], []
    for seed in range(400):
        masked = mask(random_pair(seed), seed)
        inputs.append(masked.ids[masked.positions])
        labels.append(masked.labels)
    inputs, labels = np.concatenate(inputs), np.concatenate(labels)
    kept = inputs == labels
    random = inputs[(inputs != TOKENIZER.mask_id) & ~kept]
    # Standard errors: 0.0028 and 0.0021 for 20,000 draws; a random piece is the old one in 1 of 95.
    assert np.mean(inputs == TOKENIZER.mask_id) == pytest.approx(0.8, abs=0.012)
    assert np.mean(kept) == pytest.approx(0.1 + 0.1 / 95, abs=0.009)
    assert set(random.tolist()) == set(TOKENIZER.replacement_ids.tolist())


def runs(positions):
    """Lengths of unbroken runs of positions."""
    breaks = np.flatnonzero(np.diff(positions) > 1) + 1
    return [len(run) for run in np.split(positions, breaks)]


def test_ngram_lengths():
    draws = (masking.draw_ngram_lengths(500, 3, np.random.default_rng(s)) for s in range(60))
    lengths = np.concatenate([*draws])
    shares = np.bincount(lengths)[1:] / len(lengths)
    np.testing.assert_allclose(shares, [6 / 11, 3 / 11, 2 / 11], atol=0.01)
    assert set(masking.draw_ngram_lengths(500, 1, np.random.default_rng(0))) == {1}


def test_runs_of_words_as_measured_on_the_published_code():
    ids = [2, *[7] * 300, 3, *[7] * 208, 3]
    lengths = [n for seed in range(400) for n in runs(mask(ids, seed).positions)]
    shares = np.bincount(np.minimum(lengths, 4))[1:] / len(lengths)
    # Neighbours that were chosen one by one count as one run, hence not 6:3:2.
    assert 0.48 < shares[0] < 0.58
    assert 0.24 < shares[1] < 0.30
    assert 0.14 < shares[2] < 0.21


def test_a_continuation_after_sep_is_not_glued_to_the_word_before():
    ids = [2, 7, 3, 90, 91, 8, 3]
    assert mask(ids).word_starts.tolist() == [1, 1, 1, 1, 0, 1, 1]
    options = {"max_predictions_per_seq": 2, "masked_lm_prob": 0.3, "ngram": 1}
    assert {tuple(mask(ids, seed, **options).positions) for seed in range(60)} == {(1, 5), (3, 4)}


def test_ngrams_end_at_sep():
    # With all but one word a prediction, an n-gram over [SEP] could not be avoided.
    ids = [2, 7, 8, 3, 9, 10, 3]
    for seed in range(60):
        masked = mask(ids, seed, masked_lm_prob=0.99, max_predictions_per_seq=4)
        assert not np.isin(masked.positions, [0, 3, 6]).any()


def test_every_word_is_equally_likely():
    counts = np.zeros(43)
    for seed in range(3000):
        counts[mask([2, *[7] * 20, 3, *[7] * 20, 3], seed, ngram=1).positions] += 1
    counts = np.delete(counts, [0, 21, 42])
    assert np.abs(counts / (3000 * 6 / 40) - 1).max() < 0.2
