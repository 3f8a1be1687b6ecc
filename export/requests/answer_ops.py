"""Answers to questions about contexts, inside a graph: those of `albert_tf.tasks.span_decoding`.

W windows, S tokens of an input, Q questions. Beams: K starts of each window, M ends for each of
them. N candidates, the parts of contexts that may be answers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.records import features
from export.graph_tokenizer import code_points, normalization_ops
from export.graph_tokenizer.code_points import Characters
from export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from export.requests import window_ops
from export.requests.packing import Batch, Special
from export.requests.window_ops import Lengths, Windows

Outputs = Mapping[str, tf.Tensor]

# The model reads so many windows at once.
_BATCH = 32
# Stands for infinity, as in albert_tf.
_LIMIT = 1e30


class Settings(NamedTuple):
    """What answers are.

    Attributes:
        may_be_none: whether a question may have no answer.
        n_best_size: answers that share the probability; of logits also how many starts, and ends,
            of a window meet.
        max_answer_length: in tokens.
        null_threshold: with higher null odds the answer is that there is none.
    """

    may_be_none: bool
    n_best_size: int = 20
    max_answer_length: int = 30
    null_threshold: float = 0.0


class Pairs(NamedTuple):
    """The starts and ends that compete, positions in the input; they broadcast to `scores`.

    Attributes:
        starts: [W, K, 1]
        ends: [W, 1 or K, M]
        scores: [W, K, M] float64, of both together.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor


class Candidates(NamedTuple):
    """N parts of contexts that may be answers, those of a question side by side, best first.

    Attributes:
        questions: [N] the row of its question.
        starts: [N] first character...
        ends: [N] ...and the one after the last, without white space around.
        scores: [N] float64.
    """

    questions: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor


