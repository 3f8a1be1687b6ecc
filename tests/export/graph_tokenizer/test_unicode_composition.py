import unicodedata

import tensorflow as tf
import tiny_texts

from albert_tf.export.graph_tokenizer import code_points, unicode_composition


def compose(lines):
    chars = code_points.decode(tf.constant(lines))
    places = tf.range(tf.size(chars.values))
    composed, _, _ = unicode_composition.compose(chars, places)
    return [line.decode() for line in code_points.encode(composed).numpy()]


HARD = ["e\u0301\u0323 \u1100\u1161\u11a8", "o\u0308\u0304\u0308", "\u03b1\u0313\u0301\u0345x"]
HARD += ["\u0dd9\u0dcf\u0dca", "\u0cc6\u0cc2\u0cd5", "\u0301a", "", "\u1100\u0301\u1161"]


def test_text_is_composed_as_python_does():
    decoded = [line.decode(errors="replace") for line in tiny_texts.texts(5, 1500)] + HARD
    apart = [unicodedata.normalize("NFD", line) for line in decoded]
    assert compose(apart) == [unicodedata.normalize("NFC", line) for line in decoded]


def test_what_the_few_steps_rest_on():
    """Were it not so in a later Unicode, text would have to be composed otherwise."""
    pairs = unicode_composition.list_pairs()
    letters = {pair for pair in pairs if not unicodedata.combining(pair[1])}
    made_of_marks = {c for pair, c in pairs.items() if pair not in letters}
    assert len(pairs) > 12000
    # Pairs of letters do not overlap, nor does one begin with what a mark has changed.
    assert not {second for _, second in letters} & {first for first, _ in pairs}
    assert not {first for first, _ in letters} & made_of_marks
    # No mark composes with what follows, and nothing that is second comes apart.
    assert not any(unicodedata.combining(first) for first, _ in pairs)
    assert all(unicodedata.normalize("NFD", second) == second for _, second in pairs)
    for c in pairs.values():
        first, *rest = unicodedata.normalize("NFD", c)
        marks = [d for d in rest if unicodedata.combining(d)]
        assert len(marks) <= 3
        assert len(rest) - len(marks) <= 2
        # Those before it in order are no obstacle: each of them composes, too.
        for mark in rest:
            first = unicodedata.normalize("NFC", first + mark)
            assert len(first) == 1
