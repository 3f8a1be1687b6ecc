"""The words of a text."""

import pytest

from albert_tf.tokenizers import text_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n ", []),
        ("Ann came.", ["Ann", "came", "."]),
        ("(the U.S., e.g.)", ["(", "the", "U.S.", ",", "e.g.", ")"]),
        ("$5.50. So", ["$", "5.50", ".", "So"]),
        ("John's and James\u2019s don't", ["John", "'s", "and", "James", "\u2019s", "don't"]),
        ("'s a-b ...", ["'", "s", "a-b", ".", ".", "."]),
        ("北京is大", ["北", "京", "is", "大"]),
        ("e\u0301t\xe9\u00a0한국어", ["e\u0301t\xe9", "한국어"]),
    ],
)
def test_words(text, words):
    assert [text[begin:end] for begin, end in text_words.find_words(text)] == words
