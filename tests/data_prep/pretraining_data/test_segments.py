import itertools

import numpy as np
import pytest

from albert_tf.data_prep.pretraining_data import segments
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.segments import Encoded, Pair


def to_tokens(ids):
    """Even ids start words."""
    return np.array([ids, np.array(ids) % 2 == 0])


def encoded(*lengths, first=0, file=0):
    """A document whose ids count up from `first`, so that every token tells its place."""
    tokens = to_tokens(range(first, first + sum(lengths)))
    return Encoded(tokens, [0, *np.cumsum(lengths).tolist()], file)


def pairs(documents, index=0, *, seed=0, **options):
    defaults = {"max_seq_length": 22, "max_predictions_per_seq": 1, "short_seq_prob": 0.0}
    config = DataConfig(**{**defaults, **options})
    rng = np.random.default_rng(seed)
    made = segments.make_pairs(documents, index, rng, config)
    return [Pair(pair.first[0], pair.second[0], pair.label) for pair in made]


def in_order(pair):
    """The two segments as they stood in the text."""
    return (pair.second, pair.first) if pair.label else (pair.first, pair.second)


LENGTHS = (3, 8, 5, 1, 12, 7, 30, 2, 2, 9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("one_segment", ["split", "skip"])
def test_sop_pairs_are_neighbours_in_one_document(seed, one_segment):
    document = encoded(*LENGTHS)
    made = pairs([document, encoded(5, 5, first=900)], seed=seed, one_segment=one_segment)
    text = [np.concatenate(in_order(pair)) for pair in made]
    for chunk in text:
        assert chunk.tolist() == list(range(chunk[0], chunk[0] + len(chunk)))
    if one_segment == "split":  # nothing is lost
        assert np.concatenate(text).tolist() == document.tokens[0].tolist()
    assert all(len(pair.first) and len(pair.second) for pair in made)


def test_chunks_are_the_fewest_sentences_that_reach_the_target():
    made = pairs([encoded(*LENGTHS)], sentence_task="none")
    assert [len(pair.first) + len(pair.second) for pair in made] == [29, 37, 13]
    assert all(pair.label == 0 and pair.first[-1] + 1 == pair.second[0] for pair in made)


def test_cuts_lie_between_sentences_and_are_uniform():
    document = encoded(4, 4, 4, 4, 4)
    made = (pairs([document], seed=seed, max_seq_length=23) for seed in range(400))
    cuts = [len(in_order(pair)[0]) for pair in itertools.chain(*made)]
    values, counts = np.unique(cuts, return_counts=True)
    assert values.tolist() == [4, 8, 12, 16]
    assert counts.min() > 60


@pytest.mark.parametrize(("task", "share"), [("sop", 0.5), ("nsp", 0.5), ("none", 0.0)])
def test_labels(task, share):
    documents = [encoded(*[3] * 9000), encoded(*[3] * 50, first=90_000)]
    labels = [pair.label for pair in pairs(documents, sentence_task=task)]
    assert len(labels) > 1000
    assert np.mean(labels) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_nsp_takes_random_segments_from_other_documents_and_loses_nothing(index):
    documents = [encoded(*LENGTHS, first=1000 * i) for i in range(3)]
    used, sources = set(), set()
    for seed in range(30):
        for pair in pairs(documents, index, seed=seed, sentence_task="nsp"):
            assert set(pair.first // 1000) == {index}
            others = set(pair.second // 1000)
            assert len(others) == 1
            assert (others != {index}) == bool(pair.label)
            sources |= others
            used |= {*pair.first.tolist(), *(pair.second.tolist() if pair.label == 0 else ())}
    assert sources == {0, 1, 2}
    assert used >= set(documents[index].tokens[0].tolist())


@pytest.mark.parametrize(
    ("random_from", "expected"),
    [("any", {0, 2, 3, 4}), ("same_file", {2}), ("other_file", {0, 3, 4})],
)
def test_random_segments_are_of_documents_of_the_chosen_files(random_from, expected):
    files = [0, 1, 1, 2, 2]
    documents = [encoded(*LENGTHS, first=1000 * n, file=file) for n, file in enumerate(files)]
    sources = set()
    for seed in range(30):
        for pair in pairs(documents, 1, seed=seed, sentence_task="nsp", random_from=random_from):
            if pair.label:
                sources |= set(pair.second // 1000)
    assert sources == expected


@pytest.mark.parametrize("seed", range(8))
def test_nsp_loses_nothing_of_a_split_sentence_in_any_pass(seed):
    documents = [encoded(41, 30, 2), encoded(*[3] * 60, first=900)]
    made = pairs(documents, seed=seed, sentence_task="nsp", one_segment="split")
    own = [pair.first if pair.label else np.concatenate(pair[:2]) for pair in made]
    text = documents[0].tokens[0].tolist()
    used = np.concatenate(own).tolist()
    assert used == text[: len(used)]
    assert len(used) >= len(text) - 2  # a last word alone cannot be split


def test_one_segment_is_split_at_the_start_of_a_word_or_dropped():
    document = encoded(11)
    cuts = {in_order(pair)[1][0] for seed in range(99) for pair in pairs([document], seed=seed)}
    assert cuts == {2, 4, 6, 8, 10}
    # Without a second word.
    assert pairs([Encoded(to_tokens([2, 1, 1, 1]), [0, 4])]) == []
    assert pairs([encoded(1)]) == []
    assert pairs([encoded(11)], one_segment="skip") == []


def test_one_segment_as_published():
    (pair,) = pairs([encoded(11), encoded(7, 6, 9, first=900)], one_segment="random")
    assert pair.first.tolist() == list(range(11))
    ranges = ((900, 913), (907, 922), (913, 922))
    assert pair.second.tolist() in [[*range(*ends)] for ends in ranges]
    assert pair.label == 1


def test_short_sequences():
    document = encoded(*[1] * 400)
    first = [pairs([document], seed=seed, short_seq_prob=0.4)[0] for seed in range(500)]
    lengths = [len(pair.first) + len(pair.second) for pair in first]
    assert np.mean(np.array(lengths) < 19) == pytest.approx(0.4 * 17 / 18, abs=0.06)
    assert set(lengths) == set(range(2, 20))


def popped_one_by_one(first, second, max_num_tokens):
    """Lengths after dropping one token at a time of the longer segment, of the second in a tie."""
    while first + second > max_num_tokens:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@pytest.mark.parametrize("max_num_tokens", [6, 7])
def test_truncate_to_the_published_lengths(max_num_tokens):
    rng = np.random.default_rng(0)
    for first, second in itertools.product(range(1, 13), repeat=2):
        pair = Pair(to_tokens(range(first)), to_tokens(range(second)), 1)
        cut = segments.truncate_pair(pair, max_num_tokens, rng)
        lengths = (cut.first.shape[1], cut.second.shape[1])
        assert lengths == popped_one_by_one(first, second, max_num_tokens)
        assert cut.label == 1


def test_truncate_drops_from_both_ends():
    rng = np.random.default_rng(0)
    pair = Pair(to_tokens(range(30)), to_tokens(range(4)), 0)
    cuts = [segments.truncate_pair(pair, 14, rng).first[0] for _ in range(400)]
    assert all(np.diff(cut).tolist() == [1] * 9 for cut in cuts)
    fronts = [cut[0] for cut in cuts]
    # Twenty tosses of a coin.
    assert np.mean(fronts) == pytest.approx(10, abs=0.4)
    assert np.std(fronts) == pytest.approx(5**0.5, abs=0.3)
