"""A checkpoint answers rows as its export does: the same names, values and counts of losses."""

import numpy as np
import pytest
import python_reference
import tensorflow as tf

from albert_tf.kinds import task_table
from albert_tf.predict import predictor

TEXTS = [
    "a good day",
    "",
    "Élan, 1,000 times!",
    "한국어",
    "good " * 40,
    "a\u2028b",
    "북京 é\u0301 中文",
]
ROWS = {kind: [{"text": text} for text in TEXTS] for kind in task_table.MODELS}
MASKED = ("a [MASK] day", "→[MASK]“[MASK]” a", "[mask] [SEP]", "", "the [MASK] " * 40)
ROWS["fill_mask"] = [{"text": text} for text in MASKED]
ROWS["span"] = [{"question": "who came?", "context": "ann came late " * n} for n in (1, 30, 2)]
QUESTIONS = python_reference.make_questions(9)
ROWS["span_or_none"] = [{"question": x.question, "context": x.context} for x in QUESTIONS]
CHOICES = {
    "is it _ ?": ["good", "so", "it", "a", "b"],
    "_ of ___": ["$&", "a\\1_b", "", "é", "x " * 9],
}
ROWS["multiple_choice"] = [
    {"passage": "a day " * count, "question": question, "options": options}
    for count, (question, options) in zip((5, 1), CHOICES.items(), strict=True)
]
PAIRS = [{"text": one, "text_pair": two} for one, two in zip(TEXTS, TEXTS[::-1], strict=True)]
SLOW = {"multi_label", "regression", "encoder", "span", "multiple_choice"}


def assert_same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert_same(value, other[name])
    elif np.array(one).dtype.kind == "U":
        assert one == other
    else:
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kind", [pytest.param(x, marks=[pytest.mark.full] * (x in SLOW)) for x in ROWS]
)
def test_a_checkpoint_answers_as_its_export(exported, kind):
    model, folder = exported(kind, text=True)
    one, other = predictor.from_model(model), predictor.from_export(folder)
    assert {*one.inputs} == {*other.inputs} == {*ROWS[kind][0]}
    assert one.gives_vectors == other.gives_vectors == (kind == "sentence_embedding")
    for answers in zip(one(ROWS[kind]), other(ROWS[kind]), strict=True):
        assert_same(*answers)
    assert one.count_losses(ROWS[kind]) == other.count_losses(ROWS[kind])
    if kind == "classification":
        other = predictor.from_export(folder, [tuple(PAIRS[0])])
        for answers in zip(one(PAIRS), other(PAIRS), strict=True):
            assert_same(*answers)


def test_losses_are_counted(exported):
    _, folder = exported("classification", text=True)
    counts = predictor.from_export(folder).count_losses(ROWS["classification"])
    assert counts == {"truncated": 2, "unreadable": 2}


def test_rows_that_a_model_does_not_take_are_refused(exported):
    model, _ = exported("multiple_choice", text=True)
    answer = predictor.from_model(model)
    row = ROWS["multiple_choice"][0]
    for rows, message in (
        ([row, {**row, "options": ["good"]}], "the numbers of options differ"),
        ([{**row, "options": ["good"]}], "every question must have 5 choices"),
        ([{**row, "passage": "a" * 100_001}], "passage must have at most 100000 bytes"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            answer(rows)
