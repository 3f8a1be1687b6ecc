"""What a span head says of windows -> the answers to questions, as text.

W windows, S tokens of an input. Beams: K starts of each window, and M ends for each of them.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.records import qa_windows as windows_
from albert_tf.records.qa_windows import Windows

Outputs = Mapping[str, np.ndarray]

_BATCH = 512  # questions at once
# Stands for infinity, which JSON cannot write.
_LIMIT = 1e30


class _Pairs(NamedTuple):
    """Starts and ends, positions in the input, and the score of both together.

    Their shapes broadcast to that of `scores`, [W, starts, ends].
    """

    starts: np.ndarray
    ends: np.ndarray
    scores: np.ndarray


def predict(
    outputs: Outputs,
    windows: Windows,
    examples: Sequence[Mapping[str, Any]],
    *,
    may_be_none: bool,
    n_best_size: int = 20,
    max_answer_length: int = 30,
) -> dict[str, dict[str, Any]]:
    """Finds the best answers to each question.

    An answer starts where its window has more context than any other window, and ends in the same
    window, in the context. Those that are the same text count once, with their best score.

    Args:
        outputs: for N windows in any order, `unique_ids` [N] and either `start_logits` and
            `end_logits`, [N, S], or the beams of SQuAD 2.0's head: `start_top_log_probs` and
            `start_top_index` [N, K], `end_top_log_probs` and `end_top_index` [N, K * M] (M ends of
            the first start, M of the second...), `cls_logits` [N]. What is not finite never wins.
        windows: all of those of the examples.
        examples: the rows of `examples.jsonl`.
        may_be_none: whether a question may have no answer. Logits score that at [CLS].
        n_best_size: answers to keep; of logits also how many starts, and ends, of a window meet.
        max_answer_length: in tokens.

    Returns:
        {id: {"prediction": text, "nbest": [{"text", "probability", "score", "start", "end"}, ...],
        "null_odds": number}}. `text` is context[start:end]; the prediction is the first text
        whatever `null_odds` says, and "" if there is none. The higher `null_odds`, which is there
        if `may_be_none`, the more likely there is no answer; a threshold decides.
    """
    rows = _rows(np.asarray(outputs["unique_ids"]), windows)
    head = _BEAMS if "start_top_index" in outputs else _LOGITS
    bounds = np.searchsorted(windows.questions, np.arange(len(examples) + 1))
    found = {}
    for begin in range(0, len(examples), _BATCH):
        batch = examples[begin : begin + _BATCH]
        edges = bounds[begin : begin + len(batch) + 1]
        these = slice(edges[0], edges[-1])
        part = windows_.part(windows, these)
        values = {name: np.asarray(array)[rows[these]] for name, array in outputs.items()}
        pairs = head.pairs(values, part, n_best_size)
        spans = _spans(pairs, part, edges - edges[0], max_answer_length)
        nulls = np.minimum.reduceat(head.null_scores(values), edges[:-1] - edges[0])
        for example, candidates, null in zip(batch, spans, nulls.tolist(), strict=True):
            nbest = _nbest(example["context"], candidates, n_best_size)
            found[example["id"]] = {"prediction": nbest[0]["text"], "nbest": nbest}
            if may_be_none:
                odds = null - nbest[0]["score"] if head.null_competes else null
                found[example["id"]]["null_odds"] = odds
    return found


def _rows(unique_ids: np.ndarray, windows: Windows) -> np.ndarray:
    """[W] where in the outputs each window is."""
    order = np.argsort(unique_ids)
    places = np.searchsorted(unique_ids, windows.unique_ids, sorter=order)
    rows = order[np.minimum(places, len(order) - 1)]
    assert np.array_equal(unique_ids[rows], windows.unique_ids), "outputs lack some windows"
    return rows


def _pairs_of_logits(outputs: Outputs, windows: Windows, n_best_size: int) -> _Pairs:
    """The best starts with the best ends. What cannot be an answer takes the place of none."""
    positions = np.arange(outputs["start_logits"].shape[1])
    starts, start_scores = _top(
        outputs["start_logits"],
        (positions >= windows.best_begins[:, np.newaxis])
        & (positions < windows.best_ends[:, np.newaxis]),
        n_best_size,
    )
    ends, end_scores = _top(
        outputs["end_logits"],
        (positions >= windows.firsts[:, np.newaxis])
        & (positions < (windows.firsts + windows.lengths)[:, np.newaxis]),
        n_best_size,
    )
    return _Pairs(
        starts[:, :, np.newaxis],
        ends[:, np.newaxis],
        start_scores[:, :, np.newaxis] + end_scores[:, np.newaxis],
    )


def _top(logits: np.ndarray, allowed: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """[W, count] the best positions and their scores, the first of equals first."""
    scores = np.where(allowed & np.isfinite(logits), logits, -np.inf).astype(np.float64)
    positions = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return positions, np.take_along_axis(scores, positions, axis=1)


def _pairs_of_beams(outputs: Outputs, windows: Windows, n_best_size: int) -> _Pairs:
    starts = outputs["start_top_index"][:, :, np.newaxis]
    shape = (*starts.shape[:2], -1)
    start_scores = outputs["start_top_log_probs"].astype(np.float64)[:, :, np.newaxis]
    end_scores = outputs["end_top_log_probs"].astype(np.float64).reshape(shape)
    return _Pairs(starts, outputs["end_top_index"].reshape(shape), start_scores + end_scores)


class _Head(NamedTuple):
    """How to read the outputs of a head.

    Attributes:
        pairs: the starts and ends that compete.
        null_scores: [W] of there being no answer.
        null_competes: that score is one of answers: what counts is by how much it is better.
    """

    pairs: Callable[[Outputs, Windows, int], _Pairs]
    null_scores: Callable[[Outputs], np.ndarray]
    null_competes: bool


_LOGITS = _Head(
    _pairs_of_logits,
    lambda outputs: _bounded(outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]),
    null_competes=True,
)
_BEAMS = _Head(
    _pairs_of_beams, lambda outputs: _bounded(outputs["cls_logits"]), null_competes=False
)


def _bounded(scores: np.ndarray) -> np.ndarray:
    """Finite numbers; a network that gives none knows no answer."""
    return np.nan_to_num(scores.astype(np.float64), nan=_LIMIT, posinf=_LIMIT, neginf=-_LIMIT)


def _spans(
    pairs: _Pairs, windows: Windows, edges: np.ndarray, max_answer_length: int
) -> Iterator[Iterator[tuple[int, int, float]]]:
    """Yields for each question, whose windows are between `edges`, the parts that may be answers.

    First and last character and score, the best first.
    """
    best_begins, best_ends, ends_of_context = (
        column[:, np.newaxis, np.newaxis]
        for column in (windows.best_begins, windows.best_ends, windows.firsts + windows.lengths)
    )
    valid = (
        np.isfinite(pairs.scores)
        & (pairs.starts >= best_begins)
        & (pairs.starts < best_ends)
        & (pairs.ends >= pairs.starts)
        & (pairs.ends < pairs.starts + max_answer_length)
        & (pairs.ends < ends_of_context)
    )
    window = np.nonzero(valid)[0]
    tokens = (windows.tokens - windows.firsts)[window]
    begins = windows.token_starts[tokens + np.broadcast_to(pairs.starts, valid.shape)[valid]]
    ends = windows.token_ends[tokens + np.broadcast_to(pairs.ends, valid.shape)[valid]]
    scores = pairs.scores[valid]
    order = np.lexsort((-scores, windows.questions[window]))
    columns = [column[order].tolist() for column in (begins, ends, scores)]
    for bounds in itertools.pairwise(np.searchsorted(window, edges).tolist()):
        yield zip(*(column[slice(*bounds)] for column in columns), strict=True)


def _nbest(
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
    found = found or {"": (-_LIMIT, 0, 0)}
    scores = np.array([score for score, _, _ in found.values()])
    weights = np.exp(scores - scores[0])
    return [
        {"text": text, "probability": probability, "score": score, "start": start, "end": end}
        for (text, (score, start, end)), probability in zip(
            found.items(), (weights / weights.sum()).tolist(), strict=True
        )
    ]
