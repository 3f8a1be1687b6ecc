"""Tags and the spans they stand for: of BIO and IOBES those that seqeval 1.2.2 lists."""

import pytest
from refusals import one_line

from albert_tf.kinds.spans import tag_schemes

# Tags, their scheme, their spans. L, U and plain tags are not as of seqeval, which knows neither.
SPANS = [
    ("O B-A I-A O B-B", "bio", [(1, 3, "A"), (4, 5, "B")]),
    ("B-A B-A I-A", "bio", [(0, 1, "A"), (1, 3, "A")]),
    ("I-A I-A I-B O I-B", "bio", [(0, 2, "A"), (2, 3, "B"), (4, 5, "B")]),
    ("B-A I-B I-B", "bio", [(0, 1, "A"), (1, 3, "B")]),
    ("S-A B-A I-A E-A", "iobes", [(0, 1, "A"), (1, 4, "A")]),
    ("B-A E-A E-A S-B I-B O", "iobes", [(0, 2, "A"), (2, 3, "A"), (3, 4, "B"), (4, 5, "B")]),
    ("U-A B-A L-A", "iobes", [(0, 1, "A"), (1, 3, "A")]),
    ("NN VB VB", "plain", [(0, 1, "NN"), (1, 2, "VB"), (2, 3, "VB")]),
    ("", "plain", []),
]


@pytest.mark.parametrize(("text", "scheme", "spans"), SPANS)
def test_tags_and_repaired_ones_have_these_spans(text, scheme, spans):
    tags = text.split()
    assert tag_schemes.find_scheme(tags) == scheme
    assert tag_schemes.find_spans(tags, scheme) == spans
    labels = tag_schemes.complete_labels(tags)
    repaired = tag_schemes.write_tags(spans, len(tags), labels)
    assert tag_schemes.find_spans(repaired, scheme) == spans
    assert tag_schemes.find_mistake(repaired, scheme) is None
    assert set(repaired) <= {*labels, "O"}


@pytest.mark.parametrize(
    ("text", "index", "reason"),
    [
        ("O I-A", 1, "I-A follows O, but no A span has begun"),
        ("I-A", 0, "I-A follows the beginning"),
        ("B-A I-A I-B", 2, "I-B follows I-A"),
        ("S-A B-B O", 1, "B-B is not followed by E-B"),
        ("S-A B-B", 1, "B-B is not followed by E-B"),
        ("B-A E-A E-A", 2, "E-A follows E-A"),
    ],
)
def test_the_first_mistake_is_found(text, index, reason):
    tags = text.split()
    place, why = tag_schemes.find_mistake(tags, tag_schemes.find_scheme(tags))
    assert place == index
    assert why.startswith(reason)


def test_labels_are_completed():
    for tags, labels in (
        ("I-B O B-A", "O B-A I-A B-B I-B"),
        ("S-A B-A", "O B-A I-A E-A S-A"),
        ("U-A B-A", "O B-A I-A L-A U-A"),
        ("VB NN", "NN VB"),
    ):
        assert tag_schemes.complete_labels(tags.split()) == tuple(labels.split())
    assert tag_schemes.list_types(("O", "B-A", "I-A", "B-B", "I-B")) == ["A", "B"]
    with one_line("'LOC' is neither O nor like 'B-PER'"):
        tag_schemes.find_scheme(["O", "B-PER", "LOC"])


def test_the_tag_goes_on_in_the_other_pieces_of_a_word():
    labels = ("O", "B-A", "I-A", "E-A", "S-A")
    continued = [tag_schemes.continue_tag(tag, labels) for tag in labels]
    assert continued == ["O", "I-A", "I-A", "E-A", "I-A"]
    assert tag_schemes.continue_tag("NN", ("NN", "VB")) == "NN"


def test_spans_of_characters_become_spans_of_words():
    words = [(0, 3), (4, 7), (7, 8), (9, 12)]
    spans, num_inexact = tag_schemes.to_word_spans([(0, 7, "A"), (9, 11, "B")], words)
    assert spans == [(0, 2, "A"), (3, 4, "B")]
    assert num_inexact == 1
    # A span of white space alone, and two in one word.
    assert tag_schemes.to_word_spans([(3, 4, "A")], words) == ([], 1)
    assert tag_schemes.to_word_spans([(0, 1, "A"), (1, 3, "B")], words) == ([(0, 1, "A")], 2)
