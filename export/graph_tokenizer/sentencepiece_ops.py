"""Tokenizes code points with SentencePiece in a graph, as `sentencepiece_tokenizer` does.

The op is tensorflow-text's FastSentencepieceTokenize. Of two segmentations with equal scores, it
chooses the same one as sentencepiece 0.2.2 and later. It returns no offsets, and scores unknown
characters by bytes, where sentencepiece counts characters. So it gets a modified model in which
every character is a piece: then the lengths of the pieces give their offsets.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.export.graph_tokenizer import charsmap_ops, code_points
from albert_tf.export.graph_tokenizer.code_points import CodePoints, Pieces
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.sentencepiece_proto import NORMAL, USER_DEFINED
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START

_START = ord(WORD_START)
# How much worse an unknown character scores than the least likely piece.
_UNKNOWN_PENALTY = np.float32(10)
# Score of a user-defined piece, per byte after the first.
_USER_BONUS = 0.1
# A private-use character that represents all characters that are in no piece. Unicode noncharacters
# would do, but not every server writes them.
_STRANGERS = tuple(map(chr, range(0xE000, 0xF900)))

# Characters per call. Before 2.20, the op crashes beyond 32,767 pieces, which it counts in 16 bits.
# No piece is shorter than a character.
_MOST = 32_000

_MATCHED = (NORMAL, USER_DEFINED)


def make_normalize(model: Any) -> Callable[[CodePoints], CodePoints]:
    """Returns the model's own normalization, which turns spaces into word starts.

    Offsets of the new code points are indices of the old ones.
    """
    apply_charsmap = charsmap_ops.make_apply_charsmap(model.normalizer_spec.precompiled_charsmap)

    def normalize(chars: CodePoints) -> CodePoints:
        begins, ends = code_points.get_row_limits(chars)
        text = apply_charsmap(chars._replace(starts=tf.range(tf.size(chars.values))))
        heads = begins + _count_leading_spaces(text, begins)
        is_space = text.values == code_points.SPACE
        after_space = code_points.shift_right(is_space, True)
        after_space |= code_points.mark_row_starts(text.rows)
        text = code_points.boolean_mask(text, ~(is_space & after_space))
        text = _add_word_starts(text, heads)
        is_last = code_points.shift_left(text.rows, -1) != text.rows
        next_starts = code_points.shift_left(text.starts, 0)
        text = text._replace(ends=tf.where(is_last, tf.gather(ends, text.rows), next_starts))
        # The code point before the dropped word starts has their end.
        return drop_last_word_starts(text)

    return normalize


def drop_last_word_starts(text: CodePoints) -> CodePoints:
    """Drops word starts at the end of each row."""
    places = tf.range(tf.size(text.values))
    solid = tf.where(text.values == _START, -1, places)
    last = tf.math.unsorted_segment_max(solid, text.rows, text.num_rows)
    return code_points.boolean_mask(text, places <= tf.gather(last, text.rows))


def _count_leading_spaces(text: CodePoints, begins: tf.Tensor) -> tf.Tensor:
    """[B]: how many characters at the start of each text became a space."""
    size = tf.size(text.values)
    firsts, _ = code_points.get_row_limits(text)
    places = tf.range(size) - tf.gather(firsts, text.rows)
    is_whole = text.starts - tf.gather(begins, text.rows) == places
    is_whole &= code_points.shift_left(text.starts, -1) != text.starts
    others = tf.where((text.values == code_points.SPACE) & is_whole, size, places)
    return tf.math.unsorted_segment_min(others, text.rows, text.num_rows)


def _add_word_starts(text: CodePoints, heads: tf.Tensor) -> CodePoints:
    """Adds a word start before each text, with offset `heads`, and for each space."""
    counts = 1 + tf.cast(code_points.mark_row_starts(text.rows), tf.int32)
    text = code_points.gather(text, code_points.make_row_ids(counts))
    is_head = code_points.mark_row_starts(text.rows)
    is_start = is_head | (text.values == code_points.SPACE)
    return text._replace(
        values=tf.where(is_start, _START, text.values),
        starts=tf.where(is_head, tf.gather(heads, text.rows), text.starts),
    )


def make_tokenize(model: Any) -> Callable[[CodePoints], Pieces]:
    """Returns the tokenizer for normalized text; it merges adjacent unknown pieces."""
    complete = _complete_model(model)
    *_, stranger = letters = [
        p.piece for p in complete.pieces if len(p.piece) == 1 and p.type in _MATCHED
    ]
    with tf.init_scope():
        op = tf_text.FastSentencepieceTokenizer(complete.SerializeToString())
        known = code_points.make_property(dict.fromkeys(letters, 1))
        num_characters = tf.constant([len(piece.piece) for piece in complete.pieces])
    size, unk = len(model.pieces), model.trainer_spec.unk_id

    def tokenize(text: CodePoints) -> Pieces:
        is_known = known.look_up(text.values) > 0
        spelled = text._replace(values=tf.where(is_known, text.values, ord(stranger)))
        ids = _tokenize_in_batches(op.tokenize, spelled)
        begins = tf.cumsum(tf.gather(num_characters, ids), exclusive=True)
        rows = tf.gather(text.rows, begins)
        ids = tf.where(ids < size, ids, unk)
        is_after_unk = code_points.shift_right(ids, 0) == unk
        is_more = (ids == unk) & is_after_unk & ~code_points.mark_row_starts(rows)
        ids, rows, begins = (tf.boolean_mask(column, ~is_more) for column in (ids, rows, begins))
        ends = code_points.shift_left(begins, tf.size(text.values))
        return Pieces(ids, rows, begins, ends, text)

    return tokenize


def _tokenize_in_batches(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], text: CodePoints
) -> tf.Tensor:
    """Returns the ids of all texts, in batches that the op can handle.

    A longer text is divided between words, if it has any. Its scores are then summed differently
    than in sentencepiece: if segmentations differ only by rounding, it may choose another one.
    """
    size = tf.size(text.values)
    is_first = code_points.mark_row_starts(text.rows)
    # Empty texts are left out.
    rows = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
    texts = code_points.find_previous(is_first)
    words = code_points.find_previous(text.values == _START)

    def append_batch(begin: tf.Tensor, all_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        limit = tf.minimum(begin + _MOST, size)
        after = tf.minimum(limit + 1, size)
        # The largest unit that fits.
        end = limit
        for better in (words[after], texts[after], size):
            end = tf.where((better > begin) & (better <= limit), better, end)
        part = text._replace(
            values=text.values[begin:end],
            rows=rows[begin:end] - rows[begin],
            num_rows=rows[end - 1] - rows[begin] + 1,
        )
        ids = tokenize(code_points.encode(part)).flat_values
        return end, tf.concat([all_ids, ids], axis=0)

    # No TensorArray: it now needs an op that older servers lack.
    _, all_ids = tf.while_loop(
        lambda begin, _: begin < size,
        append_batch,
        (tf.constant(0), tf.zeros([0], tf.int32)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )
    return all_ids


def _complete_model(model: Any) -> Any:
    """Adds each character that is not a piece, and last a stand-in for characters in no piece.

    The added pieces count as unknown, with sentencepiece's score for them.
    """
    complete = proto.ModelProto()
    complete.CopyFrom(model)
    complete.normalizer_spec.Clear()
    for name in ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"):
        setattr(complete.normalizer_spec, name, False)
    matched: set[str] = set()
    for piece in complete.pieces:
        if piece.type == USER_DEFINED:
            piece.score = _USER_BONUS * (len(piece.piece.encode()) - 1)
        elif piece.type != NORMAL:
            # Text never becomes such a piece: the op knows control pieces, but not all kinds.
            piece.type = proto.UNKNOWN if piece.type == proto.UNKNOWN else proto.CONTROL
            continue
        matched.add(piece.piece)
    score = min(np.float32(p.score) for p in model.pieces if p.type == NORMAL)
    letters = {WORD_START}.union(*matched)
    stranger = next(c for c in _STRANGERS if c not in letters)
    for c in [*sorted(letters - matched), stranger]:
        complete.pieces.add(piece=c, score=float(score - _UNKNOWN_PENALTY), type=NORMAL)
    return complete
