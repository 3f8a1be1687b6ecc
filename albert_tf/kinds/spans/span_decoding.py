"""Decodes the outputs of a span head into answers, for scoring and inside an exported graph.

W windows, S tokens per input, Q questions. Beams: K starts per window, M ends per start.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.kinds.spans.qa_windows import AnswerOptions, Windows

Outputs = Mapping[str, tf.Tensor]
_Pairs = tuple[tf.Tensor, tf.Tensor, tf.Tensor]

_BATCH = 512  # questions decoded at once
# Represents infinity, which JSON cannot write.
LIMIT = 1e30


class Spans(NamedTuple):
    """N candidate answers, grouped by question, best first.

    `questions`, [N] int32, are the rows of the questions; `starts` and `ends`, [N] int32, are
    character offsets in the context, the end exclusive; `scores` are [N] float64.
    """

    questions: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor

    def select(self, indices: tf.Tensor) -> "Spans":
        return Spans(*(tf.gather(column, indices) for column in self))


def predict(
    outputs: Mapping[str, np.ndarray],
    windows: Windows,
    examples: Sequence[Mapping[str, Any]],
    options: AnswerOptions,
) -> dict[str, dict[str, Any]]:
    """Finds the best answers to each question. Equal texts count once, with the best score.

    Args:
        outputs: the arguments of `rank_spans` for all windows, in order.
        examples: the rows of `examples.jsonl`.

    Returns:
        {id: {"prediction": text, "nbest": [{"text", "probability", "score", "start", "end"}, ...],
        "null_odds": number}}. `text` is context[start:end]; the prediction is the first text
        whatever `null_odds` is, and "" if there is no text. The higher `null_odds`, present if
        `may_be_none`, the more likely there is no answer; a threshold decides.
    """
    tensors = Windows(*(tf.constant(column, tf.int32) for column in windows))
    bounds = np.searchsorted(windows.questions, np.arange(len(examples) + 1))
    predictions: dict[str, dict[str, Any]] = {}
    for begin in range(0, len(examples), _BATCH):
        batch = examples[begin : begin + _BATCH]
        selected = slice(bounds[begin], bounds[begin + len(batch)])
        part = tensors.select(selected)
        part = part._replace(questions=part.questions - begin)
        values = {name: array[selected] for name, array in outputs.items()}
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
    """Ranks the candidate answers to each question.

    A span starts where its window has more context than any other window, and ends in the same
    window, in the context.

    Args:
        outputs: `start_logits` and `end_logits`, [W, S], or the beams of SQuAD 2.0's head:
            `start_top_log_probs` and `start_top_index` [W, K], `end_top_log_probs` and
            `end_top_index` [W, K * M] (M ends of the first start, M of the second...), `cls_logits`
            [W]. Values that are not finite never win.
        windows: columns of int32.
    """
    pair = _pair_beams if "start_top_index" in outputs else _pair_logits
    starts, ends, scores = pair(outputs, windows, options.n_best_size)
    best_begins, best_ends, context_ends = (
        column[:, tf.newaxis, tf.newaxis]
        for column in (windows.best_begins, windows.best_ends, windows.firsts + windows.lengths)
    )
    valid = (
        tf.math.is_finite(scores)
        & (starts >= best_begins)
        & (starts < best_ends)
        & (ends >= starts)
        & (ends < starts + options.max_answer_length)
        & (ends < context_ends)
    )
    indices = tf.where(valid)
    window = indices[:, 0]
    tokens = tf.gather(windows.tokens - windows.firsts, window)
    firsts, lasts = (
        tokens + tf.gather_nd(tf.broadcast_to(positions, tf.shape(valid)), indices)
        for positions in (starts, ends)
    )
    spans = Spans(
        tf.gather(windows.questions, window),
        tf.gather(windows.token_starts, firsts),
        tf.gather(windows.token_ends, lasts),
        tf.gather_nd(scores, indices),
    )
    order = tf.argsort(spans.scores, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(spans.questions, order), stable=True))
    return spans.select(order)


def compute_null_odds(outputs: Outputs, windows: Windows, best_scores: tf.Tensor) -> tf.Tensor:
    """[Q] float64: the higher, the more likely the question has no answer.

    With beams, it is the classifier's output. With logits, it is the score at [CLS]: the
    difference to `best_scores`, [Q], the scores of the best answers. NaN means no answer.
    """
    has_beams = "start_top_index" in outputs
    if has_beams:
        scores = outputs["cls_logits"]
    else:
        scores = outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]
    scores = tf.cast(scores, tf.float64)
    scores = tf.where(tf.math.is_nan(scores), tf.constant(LIMIT, tf.float64), scores)
    bounded = tf.clip_by_value(scores, -LIMIT, LIMIT)
    nulls = tf.math.unsorted_segment_min(bounded, windows.questions, tf.size(best_scores))
    return nulls if has_beams else nulls - best_scores


def _pair_logits(outputs: Outputs, windows: Windows, n_best_size: int) -> _Pairs:
    """The best starts [W, K, 1], the best ends [W, 1, K], and their scores together [W, K, K]."""
    starts, start_scores = _find_top(
        outputs["start_logits"], windows.best_begins, windows.best_ends, n_best_size
    )
    ends, end_scores = _find_top(
        outputs["end_logits"], windows.firsts, windows.firsts + windows.lengths, n_best_size
    )
    scores = start_scores[:, :, tf.newaxis] + end_scores[:, tf.newaxis]
    return starts[:, :, tf.newaxis], ends[:, tf.newaxis], scores


def _find_top(
    logits: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor, count: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """[W, count] the best positions from `begins` to `ends`, with their scores.

    Equal scores keep their order; any other position has the score -infinity.
    """
    positions = tf.range(tf.shape(logits)[1])
    scores = tf.cast(logits, tf.float64)
    allowed = (positions >= begins[:, tf.newaxis]) & (positions < ends[:, tf.newaxis])
    scores = tf.where(allowed & tf.math.is_finite(scores), scores, -np.inf)
    top = tf.math.top_k(scores, tf.minimum(count, tf.shape(scores)[1]))
    return top.indices, top.values


def _pair_beams(outputs: Outputs, windows: Windows, n_best_size: int) -> _Pairs:
    """The starts [W, K, 1], their ends [W, K, M], and their scores together [W, K, M]."""
    starts = tf.cast(outputs["start_top_index"], tf.int32)[:, :, tf.newaxis]
    shape = tf.concat([tf.shape(starts)[:2], [-1]], axis=0)
    end_scores = tf.reshape(tf.cast(outputs["end_top_log_probs"], tf.float64), shape)
    start_scores = tf.cast(outputs["start_top_log_probs"], tf.float64)[:, :, tf.newaxis]
    ends = tf.reshape(tf.cast(outputs["end_top_index"], tf.int32), shape)
    return starts, ends, start_scores + end_scores


def _select_nbest(
    context: str, spans: Iterator[tuple[int, int, float]], n_best_size: int
) -> list[dict[str, Any]]:
    """The best texts; the empty text if there is none."""
    best: dict[str, tuple[float, int, int]] = {}
    for begin, end, score in spans:
        part = context[begin:end]
        text = part.strip()
        if text and text not in best:
            start = begin + part.index(text)
            best[text] = score, start, start + len(text)
            if len(best) == n_best_size:
                break
    best = best or {"": (-LIMIT, 0, 0)}
    scores = np.array([score for score, _, _ in best.values()])
    weights = np.exp(scores - scores[0])
    shares = (weights / weights.sum()).tolist()
    return [
        {"text": text, "probability": probability, "score": score, "start": start, "end": end}
        for (text, (score, start, end)), probability in zip(best.items(), shares, strict=True)
    ]
