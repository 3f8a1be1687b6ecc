"""Tokenizes text in a graph, as `albert_tf.tokenizers` does in Python; see README.md."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from albert_tf.export.graph_tokenizer import (
    code_points,
    normalization_ops,
    piece_offsets,
    sentencepiece_ops,
    wordpiece_ops,
)
from albert_tf.tokenizers import vocabulary_uses
from albert_tf.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.tokenizers.tokenization import MASK, Tokenizer, WordPieceConfig
from albert_tf.tokenizers.wordpiece_tokenizer import LONGEST_WORD, WordPieceTokenizer

# Ids, and the starts and ends of their spans: [B, None] int32 each.
Encoded = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class GraphTokenizer(NamedTuple):
    """Functions for a graph. Their tables are constants in it: there are no files.

    Texts are [B] UTF-8 strings; invalid bytes become U+FFFD, as in `errors="replace"`.

    Attributes:
        vocabulary: the tokenizer in Python.
        tokenize: texts -> [B, None] int32 ids, as from `Tokenizer.encode_batch`.
        tokenize_with_offsets: texts -> ids, and character offsets in the original text (start and
            end), as from `Tokenizer.encode_batch_with_offsets`.
        tokenize_with_masks: texts in which [MASK] replaces tokens -> ids, as from
            `Tokenizer.encode_with_masks`.
    """

    vocabulary: Tokenizer
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor]
    tokenize_with_offsets: Callable[[tf.Tensor], Encoded]
    tokenize_with_masks: Callable[[tf.Tensor], tf.RaggedTensor]


def make_tokenizer(tokenizer: Tokenizer) -> GraphTokenizer:
    """Returns the functions of a vocabulary.

    Raises `UserError` for a list of symbols, or a SentencePiece model with a setting that graphs do
    not support.
    """
    vocabulary_uses.check(vocabulary_uses.GRAPH, tokenizer)
    functions: tuple[Callable, ...]
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        functions = _make_sentencepiece_functions(tokenizer.backend, tokenizer)
    else:
        assert isinstance(tokenizer.config, WordPieceConfig)
        assert isinstance(tokenizer.backend, WordPieceTokenizer)
        functions = _make_wordpiece_functions(
            tokenizer.backend, tokenizer.config, tokenizer.mask_id
        )
    # One graph for each, however often it is used.
    signature = [tf.TensorSpec([None], tf.string)]
    traced = [tf.function(f, input_signature=signature, autograph=False) for f in functions]
    return GraphTokenizer(tokenizer, *traced)


def _make_sentencepiece_functions(
    backend: SentencePieceTokenizer, tokenizer: Tokenizer
) -> tuple[Callable, ...]:
    model = vocabulary_uses.read_model(backend)
    normalize = normalization_ops.make_normalize(backend.config)
    normalize_as_model = sentencepiece_ops.make_normalize(model)
    find_pieces = sentencepiece_ops.make_tokenize(model)
    expansions = piece_offsets.make_expansions(backend.expansions, tokenizer.size)

    def tokenize(texts: tf.Tensor) -> tf.RaggedTensor:
        pieces = find_pieces(normalize_as_model(normalize(code_points.decode(texts))))
        parts, sources = piece_offsets.expand(expansions, pieces.ids)
        return code_points.to_ragged(parts[:, 0], tf.gather(pieces.rows, sources), tf.size(texts))

    def tokenize_with_offsets(texts: tf.Tensor) -> Encoded:
        normalized = normalize(code_points.decode(texts))
        pieces = find_pieces(normalize_as_model(normalized))
        spans = piece_offsets.find_spans(pieces)
        parts, sources = piece_offsets.expand(expansions, pieces.ids)
        rows = tf.gather(pieces.rows, sources)
        spans = piece_offsets.expand_spans(parts, sources, spans)
        spans = piece_offsets.map_to_text(spans, rows, normalized)
        return _to_ragged((parts[:, 0], *spans), rows, texts)

    def tokenize_with_masks(texts: tf.Tensor) -> tf.RaggedTensor:
        normalized = normalize_as_model(normalize(_decode_with_masks(texts)))
        parts, closed = code_points.split_at_masks(normalized)
        # A masked word includes its word start.
        pieces = find_pieces(sentencepiece_ops.drop_last_word_starts(parts))
        expanded, sources = piece_offsets.expand(expansions, pieces.ids)
        ids, rows = expanded[:, 0], tf.gather(pieces.rows, sources)
        return code_points.join_at_masks(ids, rows, closed, tokenizer.mask_id, tf.size(texts))

    return tokenize, tokenize_with_offsets, tokenize_with_masks


def _make_wordpiece_functions(
    backend: WordPieceTokenizer, config: WordPieceConfig, mask_id: int
) -> tuple[Callable, ...]:
    longest = LONGEST_WORD[config.compat]
    keeps = config.keep_accents
    # The library decomposes characters when it drops accents.
    drops = config.lower_case if keeps is None else not keeps
    pretokenize = wordpiece_ops.make_pretokenize(backend, longest, reorders=drops)
    find_pieces = wordpiece_ops.make_tokenize(backend.pieces, longest)

    def tokenize(texts: tf.Tensor) -> tf.RaggedTensor:
        pieces = find_pieces(pretokenize(code_points.decode(texts)))
        return code_points.to_ragged(pieces.ids, pieces.rows, tf.size(texts))

    def tokenize_with_offsets(texts: tf.Tensor) -> Encoded:
        chars = code_points.decode(texts)
        pieces = find_pieces(pretokenize(chars))
        columns = (pieces.ids, *wordpiece_ops.find_spans(pieces, chars))
        return _to_ragged(columns, pieces.rows, texts)

    def tokenize_with_masks(texts: tf.Tensor) -> tf.RaggedTensor:
        parts, closed = code_points.split_at_masks(_decode_with_masks(texts))
        ids, rows, *_ = find_pieces(pretokenize(parts))
        return code_points.join_at_masks(ids, rows, closed, mask_id, tf.size(texts))

    return tokenize, tokenize_with_offsets, tokenize_with_masks


def _decode_with_masks(texts: tf.Tensor) -> code_points.CodePoints:
    return code_points.replace_string(code_points.decode(texts), MASK, code_points.MASK)


def _to_ragged(columns: Sequence[tf.Tensor], rows: tf.Tensor, texts: tf.Tensor) -> Encoded:
    ids, begins, ends = (code_points.to_ragged(column, rows, tf.size(texts)) for column in columns)
    return ids, begins, ends
