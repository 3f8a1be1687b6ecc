"""Splits a text into words, to which tags belong if a text comes without words.

It follows rules, not a model; `export/graph_tokenizer/word_ops.py` does the same in a graph.

    a word is a run of characters that are not white space;
    an ideograph is a separate word;
    marks (punctuation, symbols) at the ends of a run are separate words;
    a run keeps its last full stop after a letter, if it has another one inside (U.S., e.g.);
    's at the end of a run, with either apostrophe, is a word
"""

import unicodedata

LETTER, MARK, SPACE, IDEOGRAPH, DIGIT = range(5)
STOP, APOSTROPHES, CLITICS = ".", "'\u2019", "sS"
# CJK unified ideographs with their extensions, and the compatibility ideographs.
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))

Span = tuple[int, int]


def classify(c: str) -> int:
    """Returns the kind of a character; the default is LETTER."""
    if c.isspace():
        return SPACE
    if any(first <= ord(c) <= last for first, last in _IDEOGRAPHS):
        return IDEOGRAPH
    return {"P": MARK, "S": MARK, "N": DIGIT}.get(unicodedata.category(c)[0], LETTER)


def find_words(text: str) -> list[Span]:
    """Returns the half-open spans of the words in a text, in characters."""
    kinds = {c: classify(c) for c in set(text)}
    words: list[Span] = []
    begin: int | None = None
    for index, c in enumerate(text):
        kind = kinds[c]
        if kind in (SPACE, IDEOGRAPH):
            if begin is not None:
                words += _split_run(text, begin, index, kinds)
                begin = None
            if kind == IDEOGRAPH:
                words.append((index, index + 1))
        elif begin is None:
            begin = index
    if begin is not None:
        words += _split_run(text, begin, len(text), kinds)
    return words


def _split_run(text: str, begin: int, end: int, kinds: dict[str, int]) -> list[Span]:
    first, last = begin, end
    while first < end and kinds[text[first]] == MARK:
        first += 1
    if first == end:
        return [(index, index + 1) for index in range(begin, end)]
    while kinds[text[last - 1]] == MARK:
        last -= 1
    core = [(first, last)]
    is_abbreviation = STOP in text[first:last] and kinds[text[last - 1]] == LETTER
    if is_abbreviation and last < end and text[last] == STOP:
        core = [(first, last := last + 1)]
    elif last - first > 2 and text[last - 1] in CLITICS and text[last - 2] in APOSTROPHES:
        core = [(first, last - 2), (last - 2, last)]
    marks = [(index, index + 1) for index in range(begin, first)]
    return [*marks, *core, *((index, index + 1) for index in range(last, end))]
