"""Scores of tags become spans: as `tag_schemes` makes them of the likeliest tags."""

import numpy as np

from albert_tf.kinds.spans import qa_windows, tag_decoding, tag_schemes

LABELS = ("O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B", "S-B")


def decode(tags, probability=0.9, tokenless=None, most=99):
    """Each text in one window, each word one token of one character; the word `tokenless` none.

    A window reads at most `most` words.
    """
    counts = [len(row) for row in tags]
    size = max(counts) + 2
    logits = np.zeros((len(tags), min(size, most + 2), len(LABELS)), np.float32)
    for row, names in enumerate(tags):
        for place, name in enumerate(names[:most], 1):
            logits[row, place, LABELS.index(name)] = np.log(8 * probability / (1 - probability))
    starts = np.concatenate([2 * np.arange(count) for count in counts])
    ones = np.ones(len(tags), int)
    windows = qa_windows.Windows(
        unique_ids=np.arange(len(tags)),
        questions=np.arange(len(tags)),
        firsts=ones,
        lengths=np.minimum(counts, most),
        tokens=np.cumsum([0, *counts])[:-1],
        best_begins=ones,
        best_ends=ones + counts,
        token_starts=starts,
        token_ends=starts + 1,
    )
    texts = np.repeat(np.arange(len(tags)), counts)
    words = qa_windows.Words(texts, starts, starts + 1, np.arange(sum(counts)))
    if tokenless is not None:
        starts = starts + 2 * (starts >= 2 * tokenless)
        places = np.searchsorted(texts, np.arange(len(tags))) + tokenless
        columns = (texts, starts, starts + 1, words.tokens)
        added = (np.arange(len(tags)), 2 * tokenless, 2 * tokenless + 1, -1)
        pairs = zip(columns, added, strict=True)
        words = qa_windows.Words(*(np.insert(column, places, value) for column, value in pairs))
    examples = [{"id": str(row), "text": "ab" * (count + 1)} for row, count in enumerate(counts)]
    return tag_decoding.predict({"logits": logits}, windows, words, examples, LABELS)


def test_random_tags_make_the_spans_of_the_scheme():
    rng = np.random.default_rng(0)
    tags = [[LABELS[k] for k in rng.integers(0, 9, rng.integers(0, 12))] for _ in range(200)]
    predictions = decode(tags)
    assert list(predictions) == [str(row) for row in range(200)]
    number = 0
    for names, prediction in zip(tags, predictions.values(), strict=True):
        found = prediction["prediction"]
        spans = [(x["start"] // 2, (x["end"] + 1) // 2, x["type"]) for x in found]
        assert spans == tag_schemes.find_spans(names, "iobes")
        number += len(spans)
    assert number > 500


def test_a_span_has_its_text_and_the_mean_of_its_words():
    (prediction,) = decode([["O", "B-A", "E-A"]]).values()
    (span,) = prediction["prediction"]
    assert span["text"] == "aba"
    np.testing.assert_allclose(span["score"], 0.9, 1e-5)


def test_a_word_without_token_is_inside_if_the_words_on_both_sides_are():
    tags = [["B-A", "I-A"], ["O", "I-A"], ["B-A", "O"], ["B-A", "B-A"], ["B-A", "I-B"], ["B-A"]]
    predictions = decode(tags, tokenless=1).values()
    texts = [[span["text"] for span in prediction["prediction"]] for prediction in predictions]
    assert texts == [["ababa"], ["a"], ["a"], ["a", "a"], ["a", "a"], ["a"]]
    # Words after the last window have no tag: a server reads so many windows of a text.
    (prediction,) = decode([["B-A", "I-A", "O", "B-B", "I-B"]], most=2).values()
    assert [span["text"] for span in prediction["prediction"]] == ["aba"]
