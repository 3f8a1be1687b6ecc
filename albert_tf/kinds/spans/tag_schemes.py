"""Tags of words, and the spans that they mark.

The labels follow one of three schemes:

    bio     O, B-TYPE (the first word of a span), I-TYPE (the other words)
    iobes   also E-TYPE (the last word), S-TYPE (the only word); L and U mean the same
    plain   a tag for each word, like parts of speech; each word is a span, except O

A span of words is (first word, word after the last, type).
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from albert_tf.errors import UserError

OUTSIDE = "O"
BIO, IOBES, PLAIN = "bio", "iobes", "plain"
_PREFIXED = re.compile(r"[BIESLU]-.+", re.DOTALL)
_PLACES = {"L": "E", "U": "S"}
# What the tags before and after a word in a span must be.
_AFTER = {"B": "IE", "I": "IE"}

WordSpan = tuple[int, int, str]


def find_scheme(labels: Iterable[str]) -> str:
    """Returns the scheme of labels; `UserError` if some look like B-TYPE and others do not."""
    names = [label for label in labels if label != OUTSIDE]
    prefixed = [label for label in names if _PREFIXED.fullmatch(label)]
    if not any(label[0] in "BI" for label in prefixed):
        # S-1 and E-2 alone are ordinary names.
        return PLAIN
    if len(prefixed) < len(names):
        other = next(label for label in names if not _PREFIXED.fullmatch(label))
        raise UserError(
            f"the tag {other!r} is neither O nor like {prefixed[0]!r}. Give all tags a prefix "
            "(B-, I-), or none."
        )
    return IOBES if any(label[0] in "ESLU" for label in prefixed) else BIO


def split_tag(tag: str, scheme: str) -> tuple[str, str]:
    """Returns the position of a word in its span (B, I, E, S or O), and the type of the span."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if scheme == PLAIN:
        return "S", tag
    return _PLACES.get(tag[0], tag[0]), tag[2:]


def find_spans(tags: Sequence[str], scheme: str) -> list[WordSpan]:
    """Returns the spans of any tags, valid or not, like conlleval and seqeval.

    A span begins at B and S, after O, E and S, and where the type changes. It ends before the
    next span, and before O.
    """
    spans: list[WordSpan] = []
    previous = OUTSIDE, ""
    begin = 0
    for index, tag in enumerate([*tags, OUTSIDE]):
        place, type_ = split_tag(tag, scheme)
        begins = place != OUTSIDE and (
            place in "BS" or previous[0] in "OES" or type_ != previous[1]
        )
        if previous[0] != OUTSIDE and (begins or place == OUTSIDE):
            spans.append((begin, index, previous[1]))
        if begins:
            begin = index
        previous = place, type_
    return spans


def write_tags(spans: Sequence[WordSpan], num_words: int, labels: Sequence[str]) -> list[str]:
    """Returns the tags of spans that do not overlap, in the scheme and letters of the labels."""
    scheme = find_scheme(labels)
    last, single = ("L", "U") if any(x[:2] in ("L-", "U-") for x in labels) else ("E", "S")
    tags = [OUTSIDE] * num_words
    for begin, end, type_ in spans:
        if scheme == PLAIN:
            tags[begin:end] = [type_] * (end - begin)
            continue
        tags[begin:end] = [f"B-{type_}", *[f"I-{type_}"] * (end - begin - 1)]
        if scheme == IOBES:
            place = single if end - begin == 1 else last
            tags[end - 1] = f"{place}-{type_}"
    return tags


def continue_tag(tag: str, labels: Sequence[str]) -> str:
    """Returns the tag of the tokens of a word after its first: a span begins only once."""
    place, type_ = split_tag(tag, find_scheme(labels))
    inside = f"I-{type_}"
    return inside if place in ("B", "S") and inside in labels else tag


def find_mistake(tags: Sequence[str], scheme: str) -> tuple[int, str] | None:
    """Returns the first word whose tag breaks the scheme, and why; None if the tags are valid."""
    if scheme == PLAIN:
        return None
    parts = [split_tag(tag, scheme) for tag in (*tags, OUTSIDE)]
    before, before_type = OUTSIDE, ""
    for index, (place, type_) in enumerate(parts):
        goes_on = place in ("I", "E") and before in ("B", "I") and type_ == before_type
        if place in ("I", "E") and not goes_on:
            previous = tags[index - 1] if index else "the beginning"
            return index, f"{tags[index]} follows {previous}, but no {type_} span has begun"
        if scheme == IOBES and before in _AFTER and not goes_on:
            return index - 1, f"{tags[index - 1]} is not followed by E-{before_type}"
        before, before_type = place, type_
    return None


def complete_labels(tags: Iterable[str]) -> tuple[str, ...]:
    """Returns the labels for tags that occur: sorted, O first, each type with all its prefixes."""
    names = set(tags)
    scheme = find_scheme(names)
    if scheme == PLAIN:
        return tuple(sorted(names, key=lambda tag: (tag != OUTSIDE, tag)))
    letters = "BI"
    if scheme == IOBES:
        letters = "BILU" if any(tag[:2] in ("L-", "U-") for tag in names) else "BIES"
    types = sorted({tag[2:] for tag in names if tag != OUTSIDE})
    return (OUTSIDE, *(f"{letter}-{type_}" for type_ in types for letter in letters))


def list_types(labels: Sequence[str]) -> list[str]:
    """Returns the types of spans that labels can mark, sorted."""
    scheme = find_scheme(labels)
    return sorted({split_tag(label, scheme)[1] for label in labels} - {""})


def to_word_spans(
    spans: Sequence[tuple[int, int, str]], words: Sequence[Sequence[int]]
) -> tuple[list[WordSpan], int]:
    """Converts character spans to word spans, and counts those that do not end at words."""
    starts, ends = np.array(words, np.int64).reshape(-1, 2).T
    result: list[WordSpan] = []
    num_inexact = 0
    for start, end, type_ in spans:
        # A word that two spans share belongs to the first span.
        begin = max(int(np.searchsorted(ends, start, "right")), result[-1][1] if result else 0)
        after = int(np.searchsorted(starts, end, "left"))
        if begin >= after:
            num_inexact += 1
            continue
        num_inexact += starts[begin] != start or ends[after - 1] != end
        result.append((begin, after, type_))
    return result, int(num_inexact)
