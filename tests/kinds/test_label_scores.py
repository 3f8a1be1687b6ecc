"""Scores by label, of spans and of several labels a text, and their thresholds."""

import numpy as np
import pytest

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.tasks import ensembles, predictions

TAGS = task_table.make_own("token_classification", ("O", "B-A", "I-A", "B-B", "I-B"))
LABELS = task_table.make_own("multi_label", ("x", "y", "z"))


def make_gold(name, spans, num_words=6):
    words = [[2 * k, 2 * k + 1] for k in range(num_words)]
    return {"id": name, "text": "ab" * num_words, "words": words, "spans": spans, "labelled": True}


def make_spans(*spans, score=0.9):
    names = ("start", "end", "type")
    rows = [dict(zip(names, span, strict=True)) for span in spans]
    return {"prediction": [{"text": "a", "score": score, **row} for row in rows]}


GOLD = [make_gold("0", [[0, 3, "A"], [6, 7, "B"]]), make_gold("1", [[2, 3, "A"]])]
GOLD.append(make_gold("2", []))
PREDICTED = {
    "0": make_spans((0, 3, "A"), (6, 9, "B")),
    "1": make_spans((2, 3, "B")),
    "2": make_spans((0, 1, "A")),
}


def test_spans_are_scored_as_seqeval_does():
    """seqeval 1.2.2 gives 0.25, 0.3333, 0.2857 and the accuracy 0.8333 of the same tags."""
    expected = {"f1": 2 / 7, "precision": 1 / 4, "recall": 1 / 3, "accuracy": 15 / 18}
    assert predictions.score(TAGS, GOLD, PREDICTED) == pytest.approx(expected)
    table = TAGS.kind.learn.score_labels(TAGS, GOLD, PREDICTED)
    assert table["A"] == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2})
    assert table["B"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}


def test_no_span_at_all_scores_nothing_and_parts_of_speech_by_word():
    assert predictions.score(TAGS, [make_gold("0", [])], {"0": make_spans()})["f1"] == 0
    with pytest.raises(UserError, match="'0' has no label"):
        predictions.score(TAGS, [make_gold("0", None)], {"0": make_spans()})
    task = task_table.make_own("token_classification", ("NN", "VB"))
    gold = [make_gold("0", [[0, 1, "NN"], [2, 3, "VB"]], num_words=2)]
    predicted = {"0": make_spans((0, 1, "NN"), (2, 3, "NN"))}
    assert predictions.score(task, gold, predicted) == {"accuracy": 0.5}


def several(*rows):
    gold = [{"id": str(k), "label": labels} for k, (labels, _) in enumerate(rows)]
    raw = {str(k): {"probabilities": values} for k, (_, values) in enumerate(rows)}
    return gold, LABELS.kind.learn.apply_thresholds(LABELS, raw, {})


def test_several_labels_and_their_thresholds():
    gold, predicted = several(
        (["x", "y"], [0.9, 0.4, 0.2]),
        (["x"], [0.6, 0.1, 0.1]),
        ([], [0.55, 0.3, 0.7]),
        (["y"], [0.1, 0.35, 0.2]),
    )
    assert [row["prediction"] for row in predicted.values()] == [["x"], ["x"], ["x", "z"], []]
    thresholds = LABELS.kind.learn.tune_thresholds(LABELS, gold, predicted)
    assert thresholds == pytest.approx({"x": 0.575, "y": 0.325, "z": 0.5})
    # z never applies, which the area does not count.
    best = {"best_micro_f1": 2 * 4 / (5 + 4), "best_macro_f1": 2 / 3, "auc": 1.0}
    plain = {"micro_f1": 2 * 2 / (4 + 4), "macro_f1": (2 * 2 / (3 + 2) + 0 + 0) / 3}
    assert predictions.score(LABELS, gold, predicted) == pytest.approx(plain | best)
    better = LABELS.kind.learn.apply_thresholds(LABELS, predicted, thresholds)
    assert better["3"]["prediction"] == ["y"]
    table = LABELS.kind.learn.score_labels(LABELS, gold, better)
    assert (table["y"]["f1"], table["z"]["support"]) == (1.0, 0)
    # Predictions of other programs have no probabilities.
    bare = {name: {"prediction": row["prediction"]} for name, row in predicted.items()}
    assert predictions.score(LABELS, gold, bare) == pytest.approx(plain)


@pytest.mark.parametrize(
    ("high", "low"),
    [(1.0, 1 - 2**-24), (2**-149, 0.0), (0.75, 0.75 - 2**-40), (0.5, 0.5), (0.0, 0.0)],
)
def test_a_threshold_divides_probabilities_that_are_nearly_equal(high, low):
    gold, predicted = several((["x"], [high, 0, 0]), ([], [low, 0, 0]))
    threshold = LABELS.kind.learn.tune_thresholds(LABELS, gold, predicted)["x"]
    high, low = np.float32([high, low])
    assert high > np.float32(threshold) or high == threshold == 0
    assert (low > np.float32(threshold)) == (low == high > 0)


def test_ensembles():
    def average(task, *members):
        header = {"task": "own", "split": "dev", "checkpoint": "c", "kind": task.kind.name}
        header["labels"] = list(task.labels)
        contents = [{**header, "predictions": {"0": row}} for row in members]
        return ensembles.average(dict(enumerate(contents)))["predictions"]["0"]

    rows = [several((["x"], values))[1]["0"] for values in ([0.9, 0.4, 0.2], [0.0, 0.8, 0.2])]
    averaged = average(LABELS, *rows)
    assert averaged["prediction"] == ["y"]
    np.testing.assert_allclose(averaged["probabilities"], [0.45, 0.6, 0.2])
    members = [PREDICTED["0"], make_spans((0, 3, "A"), (6, 7, "B")), make_spans((0, 3, "A"))]
    spans = average(TAGS, *members)["prediction"]
    assert [(x["start"], x["end"], x["score"]) for x in spans] == [(0, 3, pytest.approx(0.9))]
