"""Normalizes and tokenizes text in a graph, as `albert_tf.tokenizers` does in Python."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.tokenizers.sentencepiece_tokenizer import (
    SPECIAL_PIECES,
    WORD_START,
    SentencePieceTokenizer,
)
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.tokenizers.wordpiece_tokenizer import (
    LONGEST_WORD,
    WordPieceConfig,
    WordPieceTokenizer,
)
from export.graph_tokenizer import (
    code_points,
    normalization_ops,
    piece_offsets,
    sentencepiece_ops,
    wordpiece_ops,
)
from export.graph_tokenizer.sentencepiece_ops import Pieces

MASK = SPECIAL_PIECES[-1]
# Stands for [MASK] on the way through SentencePiece, as in albert_tf.
_STAND_IN = 0xFDD0


# Ids, and the begins and ends of their spans: [B, None] int32 each.
Encoded = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class GraphTokenizer(NamedTuple):
    """Functions for a graph. Their tables are constants of it: there are no files.

    Texts are [B] strings of UTF-8. What is not becomes U+FFFD, as bytes.decode(errors="replace")
    makes of it.

    Attributes:
        tokenize: texts -> [B, None] int32 ids, those of `Tokenizer.encode_batch`.
        tokenize_with_offsets: texts -> the same, and two more of the same shape: where each piece
            begins and ends in the text as given, in characters; those of
            `Tokenizer.encode_batch_with_offsets`.
        tokenize_with_masks: texts in which [MASK] stands for a piece -> ids, those of
            `Tokenizer.encode_with_masks`.
    """

    tokenize: Callable[[tf.Tensor], tf.RaggedTensor]
    tokenize_with_offsets: Callable[[tf.Tensor], Encoded]
    tokenize_with_masks: Callable[[tf.Tensor], tf.RaggedTensor]


def make_tokenizer(tokenizer: Tokenizer) -> GraphTokenizer:
    """The functions of a vocabulary.

    Raises:
        UserError: a SentencePiece model has a setting that a graph does not know.
    """
    pieces, settings = tokenizer.backend, tokenizer.config
    if isinstance(pieces, SentencePieceTokenizer):
        functions = _make_sentencepiece_functions(pieces, tokenizer)
    else:
        assert isinstance(settings, WordPieceConfig)
        functions = _make_wordpiece_functions(pieces, settings)
    # One graph of each, however often it is used.
    signature = [tf.TensorSpec([None], tf.string)]
    return GraphTokenizer(
        *(tf.function(f, input_signature=signature, autograph=False) for f in functions)
    )


def _make_sentencepiece_functions(
    found: SentencePieceTokenizer, tokenizer: Tokenizer
) -> GraphTokenizer:
    model = sentencepiece_ops.read_model(found.processor.serialized_model_proto())
    clean = normalization_ops.make_normalize(found.config)
    normalize, cut = sentencepiece_ops.make_normalize(model), sentencepiece_ops.make_tokenize(model)
    expansions = piece_offsets.make_expansions(found.expansions, tokenizer.size)
    normalizes = bool(model.normalizer_spec.precompiled_charsmap)

    def tokenize(texts: tf.Tensor) -> tf.RaggedTensor:
        pieces = cut(normalize(clean(code_points.decode(texts))))
        ids, sources = piece_offsets.expand_ids(expansions, pieces.ids)
        return code_points.to_ragged(ids, tf.gather(pieces.rows, sources), tf.size(texts))

    def tokenize_with_offsets(texts: tf.Tensor) -> Encoded:
        cleaned = clean(code_points.decode(texts))
        pieces = cut(normalize(cleaned))
        spans = piece_offsets.find_spans(pieces, cleaned, normalizes=normalizes)
        ids, sources = piece_offsets.expand_ids(expansions, pieces.ids)
        spans = piece_offsets.expand_spans(expansions, pieces.ids, sources, spans)
        rows = tf.gather(pieces.rows, sources)
        return _to_ragged((ids, *piece_offsets.map_to_text(spans, rows, cleaned)), rows, texts)

    def tokenize_with_masks(texts: tf.Tensor) -> tf.RaggedTensor:
        chars = code_points.replace_string(code_points.decode(texts), MASK, _STAND_IN)
        pieces = cut(normalize(clean(chars)))
        num_masks = _count_value(pieces, _STAND_IN)
        # A masked word took its word start with it.
        is_before_mask = code_points.shift_left(num_masks, 0) > 0
        is_before_mask &= code_points.shift_left(pieces.rows, -1) == pieces.rows
        is_lost = is_before_mask & (pieces.ids == tokenizer.piece_to_id(WORD_START))
        ids, sources = piece_offsets.expand_ids(expansions, pieces.ids)
        num_masks, is_lost = tf.gather(num_masks, sources), tf.gather(is_lost, sources)
        copies = code_points.make_row_ids(tf.where(is_lost, 0, tf.maximum(num_masks, 1)))
        new = tf.gather(tf.where(num_masks > 0, tokenizer.mask_id, ids), copies)
        rows = tf.gather(tf.gather(pieces.rows, sources), copies)
        return code_points.to_ragged(new, rows, tf.size(texts))

    return GraphTokenizer(tokenize, tokenize_with_offsets, tokenize_with_masks)


def _count_value(pieces: Pieces, value: int) -> tf.Tensor:
    """[M] how often a character stands in each piece."""
    owners = code_points.make_row_ids(pieces.ends - pieces.begins)
    found = tf.cast(pieces.text.values == value, tf.int32)
    return tf.math.unsorted_segment_sum(found, owners, tf.size(pieces.ids))


def _make_wordpiece_functions(
    found: WordPieceTokenizer, settings: WordPieceConfig
) -> GraphTokenizer:
    longest = LONGEST_WORD[settings.compat]
    keeps = settings.keep_accents
    # The library takes characters apart where it drops accents.
    drops = settings.lower_case if keeps is None else not keeps
    split = wordpiece_ops.make_pretokenize(found, longest, reorders=drops)
    cut = wordpiece_ops.make_tokenize(found.pieces, longest)

    def tokenize(texts: tf.Tensor) -> tf.RaggedTensor:
        pieces = cut(split(code_points.decode(texts)))
        return code_points.to_ragged(pieces.ids, pieces.rows, tf.size(texts))

    def tokenize_with_offsets(texts: tf.Tensor) -> Encoded:
        chars = code_points.decode(texts)
        words = split(chars)
        pieces = cut(words)
        columns = (pieces.ids, *wordpiece_ops.find_spans(pieces, words, chars))
        return _to_ragged(columns, pieces.rows, texts)

    def tokenize_with_masks(texts: tf.Tensor) -> tf.RaggedTensor:
        chars = code_points.decode(texts)
        pieces = cut(split(code_points.replace_string(chars, MASK, wordpiece_ops.STAND_IN)))
        return code_points.to_ragged(pieces.ids, pieces.rows, tf.size(texts))

    return GraphTokenizer(tokenize, tokenize_with_offsets, tokenize_with_masks)


def _to_ragged(columns: Sequence[tf.Tensor], rows: tf.Tensor, texts: tf.Tensor) -> Encoded:
    ids, begins, ends = (code_points.to_ragged(column, rows, tf.size(texts)) for column in columns)
    return ids, begins, ends
