"""Scores of answers: the numbers of SQuAD's two official scripts, to the last digit.

The two differ where one would not look for it. Of two texts that hold but articles and punctuation
no word is left: version 1.1 finds no word in common, an F1 of 0, and 2.0 finds them equal. And 2.0
leaves such answers out of the right ones.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.errors import UserError

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Gold = Sequence[Mapping[str, Any]]


class Score(NamedTuple):
    """Of one answer, from 0 to 1."""

    exact: float
    f1: float


def evaluate(
    gold: Gold,
    texts: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    *,
    threshold: float = 0.0,
) -> dict[str, float]:
    """Scores predictions, in percent, with the names and by the rules of the official scripts.

    Without `null_odds` those of evaluate-v1.1.py (where `exact` is `exact_match`); with them those
    of evaluate-v2.0.py: besides `exact`, `f1` and `total` the same as `HasAns_*` and `NoAns_*`, as
    far as there are such questions, and `best_exact`, `best_f1` at the thresholds
    `best_exact_thresh`, `best_f1_thresh` that these very questions like best. Where answering
    nothing is best the scripts say 0.0, and so does this.

    A question without prediction counts as wrong, and in `missing`; evaluate-v2.0.py would stop.

    Args:
        gold: the rows of `examples.jsonl`.
        texts: {id: answer, if there is one}.
        null_odds: {id: how likely there is none}, on any scale.
        threshold: with higher odds, the answer is that there is none.

    Raises:
        UserError: nothing to score, a question without labels, predictions for unknown questions,
            or no odds for one that is predicted.
    """
    raw = _raw_scores(gold, texts, null_odds)
    scores = _with_threshold(raw, gold, null_odds, threshold)
    if null_odds is None:
        found = _means(list(scores.values()), _add)
    else:
        found = _means(list(scores.values()), sum)
        for prefix, answerable in (("HasAns", True), ("NoAns", False)):
            if part := [scores[row["id"]] for row in gold if bool(row["answers"]) == answerable]:
                found |= {f"{prefix}_{name}": value for name, value in _means(part, sum).items()}
        for name in Score._fields:
            values = {id_: getattr(score, name) for id_, score in raw.items()}
            best, at = _best_threshold(values, gold, texts, null_odds)
            found |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return {**found, "missing": len(gold) - len(raw)}


def question_scores(
    gold: Gold,
    texts: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    *,
    threshold: float = 0.0,
) -> dict[str, Score]:
    """The score of every question, in the order of `gold`, of which `evaluate` is the mean."""
    return _with_threshold(_raw_scores(gold, texts, null_odds), gold, null_odds, threshold)


def normalize(text: str) -> str:
    """What counts of a text: lower case, no punctuation (of ASCII), no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _raw_scores(
    gold: Gold, texts: Mapping[str, str], null_odds: Mapping[str, float] | None
) -> dict[str, Score]:
    """Of the questions that are predicted, whatever their odds."""
    _check(gold, texts, null_odds)
    score = _score_1_1 if null_odds is None else _score_2_0
    return {
        row["id"]: score(row["answers"], texts[row["id"]]) for row in gold if row["id"] in texts
    }


def _check(gold: Gold, texts: Mapping[str, str], null_odds: Mapping[str, float] | None) -> None:
    if not gold:
        raise UserError("there is no question to score. Take another file.")
    if unlabelled := [row["id"] for row in gold if not row["labelled"]]:
        raise UserError(
            f"{len(unlabelled)} questions have no labels, {unlabelled[0]} for one: "
            "they can be predicted, not scored."
        )
    known = {row["id"] for row in gold}
    for what, ids in (("predictions", texts), ("null odds", null_odds or {})):
        if unknown := [id_ for id_ in ids if id_ not in known]:
            raise UserError(
                f"{what} for {len(unknown)} unknown questions, {unknown[0]} for one: "
                "score them with the file that they were made from."
            )
    if null_odds is not None and (bare := [id_ for id_ in texts if id_ not in null_odds]):
        raise UserError(
            f"{len(bare)} predictions have no null odds, {bare[0]} for one: predict them again."
        )


def _score_1_1(answers: Sequence[str], text: str) -> Score:
    return _score([normalize(answer) for answer in answers] or [""], text, 0)


def _score_2_0(answers: Sequence[str], text: str) -> Score:
    return _score([kept for answer in answers if (kept := normalize(answer))] or [""], text, 1)


def _score(answers: Sequence[str], text: str, f1_of_nothing: int) -> Score:
    """The best over several right answers, which are normalised, of exact match and of F1 each."""
    text = normalize(text)
    words = text.split()
    return Score(
        int(text in answers),
        max(_f1(answer.split(), words, f1_of_nothing) for answer in answers),
    )


def _f1(answer: Sequence[str], words: Sequence[str], of_nothing: int) -> float:
    # Ints, as in the scripts: from Python 3.12 on `sum` adds 1 otherwise than 1.0.
    if not answer and not words:
        return of_nothing
    common = (Counter(answer) & Counter(words)).total()
    if not common:
        return 0
    precision, recall = common / len(words), common / len(answer)
    return 2 * precision * recall / (precision + recall)


def _with_threshold(
    raw: Mapping[str, Score],
    gold: Gold,
    null_odds: Mapping[str, float] | None,
    threshold: float,
) -> dict[str, Score]:
    """The score of every question, once the odds have said which have no answer."""
    found = {}
    for row in gold:
        id_ = row["id"]
        found[id_] = raw.get(id_, Score(0, 0))
        if id_ in raw and null_odds is not None and null_odds[id_] > threshold:
            is_right = float(not row["answers"])
            found[id_] = Score(is_right, is_right)
    return found


def _means(scores: Sequence[Score], add: Callable[[Iterable[float]], float]) -> dict[str, float]:
    total = len(scores)
    sums = {name: add(getattr(score, name) for score in scores) for name in Score._fields}
    return {**{name: 100.0 * value / total for name, value in sums.items()}, "total": total}


def _add(values: Iterable[float]) -> float:
    """One after the other, as evaluate-v1.1.py does; `sum` is more exact from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total


def _best_threshold(
    scores: Mapping[str, float],
    gold: Gold,
    texts: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The best mean score in percent, and the odds up to which questions are answered for it.

    First no question is answered, then one after the other as the odds rise.
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
