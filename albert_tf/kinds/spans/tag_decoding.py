"""Decodes the scores of tags into spans of text, for scoring and inside an exported graph.

W windows, S tokens per input, C labels, N words, M spans.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.kinds.spans import tag_schemes
from albert_tf.kinds.spans.qa_windows import Windows, Words

_PLACES = "OBIES"


class TaggedSpans(NamedTuple):
    """M spans, in the order of the texts; [M] each.

    Attributes:
        texts: int32, the row of the text.
        starts: int32, the first character.
        ends: int32, the character after the last.
        types: int32, the index in `tag_schemes.list_types`.
        scores: float32, the mean probability of the tags of the words.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    types: tf.Tensor
    scores: tf.Tensor


def predict(
    outputs: Mapping[str, np.ndarray],
    windows: Windows,
    words: Words,
    examples: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """Finds the spans of texts.

    Args:
        outputs: `logits` [W, S, C] of all windows, in order.
        examples: the rows of `examples.jsonl`.

    Returns:
        {id: {"prediction": [{"text", "type", "start", "end", "score"}, ...]}}.
    """
    int_windows = Windows(*(tf.constant(column, tf.int32) for column in windows))
    int_words = Words(*(tf.constant(column, tf.int32) for column in words))
    with tf.device("CPU:0"):  # the logits of many texts are not copied to an accelerator
        logits = tf.constant(outputs["logits"])
        columns = [x.numpy().tolist() for x in decode(logits, int_windows, int_words, labels)]
    types = tag_schemes.list_types(labels)
    answers: list[list[dict[str, Any]]] = [[] for _ in examples]
    for row, start, end, type_, score in zip(*columns, strict=True):
        text = examples[row]["text"][start:end]
        span = {"text": text, "type": types[type_], "start": start, "end": end, "score": score}
        answers[row].append(span)
    return {
        example["id"]: {"prediction": spans}
        for example, spans in zip(examples, answers, strict=True)
    }


def decode(logits: tf.Tensor, windows: Windows, words: Words, labels: Sequence[str]) -> TaggedSpans:
    """Decodes logits [W, S, C] into the most likely tag of each word, and spans of tags.

    The tag of a word is the tag of its first token, in the window where this token has the most
    context. Tags form spans as in `tag_schemes.find_spans`. A word without a token has no tag: it
    belongs to a span if the words on both sides do.
    """
    scheme = tag_schemes.find_scheme(labels)
    kinds = tag_schemes.list_types(labels)
    parts = [tag_schemes.split_tag(label, scheme) for label in labels]
    place_of = tf.constant([_PLACES.index(place) for place, _ in parts])
    type_of = tf.constant([kinds.index(type_) if type_ else -1 for _, type_ in parts])

    words, probabilities = _read_words(logits, windows, words)
    label = tf.argmax(probabilities, -1, output_type=tf.int32)
    place, type_ = tf.gather(place_of, label), tf.gather(type_of, label)
    begins = _mark_begins(place, type_, words.texts)
    owners = tf.cumsum(tf.cast(begins, tf.int32)) - 1  # the span that a word inside belongs to
    inside = tf.where(place != 0)[:, 0]
    first = tf.where(begins)[:, 0]
    number = tf.size(first)
    segments = tf.gather(owners, inside)
    last = tf.math.unsorted_segment_max(inside, segments, number)
    scores = tf.gather(tf.reduce_max(probabilities, -1), inside)
    return TaggedSpans(
        texts=tf.gather(words.texts, first),
        starts=tf.gather(words.starts, first),
        ends=tf.gather(words.ends, last),
        types=tf.gather(type_, first),
        scores=tf.math.unsorted_segment_mean(scores, segments, number),
    )


def _read_words(logits: tf.Tensor, windows: Windows, words: Words) -> tuple[Words, tf.Tensor]:
    """Returns the words that have a token in a window, and their label probabilities, [N, C]."""
    begins = windows.tokens + windows.best_begins - windows.firsts
    window = tf.maximum(tf.searchsorted(begins, words.tokens, side="right") - 1, 0)
    index = words.tokens - tf.gather(windows.tokens, window)
    # A text may be longer than all the windows that a server reads.
    is_read = (words.tokens >= 0) & (index < tf.gather(windows.lengths, window))
    kept = tf.where(is_read)[:, 0]
    words, window, index = tf.nest.map_structure(
        lambda column: tf.gather(column, kept), (words, window, index)
    )
    index += tf.gather(windows.firsts, window)
    rows = tf.gather_nd(logits, tf.stack([window, index], -1))
    return words, tf.nn.softmax(tf.cast(rows, tf.float32))


def _mark_begins(place: tf.Tensor, type_: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
    """[N] each -> [N] bool, where spans begin, as in `tag_schemes.find_spans`."""
    before, type_before, text_before = (
        tf.concat([tf.fill([1], -1), column], 0)[:-1] for column in (place, type_, texts)
    )
    is_first = texts != text_before
    opens = _is_one_of(place, "BS") | _is_one_of(before, "OES") | (type_ != type_before)
    return (place != 0) & (is_first | opens)


def _is_one_of(place: tf.Tensor, letters: str) -> tf.Tensor:
    return tf.reduce_any([place == _PLACES.index(letter) for letter in letters], axis=0)
