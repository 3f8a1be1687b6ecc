"""Makes the records of texts with tagged words: windows of tokens, and their labels.

    [CLS] part of the text [SEP]

A text that is too long becomes several overlapping windows. A word is trained and predicted in the
one window where it has the most context. W windows, T tokens of all texts, S tokens per input.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.kinds.spans import span_features, tag_schemes
from albert_tf.kinds.spans.qa_windows import Windows, Words
from albert_tf.kinds.spans.span_features import Tokens
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths

_FIRST = 1  # position of the first token, after [CLS]


CharacterSpan = tuple[int, int, str]


class TaggedText(NamedTuple):
    """A text with marked spans.

    Attributes:
        id: unique in its file; the key of its prediction.
        text: the words of a file, joined by spaces, ideographs without spaces.
        words: (first character, character after the last) of each word.
        spans: (first character, character after the last, type) of each span, None if unknown.
    """

    id: str
    text: str
    words: tuple[tuple[int, int], ...]
    spans: tuple[CharacterSpan, ...] | None


def tokenize(examples: Sequence[TaggedText], tokenizer: Tokenizer) -> tuple[Tokens, Words]:
    """Tokenizes texts, and finds the first token of each word."""
    tokens = span_features.tokenize_texts([example.text for example in examples], tokenizer)
    parts = [
        _find_first_tokens(np.array(example.words, np.int32).reshape(-1, 2), tokens, row)
        for row, example in enumerate(examples)
    ]
    rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    spans = np.concatenate(parts)
    return tokens, Words(rows, spans[:, 0], spans[:, 1], spans[:, 2])


def _find_first_tokens(spans: np.ndarray, tokens: Tokens, row: int) -> np.ndarray:
    """[N, 2] words of a text -> [N, 3], with the token that holds the word's first character.

    A token may begin before the word if it spans two words. The token is -1 if the tokenizer drops
    the whole word.
    """
    begin, end = tokens.begins[row], tokens.begins[row] + tokens.lengths[row]
    starts = np.append(tokens.starts[begin:end], np.iinfo(np.int32).max)
    first = np.searchsorted(tokens.ends[begin:end], spans[:, 0], "right")
    is_there = starts[first] < spans[:, 1]
    return np.column_stack([spans, np.where(is_there, begin + first, -1)])


def split_into_windows(tokens: Tokens, lengths: Lengths) -> Windows:
    """Splits texts into windows that overlap by half or more; an empty text also gets one."""
    size = len(tokens.lengths)
    rooms = np.full(size, lengths.max_seq_length - features.NUM_TEXT_TOKENS)
    strides = np.full(size, choose_stride(lengths))
    return span_features.make_windows(tokens, rooms, strides, np.full(size, _FIRST))


def choose_stride(lengths: Lengths) -> int:
    """Returns the number of tokens from one window of a tagged text to the next.

    It is `doc_stride`, but at most half a window, so that each word has context on both sides in
    some window.
    """
    room = lengths.max_seq_length - features.NUM_TEXT_TOKENS
    return max(1, min(lengths.doc_stride, room // 2))


def label_tokens(
    examples: Sequence[TaggedText],
    tokens: Tokens,
    words: Words,
    labels: Sequence[str],
    label_pieces: str,
) -> tuple[np.ndarray, int]:
    """Returns the labels of tokens, [T] int32, and how many spans begin or end inside a word.

    A label is 1 + its id; 0 marks a token that is not trained: in a text without tags, and, with
    `label_pieces` "first", every token of a word except the first.
    """
    ids = {tag: number for number, tag in enumerate(labels, 1)}
    # For the other tokens of a word.
    inside = {tag: ids[tag_schemes.continue_tag(tag, labels)] for tag in labels}
    result = np.zeros(len(tokens.ids), np.int32)
    bounds = np.searchsorted(words.texts, np.arange(len(examples) + 1))
    num_inexact = 0
    for row, example in enumerate(examples):
        if example.spans is None:
            continue
        spans, inexact = tag_schemes.to_word_spans(example.spans, example.words)
        num_inexact += inexact
        tags = tag_schemes.write_tags(spans, len(example.words), labels)
        firsts = words.tokens[bounds[row] : bounds[row + 1]].tolist()
        end = int(tokens.begins[row] + tokens.lengths[row])
        # From the last word back: a token that two words share has the label of the first.
        for tag, first, (_, word_end) in reversed([*zip(tags, firsts, example.words, strict=True)]):
            if first < 0:
                continue
            if label_pieces == "all":
                # Not a lone word-start symbol, which belongs to the next word.
                others = tokens.starts[first + 1 : end] < word_end
                result[first + 1 : end][others] = inside[tag]
            result[first] = ids[tag]
            end = min(first, end)
    return result, num_inexact


def make_features(
    rows: slice,
    tokens: Tokens,
    windows: Windows,
    max_seq_length: int,
    labels: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Returns the features of the N windows `rows`, [N, S] each; `labels` is [T].

    A token is labelled in the window that predicts it.
    """
    lengths = windows.lengths[rows]
    ids = np.zeros((len(lengths), max_seq_length), np.int32)
    label_ids = np.zeros_like(ids)
    columns = (lengths, windows.tokens[rows], windows.best_begins[rows], windows.best_ends[rows])
    for row, label_row, length, token, begin, end in zip(ids, label_ids, *columns, strict=True):
        row[0], row[length + 1] = tokens.cls_id, tokens.sep_id
        row[1 : length + 1] = tokens.ids[token : token + length]
        if labels is not None:
            label_row[begin:end] = labels[token + begin - _FIRST : token + end - _FIRST]
    mask = np.arange(max_seq_length) < lengths[:, np.newaxis] + features.NUM_TEXT_TOKENS
    batch = {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: np.zeros_like(mask),
    }
    return batch if labels is None else {**batch, features.LABEL_IDS: label_ids}
