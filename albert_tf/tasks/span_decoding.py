"""Decodes the outputs of a span head into answers: for scoring, and inside an exported graph.

W windows, S tokens of an input, Q questions. Beams: K starts of each window, M ends for each of
them.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.records.qa_windows import Windows

Outputs = Mapping[str, tf.Tensor]

_BATCH = 512  # questions decoded at once
# Stands for infinity, which JSON cannot write.
LIMIT = 1e30


class AnswerOptions(NamedTuple):
    """Which spans are answers.

    Attributes:
        may_be_none: whether a question may have no answer.
        n_best_size: answers that share the probability; of logits also the number of starts, and of
            ends, of a window that are combined.
        max_answer_length: in tokens.
    """

    may_be_none: bool
    n_best_size: int = 20
    max_answer_length: int = 30


class Spans(NamedTuple):
    """N spans that may be answers, those of a question together, the best first.

    Attributes:
        questions: [N] int32, the row of the question.
        starts: [N] int32, the first character in the context.
        ends: [N] int32, the character after the last.
        scores: [N] float64.
    """

    questions: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor

    def select(self, indices: tf.Tensor) -> "Spans":
        """Returns the spans at `indices`."""
        return Spans(*(tf.gather(column, indices) for column in self))


class _Pairs(NamedTuple):
    """Starts and ends, positions in the input; they broadcast to the shape of `scores`.

    Attributes:
        starts: [W, K, 1]
        ends: [W, 1 or K, M]
        scores: [W, K, M] float64, of start and end together.
    """

    starts: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor


def predict(
    outputs: Mapping[str, np.ndarray],
    windows: Windows,
    examples: Sequence[Mapping[str, Any]],
    options: AnswerOptions,
) -> dict[str, dict[str, Any]]:
    """Finds the best answers to each question.

    Answers with the same text count once, with their best score.

    Args:
        outputs: for N windows in any order, `unique_ids` [N] and the outputs that `rank_spans`
            takes.
        windows: all windows of the examples.
        examples: the rows of `examples.jsonl`.
        options: which spans are answers.

    Returns:
        {id: {"prediction": text, "nbest": [{"text", "probability", "score", "start", "end"}, ...],
        "null_odds": number}}. `text` is context[start:end]; the prediction is the first text
        whatever `null_odds` is, and "" if there is no text. The higher `null_odds`, present if
        `may_be_none`, the more likely there is no answer; a threshold decides.
    """
    rows = _find_rows(np.asarray(outputs["unique_ids"]), windows)
    tensors = Windows(*(tf.constant(column, tf.int32) for column in windows))
    bounds = np.searchsorted(windows.questions, np.arange(len(examples) + 1))
    predictions: dict[str, dict[str, Any]] = {}
    for begin in range(0, len(examples), _BATCH):
        batch = examples[begin : begin + _BATCH]
        selected = slice(bounds[begin], bounds[begin + len(batch)])
        part = tensors.select(selected)
        part = part._replace(questions=part.questions - begin)
        values = {name: np.asarray(array)[rows[selected]] for name, array in outputs.items()}
        with tf.device("CPU:0"):  # where sorting is stable
            predictions |= _predict_batch(values, part, batch, options)
    return predictions


def _predict_batch(
    outputs: Outputs,
    windows: Windows,
    examples: Sequence[Mapping[str, Any]],
    options: AnswerOptions,
) -> dict[str, dict[str, Any]]:
    spans = Spans(*(column.numpy() for column in rank_spans(outputs, windows, options)))
    bounds = np.searchsorted(spans.questions, np.arange(len(examples) + 1)).tolist()
    columns = [column.tolist() for column in (spans.starts, spans.ends, spans.scores)]
    nbests = []
    for example, edges in zip(examples, itertools.pairwise(bounds), strict=True):
        candidates = zip(*(column[slice(*edges)] for column in columns), strict=True)
        nbests.append(_select_nbest(example["context"], candidates, options.n_best_size))
    best_scores = tf.constant([nbest[0]["score"] for nbest in nbests], tf.float64)
    predictions = {
        example["id"]: {"prediction": nbest[0]["text"], "nbest": nbest}
        for example, nbest in zip(examples, nbests, strict=True)
    }
    if options.may_be_none:
        odds = compute_null_odds(outputs, windows, best_scores).numpy().tolist()
        for prediction, null_odds in zip(predictions.values(), odds, strict=True):
            prediction["null_odds"] = null_odds
    return predictions


def rank_spans(outputs: Outputs, windows: Windows, options: AnswerOptions) -> Spans:
    """Ranks the spans that may be answers to each question.

    A span starts where its window has more context than any other window, and ends in the same
    window, in the context.

    Args:
        outputs: `start_logits` and `end_logits`, [W, S], or the beams of SQuAD 2.0's head:
            `start_top_log_probs` and `start_top_index` [W, K], `end_top_log_probs` and
            `end_top_index` [W, K * M] (M ends of the first start, M of the second...), `cls_logits`
            [W]. Values that are not finite never win.
        windows: columns of int32.
        options: which spans are answers.
    """
    pairs = _get_head(outputs).make_pairs(outputs, windows, options.n_best_size)
    best_begins, best_ends, context_ends = (
        column[:, tf.newaxis, tf.newaxis]
        for column in (windows.best_begins, windows.best_ends, windows.firsts + windows.lengths)
    )
    valid = (
        tf.math.is_finite(pairs.scores)
        & (pairs.starts >= best_begins)
        & (pairs.starts < best_ends)
        & (pairs.ends >= pairs.starts)
        & (pairs.ends < pairs.starts + options.max_answer_length)
        & (pairs.ends < context_ends)
    )
    indices = tf.where(valid)
    window = indices[:, 0]
    tokens = tf.gather(windows.tokens - windows.firsts, window)
    firsts, lasts = (
        tokens + tf.gather_nd(tf.broadcast_to(positions, tf.shape(valid)), indices)
        for positions in (pairs.starts, pairs.ends)
    )
    spans = Spans(
        tf.gather(windows.questions, window),
        tf.gather(windows.token_starts, firsts),
        tf.gather(windows.token_ends, lasts),
        tf.gather_nd(pairs.scores, indices),
    )
    order = tf.argsort(spans.scores, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(spans.questions, order), stable=True))
    return spans.select(order)


def compute_null_odds(outputs: Outputs, windows: Windows, best_scores: tf.Tensor) -> tf.Tensor:
    """[Q] float64: the higher, the more likely a question has no answer.

    Logits score at [CLS] that there is none: the odds are how much higher that score is than
    `best_scores`, [Q], those of the best answers.
    """
    head = _get_head(outputs)
    scores = _bound(head.score_null(outputs))
    nulls = tf.math.unsorted_segment_min(scores, windows.questions, tf.shape(best_scores)[0])
    return nulls - best_scores if head.null_competes else nulls


def _find_rows(unique_ids: np.ndarray, windows: Windows) -> np.ndarray:
    """[W] the row of each window in the outputs."""
    order = np.argsort(unique_ids)
    places = np.searchsorted(unique_ids, windows.unique_ids, sorter=order)
    rows = order[np.minimum(places, len(order) - 1)]
    assert np.array_equal(unique_ids[rows], windows.unique_ids), "outputs lack some windows"
    return rows


def _pair_logits(outputs: Outputs, windows: Windows, n_best_size: int) -> _Pairs:
    """The best starts with the best ends."""
    begins, ends = windows.firsts, windows.firsts + windows.lengths
    starts, start_scores = _find_top(
        outputs["start_logits"], windows.best_begins, windows.best_ends, n_best_size
    )
    ends, end_scores = _find_top(outputs["end_logits"], begins, ends, n_best_size)
    return _Pairs(
        starts[:, :, tf.newaxis],
        ends[:, tf.newaxis],
        start_scores[:, :, tf.newaxis] + end_scores[:, tf.newaxis],
    )


def _find_top(
    logits: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor, count: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """[W, count] the best positions from `begins` to `ends` with their scores.

    The first of equals comes first; the score of any other position is -infinity.
    """
    positions = tf.range(tf.shape(logits)[1])
    scores = tf.cast(logits, tf.float64)
    allowed = (positions >= begins[:, tf.newaxis]) & (positions < ends[:, tf.newaxis])
    scores = tf.where(allowed & tf.math.is_finite(scores), scores, -np.inf)
    top = tf.math.top_k(scores, tf.minimum(count, tf.shape(scores)[1]))
    return top.indices, top.values


def _pair_beams(outputs: Outputs, windows: Windows, n_best_size: int) -> _Pairs:
    starts = tf.cast(outputs["start_top_index"], tf.int32)[:, :, tf.newaxis]
    shape = tf.concat([tf.shape(starts)[:2], [-1]], axis=0)
    end_scores = tf.reshape(tf.cast(outputs["end_top_log_probs"], tf.float64), shape)
    start_scores = tf.cast(outputs["start_top_log_probs"], tf.float64)[:, :, tf.newaxis]
    ends = tf.reshape(tf.cast(outputs["end_top_index"], tf.int32), shape)
    return _Pairs(starts, ends, start_scores + end_scores)


class _Head(NamedTuple):
    """How the outputs of a head are read.

    Attributes:
        make_pairs: the starts and ends that compete.
        score_null: [W] scores of no answer.
        null_competes: that score compares with the scores of answers.
    """

    make_pairs: Callable[[Outputs, Windows, int], _Pairs]
    score_null: Callable[[Outputs], tf.Tensor]
    null_competes: bool


_LOGITS = _Head(
    _pair_logits,
    lambda outputs: outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0],
    null_competes=True,
)
_BEAMS = _Head(_pair_beams, lambda outputs: outputs["cls_logits"], null_competes=False)


def _get_head(outputs: Outputs) -> _Head:
    return _BEAMS if "start_top_index" in outputs else _LOGITS


def _bound(scores: tf.Tensor) -> tf.Tensor:
    """Finite float64 numbers; NaN means that there is no answer."""
    scores = tf.cast(scores, tf.float64)
    scores = tf.where(tf.math.is_nan(scores), tf.constant(LIMIT, tf.float64), scores)
    return tf.clip_by_value(scores, -LIMIT, LIMIT)


def _select_nbest(
    context: str, spans: Iterator[tuple[int, int, float]], n_best_size: int
) -> list[dict[str, Any]]:
    """The best texts; if there is none, the empty one."""
    found: dict[str, tuple[float, int, int]] = {}
    for begin, end, score in spans:
        part = context[begin:end]
        text = part.strip()
        if text and text not in found:
            start = begin + part.index(text)
            found[text] = score, start, start + len(text)
            if len(found) == n_best_size:
                break
    found = found or {"": (-LIMIT, 0, 0)}
    scores = np.array([score for score, _, _ in found.values()])
    weights = np.exp(scores - scores[0])
    return [
        {"text": text, "probability": probability, "score": score, "start": start, "end": end}
        for (text, (score, start, end)), probability in zip(
            found.items(), (weights / weights.sum()).tolist(), strict=True
        )
    ]
