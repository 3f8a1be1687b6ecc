"""Scores answers with the numbers of SQuAD's two official scripts, to the last digit.

The scripts differ only on texts of nothing but articles and punctuation, whose normalized form is
empty. Version 1.1 finds no common word, an F1 of 0. Version 2.0 finds two such texts equal, and
ignores such correct answers.
"""

import functools
import operator
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf import metrics
from albert_tf.errors import UserError

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Gold = Sequence[Mapping[str, Any]]


class Score(NamedTuple):
    """The scores of one answer, from 0 to 1."""

    exact: float
    f1: float


def evaluate(
    gold: Gold,
    texts: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    *,
    threshold: float = 0.0,
) -> dict[str, float]:
    """Scores predictions in percent, with the names and rules of the official scripts.

    Without `null_odds`, {id: how likely there is no answer, on any scale}, it computes
    evaluate-v1.1.py, whose `exact_match` is `exact` here. With them, it computes evaluate-v2.0.py:
    `exact`, `f1` and `total`, each also as `HasAns_*` and `NoAns_*` if there are such questions,
    and `best_exact`, `best_f1` at the best thresholds for these questions, `best_exact_thresh` and
    `best_f1_thresh`; 0.0 if answering nothing is best. Odds above `threshold` mean "no answer".

    `gold` are the rows of `examples.jsonl`, `texts` is {id: best answer}. A question without a
    prediction counts as wrong, and in `missing`; evaluate-v2.0.py would stop.

    Raises `UserError` if there is nothing to score, a question has no labels, a prediction is for
    an unknown question, or a predicted question has no odds.
    """
    raw = _score_texts(gold, texts, null_odds)
    scores = _apply_threshold(raw, gold, null_odds, threshold)
    # Added one by one, as in evaluate-v1.1.py: from Python 3.12 on, `sum` is more exact.
    add = functools.partial(functools.reduce, operator.add) if null_odds is None else sum
    results = _average(list(scores.values()), add)
    if null_odds is not None:
        for prefix, answerable in (("HasAns", True), ("NoAns", False)):
            if part := [scores[row["id"]] for row in gold if bool(row["answers"]) == answerable]:
                results |= {f"{prefix}_{name}": x for name, x in _average(part, sum).items()}
        for name in Score._fields:
            values = {id_: getattr(score, name) for id_, score in raw.items()}
            best, best_threshold = _find_best_threshold(values, gold, texts, null_odds)
            results |= {f"best_{name}": best, f"best_{name}_thresh": best_threshold}
    return {**results, "missing": len(gold) - len(raw)}


def score_questions(
    gold: Gold,
    texts: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    *,
    threshold: float = 0.0,
) -> dict[str, Score]:
    """Returns the score of each question, in the order of `gold`; `evaluate` returns the mean."""
    raw = _score_texts(gold, texts, null_odds)
    return _apply_threshold(raw, gold, null_odds, threshold)


def choose_threshold(gold: Gold, texts: Mapping[str, str], null_odds: Mapping[str, float]) -> float:
    """Returns the threshold with the best F1, for serving; arguments as in `evaluate`.

    The official `best_f1_thresh` equals the odds of a question, so rounding may change that answer.
    It counts questions of equal odds one by one, and is 0 if answering nothing is best.
    """
    raw = _score_texts(gold, texts, null_odds)
    rows = sorted((row for row in gold if row["id"] in raw), key=lambda row: null_odds[row["id"]])
    gains = [raw[row["id"]].f1 if row["answers"] else -bool(texts[row["id"]]) for row in rows]
    odds = np.array([null_odds[row["id"]] for row in rows])
    sums = np.cumsum([0, *gains])
    return metrics.find_best_cut(odds, sums, lowest=odds[0] - 1, highest=odds[-1] + 1)


def normalize(text: str) -> str:
    """Lower-cases; removes ASCII punctuation, articles and repeated spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _score_texts(
    gold: Gold, texts: Mapping[str, str], null_odds: Mapping[str, float] | None
) -> dict[str, Score]:
    _check(gold, texts, null_odds)
    is_2_0 = null_odds is not None
    predicted = (row for row in gold if row["id"] in texts)
    return {row["id"]: _score(row["answers"], texts[row["id"]], is_2_0) for row in predicted}


def _check(gold: Gold, texts: Mapping[str, str], null_odds: Mapping[str, float] | None) -> None:
    if not gold:
        raise UserError("there is no question to score. Use another file.")
    if unlabelled := [row["id"] for row in gold if not row["labelled"]]:
        raise UserError(
            f"{len(unlabelled)} questions have no labels, for example {unlabelled[0]}: "
            "they can be predicted, not scored."
        )
    known = {row["id"] for row in gold}
    for name, ids in (("predictions", texts), ("null odds", null_odds or {})):
        if unknown := [id_ for id_ in ids if id_ not in known]:
            raise UserError(
                f"{name} for {len(unknown)} unknown questions, for example {unknown[0]}: "
                "score them with the file that was predicted."
            )
    if null_odds is not None and (incomplete := [id_ for id_ in texts if id_ not in null_odds]):
        raise UserError(
            f"{len(incomplete)} predictions have no null odds, for example {incomplete[0]}: "
            "predict again."
        )


def _score(correct: Sequence[str], text: str, is_2_0: bool) -> Score:
    """The best exact match and the best F1 over several correct answers."""
    text = normalize(text)
    words = text.split()
    normalized = map(normalize, correct)
    answers = [answer for answer in normalized if answer or not is_2_0] or [""]
    f1 = max(_f1(answer.split(), words, empty_f1=int(is_2_0)) for answer in answers)
    return Score(int(text in answers), f1)


def _f1(answer: Sequence[str], words: Sequence[str], empty_f1: int) -> float:
    # Ints, as in the scripts: from Python 3.12 on, `sum` treats 1 and 1.0 differently.
    if not answer and not words:
        return empty_f1
    common = (Counter(answer) & Counter(words)).total()
    if not common:
        return 0
    precision, recall = common / len(words), common / len(answer)
    return 2 * precision * recall / (precision + recall)


def _apply_threshold(
    raw: Mapping[str, Score], gold: Gold, null_odds: Mapping[str, float] | None, threshold: float
) -> dict[str, Score]:
    """The score of each question, with "no answer" if its odds are above the threshold."""
    scores = {}
    for row in gold:
        id_ = row["id"]
        scores[id_] = raw.get(id_, Score(0, 0))
        if id_ in raw and null_odds is not None and null_odds[id_] > threshold:
            correct = float(not row["answers"])
            scores[id_] = Score(correct, correct)
    return scores


def _average(scores: Sequence[Score], add: Callable[[Iterable[float]], float]) -> dict[str, float]:
    total = len(scores)
    sums = {name: add(getattr(score, name) for score in scores) for name in Score._fields}
    return {**{name: 100.0 * value / total for name, value in sums.items()}, "total": total}


def _find_best_threshold(
    scores: Mapping[str, float],
    gold: Gold,
    texts: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The best mean score in percent, and its threshold of odds.

    It starts with no question answered, and answers one more at a time as the odds rise.
    """
    answerable = {row["id"] for row in gold if row["answers"]}
    score: float = sum(id_ not in answerable for id_ in scores)
    best, threshold = score, 0.0
    for id_ in sorted(null_odds, key=null_odds.__getitem__):
        if id_ not in scores:
            continue
        score += scores[id_] if id_ in answerable else -bool(texts[id_])
        if score > best:
            best, threshold = score, null_odds[id_]
    return 100.0 * best / len(gold), threshold