def make_read(
    run: Callable[[Batch], Outputs],
    tokenizer: GraphTokenizer,
    ids: Special,
    lengths: Lengths,
    settings: Settings,
) -> Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]:
    """What reads contexts for answers.

    Args:
        run: input_ids, input_mask, segment_ids and p_mask, [W, S] int32 -> start_logits and
            end_logits [W, S], or the beams of SQuAD 2.0's head: start_top_log_probs and
            start_top_index [W, K], end_top_log_probs and end_top_index [W, K * M], cls_logits [W].
        tokenizer: of the model.
        ids: of its special pieces.
        lengths: of the windows.
        settings: of the answers.

    Returns:
        questions [Q], contexts [Q] -> for each question `answer`, its text; `start` and `end`, its
        characters in the context, int32; `score` and `probability`; and if it may be none,
        `null_odds`: the higher, the more likely there is no answer. Above the threshold `answer` is
        "", from 0 to 0; the score and the probability are those of the best part all the same.
    """

    def read(questions: tf.Tensor, contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        cut, batch = window_ops.cut(questions, contexts, tokenizer, ids, lengths)
        outputs = _run_all(run, batch)
        head = _BEAMS if "start_top_index" in outputs else _LOGITS
        pairs = head.pairs(outputs, cut, settings.n_best_size)
        chars = code_points.decode(contexts)
        candidates = _candidates(pairs, _valid(pairs, cut, settings), cut, chars)
        answers = _best(candidates, chars, settings.n_best_size)
        if settings.may_be_none:
            nulls = head.null_scores(outputs)
            null = tf.math.unsorted_segment_min(nulls, cut.questions, chars.num_rows)
            odds = null - answers["score"] if head.null_competes else null
            answers = {**_unless(odds > settings.null_threshold, answers), "null_odds": odds}
        return {
            name: tf.cast(value, tf.float32) if value.dtype == tf.float64 else value
            for name, value in answers.items()
        }

    return read


def _unless(is_none: tf.Tensor, answers: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The answers, but the empty one where there is none; [Q] each."""
    empty = {"answer": "", "start": 0, "end": 0}
    return answers | {name: tf.where(is_none, x, answers[name]) for name, x in empty.items()}


def _run_all(run: Callable[[Batch], Outputs], batch: Batch) -> Outputs:
    """Runs some windows after the others, so that long contexts need no more memory.

    Left to itself, a loop in a graph starts ten rounds at once, and the first before it begins.
    """
    size = tf.shape(batch[features.INPUT_IDS])[0]

    def some(begin: tf.Tensor | int) -> Outputs:
        return run({name: rows[begin : begin + _BATCH] for name, rows in batch.items()})

    def go_on(begin, outputs):
        more = some(begin)
        return begin + _BATCH, {
            name: tf.concat([rows, more[name]], axis=0) for name, rows in outputs.items()
        }

    first = some(0)
    shapes = {name: tf.TensorShape([None, *rows.shape[1:]]) for name, rows in first.items()}
    with tf.control_dependencies(list(first.values())):
        begin = tf.identity(_BATCH)
    invariants = (tf.TensorShape([]), shapes)
    return tf.while_loop(
        lambda begin, _: begin < size, go_on, (begin, first), invariants, parallel_iterations=1
    )[1]


def _pairs_of_logits(outputs: Outputs, cut: Windows, n_best_size: int) -> Pairs:
    """The best starts with the best ends. What cannot be an answer takes the place of none."""
    place = tf.range(tf.shape(outputs["start_logits"])[1])
    starts, start_scores = _top(
        outputs["start_logits"],
        (place >= cut.best_begins[:, tf.newaxis]) & (place < cut.best_ends[:, tf.newaxis]),
        n_best_size,
    )
    context_ends = cut.firsts + cut.lengths
    ends, end_scores = _top(
        outputs["end_logits"],
        (place >= cut.firsts[:, tf.newaxis]) & (place < context_ends[:, tf.newaxis]),
        n_best_size,
    )
    scores = start_scores[:, :, tf.newaxis] + end_scores[:, tf.newaxis]
    return Pairs(starts[:, :, tf.newaxis], ends[:, tf.newaxis], scores)


def _top(logits: tf.Tensor, allowed: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """[W, count] the best positions and their scores, the first of equals first."""
    values = tf.cast(logits, tf.float64)
    scores = tf.where(allowed & tf.math.is_finite(values), values, -np.inf)
    best = tf.math.top_k(scores, tf.minimum(count, tf.shape(scores)[1]))
    return best.indices, best.values


def _pairs_of_beams(outputs: Outputs, cut: Windows, n_best_size: int) -> Pairs:
    starts = outputs["start_top_index"][:, :, tf.newaxis]
    shape = tf.concat([tf.shape(starts)[:2], [-1]], axis=0)
    end_scores = tf.reshape(tf.cast(outputs["end_top_log_probs"], tf.float64), shape)
    start_scores = tf.cast(outputs["start_top_log_probs"], tf.float64)[:, :, tf.newaxis]
    ends = tf.reshape(outputs["end_top_index"], shape)
    return Pairs(starts, ends, start_scores + end_scores)


class _Head(NamedTuple):
    """How to read the outputs of a head.

    Attributes:
        pairs: the starts and ends that compete.
        null_scores: [W] of there being no answer.
        null_competes: that score is one of answers: what counts is by how much it is better.
    """

    pairs: Callable[[Outputs, Windows, int], Pairs]
    null_scores: Callable[[Outputs], tf.Tensor]
    null_competes: bool


def _bounded(scores: tf.Tensor) -> tf.Tensor:
    """Finite numbers; a network that gives none knows no answer."""
    scores = tf.cast(scores, tf.float64)
    numbers = tf.where(tf.math.is_nan(scores), tf.constant(_LIMIT, tf.float64), scores)
    return tf.clip_by_value(numbers, -_LIMIT, _LIMIT)


_LOGITS = _Head(
    _pairs_of_logits,
    lambda outputs: _bounded(outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]),
    null_competes=True,
)
_BEAMS = _Head(
    _pairs_of_beams, lambda outputs: _bounded(outputs["cls_logits"]), null_competes=False
)


def _valid(pairs: Pairs, cut: Windows, settings: Settings) -> tf.Tensor:
    """[W, K, M] bool: an answer starts where its window has most context, and ends in it."""
    best_begins, best_ends, context_ends = (
        column[:, tf.newaxis, tf.newaxis]
        for column in (cut.best_begins, cut.best_ends, cut.firsts + cut.lengths)
    )
    return (
        tf.math.is_finite(pairs.scores)
        & (pairs.starts >= best_begins)
        & (pairs.starts < best_ends)
        & (pairs.ends >= pairs.starts)
        & (pairs.ends < pairs.starts + settings.max_answer_length)
        & (pairs.ends < context_ends)
    )


def _candidates(pairs: Pairs, valid: tf.Tensor, cut: Windows, chars: Characters) -> Candidates:
    places = tf.where(valid)
    window = places[:, 0]
    questions = tf.gather(cut.questions, window)
    tokens = tf.gather(cut.tokens - cut.firsts, window)
    firsts, lasts = (
        tokens + tf.gather_nd(tf.broadcast_to(ends, tf.shape(valid)), places)
        for ends in (pairs.starts, pairs.ends)
    )
    offsets = tf.gather(code_points.bounds(chars)[0], questions)
    is_text = code_points.number(normalization_ops.spaces(), chars.values) == 0
    begins = tf.gather(
        code_points.first_from(is_text), offsets + tf.gather(cut.token_starts, firsts)
    )
    ends = (
        tf.gather(code_points.last_before(is_text), offsets + tf.gather(cut.token_ends, lasts)) + 1
    )
    found = Candidates(
        questions, begins - offsets, ends - offsets, tf.gather_nd(pairs.scores, places)
    )
    found = _pick(found, tf.where(begins < ends)[:, 0])
    found = _pick(found, tf.argsort(found.scores, direction="DESCENDING", stable=True))
    return _pick(found, tf.argsort(found.questions, stable=True))


def _pick(candidates: Candidates, indices: tf.Tensor) -> Candidates:
    return Candidates(*(tf.gather(column, indices) for column in candidates))


def _best(candidates: Candidates, chars: Characters, n_best_size: int) -> dict[str, tf.Tensor]:
    """The best answer to each question; "" if there is none. Equal texts count once."""
    texts = _texts(candidates, chars)
    keys = tf.strings.join([tf.strings.as_string(candidates.questions), texts], separator=" ")
    values, kinds = tf.unique(keys)
    firsts = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), kinds, tf.size(values))
    found, texts = _pick(candidates, firsts), tf.gather(texts, firsts)
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(found.questions), found.questions, chars.num_rows
    )
    begins = tf.cumsum(counts, exclusive=True)
    # After all of them comes what stands for none.
    best = tf.where(counts > 0, begins, tf.size(firsts))
    scores = tf.concat([found.scores, [-_LIMIT]], axis=0)
    score = tf.gather(scores, best)
    is_kept = tf.range(tf.size(firsts)) < tf.gather(begins, found.questions) + n_best_size
    weights = tf.exp(found.scores - tf.gather(score, found.questions))
    total = tf.math.unsorted_segment_sum(
        tf.where(is_kept, weights, 0.0), found.questions, chars.num_rows
    )
    return {
        "answer": tf.gather(tf.concat([texts, [""]], axis=0), best),
        "start": tf.gather(tf.concat([found.starts, [0]], axis=0), best),
        "end": tf.gather(tf.concat([found.ends, [0]], axis=0), best),
        "score": score,
        "probability": tf.where(counts > 0, 1 / total, 1.0),
    }


def _texts(candidates: Candidates, chars: Characters) -> tf.Tensor:
    lengths = candidates.ends - candidates.starts
    offsets = tf.gather(code_points.bounds(chars)[0], candidates.questions) + candidates.starts
    owners = code_points.spread(lengths)
    places = tf.gather(offsets, owners) + code_points.places(lengths, owners)
    values = tf.gather(chars.values, places)
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return tf.strings.unicode_encode(ragged, "UTF-8")
