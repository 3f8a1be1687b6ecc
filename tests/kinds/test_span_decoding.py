"""Decoding the outputs of a span head into answers."""

import itertools
import json
import math

import numpy as np
import pytest

from albert_tf.kinds.spans import qa_windows, span_decoding
from albert_tf.kinds.spans.qa_windows import AnswerOptions, Windows

CONTEXT = "ab cd ef gh ij"
S = 9


def two_windows():
    """Of CONTEXT's five tokens the first four and the last three, in inputs of nine tokens."""
    return Windows(
        unique_ids=np.array([1_000_000_000, 1_000_000_001]),
        questions=np.array([0, 0]),
        firsts=np.array([4, 4]),
        lengths=np.array([4, 3]),
        tokens=np.array([0, 2]),
        best_begins=np.array([4, 5]),
        best_ends=np.array([7, 7]),
        token_starts=np.array([0, 3, 6, 9, 12]),
        token_ends=np.array([2, 5, 8, 11, 14]),
    )


def row(name="q", context=CONTEXT):
    return {"id": name, "context": context}


def logits(first, second):
    """Starts and ends of two windows as {position: logit}; -9 elsewhere."""
    outputs = {}
    for name, place in (("start_logits", 0), ("end_logits", 1)):
        outputs[name] = np.full((2, S), -9.0, np.float32)
        for row_, values in zip(outputs[name], (first[place], second[place]), strict=True):
            for position, value in values.items():
                row_[position] = value
    return outputs


def predict(outputs, *, may_be_none=False, **options):
    chosen = AnswerOptions(may_be_none, **options)
    return span_decoding.predict(outputs, two_windows(), [row()], chosen)["q"]


def texts(prediction):
    return [answer["text"] for answer in prediction["nbest"]]


def test_the_best_span_of_both_windows():
    # Window 0: "cd" to "ef" has 3 + 2; window 1: "gh" to "ij" has 4 + 2.
    prediction = predict(logits(({5: 3.0}, {6: 2.0}), ({5: 4.0}, {6: 2.0})), n_best_size=2)
    assert prediction["prediction"] == "gh ij"
    assert "null_odds" not in prediction
    shares = [pytest.approx(1 / (1 + math.exp(x))) for x in (-1, 1)]
    assert prediction["nbest"] == [
        {"text": "gh ij", "probability": shares[0], "score": 6.0, "start": 9, "end": 14},
        {"text": "cd ef", "probability": shares[1], "score": 5.0, "start": 3, "end": 8},
    ]


def test_what_cannot_be_an_answer_is_none():
    # The question, [SEP], padding; an end before its start; "ef" of window 1, which window 0 has
    # with more context; an end beyond the window.
    outputs = logits(({0: 9, 2: 9, 8: 9, 6: 5}, {1: 9, 4: 8, 8: 9, 6: 1}), ({4: 9}, {7: 9, 4: 9}))
    best = predict(outputs)["nbest"][0]
    assert [best[x] for x in ("text", "score", "start", "end")] == ["ef", 6.0, 6, 8]
    assert best["probability"] == pytest.approx(1, abs=1e-3)


def test_equal_texts_count_once_and_white_space_is_cut_off():
    windows = two_windows()._replace(
        token_starts=np.array([0, 2, 4, 6, 8]), token_ends=np.array([3, 3, 6, 8, 9])
    )
    # Tokens: "a  ", " ", "b ", "a ", "b"
    prediction = span_decoding.predict(
        logits(({4: 2.0, 6: 1.0, 5: 3.0}, {4: 2.0, 6: 1.0, 5: 3.0}), ({5: 1.5}, {5: 1.5})),
        windows,
        [row(context="a  \tb a b")],
        AnswerOptions(may_be_none=False, max_answer_length=1),
    )["q"]
    found = [(a["text"], a["score"], a["start"], a["end"]) for a in prediction["nbest"]]
    assert found == [("a", 4.0, 0, 1), ("b", 2.0, 4, 5)]


def test_the_score_of_no_answer_is_that_of_cls():
    outputs = logits(({0: 3.0, 4: 2.0}, {0: 1.0, 4: 2.5}), ({0: 4.0}, {0: -1.0}))
    prediction = predict(outputs, may_be_none=True)
    # The lowest of 3 + 1 and 4 - 1, less 2 + 2.5.
    assert prediction["null_odds"] == -1.5
    assert prediction["prediction"] == "ab"
    assert "" not in texts(prediction)


def beams():
    """Of both windows three starts, with two ends each."""
    return {
        "start_top_index": np.array([[4, 0, 7], [6, 4, 8]]),
        "start_top_log_probs": np.array([[-0.25, -4.0, -4.5], [-0.5, -1.0, -2.0]], np.float32),
        "end_top_index": np.array([[5, 8, 5, 6, 7, 4], [6, 5, 6, 5, 8, 7]]),
        "end_top_log_probs": np.array(
            [[-1, -0.25, -0.5, -1, -0.5, -2], [-0.5, -0.25, -0.5, -1, -1, -1]], np.float32
        ),
        "cls_logits": np.array([-0.75, 0.5], np.float32),
    }


def test_beams():
    prediction = predict(beams(), may_be_none=True)
    # Window 1: from 6 to 6, not back to 5; at 4 another window has more context; 8 is padding.
    # Window 0: from 4 to 5, not to padding; 0 is [CLS]; at 7 another window has more context.
    found = [(a["text"], a["score"]) for a in prediction["nbest"]]
    assert found == [("ij", -1.0), ("ab cd", -1.25)]
    assert prediction["null_odds"] == -0.75
    assert sum(answer["probability"] for answer in prediction["nbest"]) == pytest.approx(1)
    assert predict(beams(), may_be_none=True, n_best_size=1)["nbest"][0]["probability"] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_never_win(value):
    outputs = logits(({4: value, 5: 1.0}, {4: value, 5: 1.0}), ({4: value}, {5: value}))
    prediction = predict(outputs, may_be_none=True)
    assert prediction["prediction"] == "cd"
    assert math.isfinite(prediction["null_odds"])
    for some in (outputs, beams()):
        floats = {name: array for name, array in some.items() if array.dtype == np.float32}
        everywhere = some | {name: np.full_like(array, value) for name, array in floats.items()}
        prediction = predict(everywhere, may_be_none=True)
        assert [prediction["prediction"], *texts(prediction)] == ["", ""]
        assert prediction["null_odds"] > 0 or value == -np.inf
        # JSON has no other numbers.
        assert json.loads(json.dumps(prediction, allow_nan=False)) == prediction


def test_a_context_without_tokens_has_the_empty_answer():
    windows = Windows(
        *(np.array([value]) for value in (1_000_000_000, 0, 4, 0, 0, 4, 4)),
        token_starts=np.array([], int),
        token_ends=np.array([], int),
    )
    outputs = {name: array[:1] for name, array in logits(({}, {}), ({}, {})).items()}
    options, empty = AnswerOptions(True), [row(context=" ")]
    prediction = span_decoding.predict(outputs, windows, empty, options)["q"]
    assert prediction["prediction"] == ""
    answer = {"text": "", "probability": 1.0, "score": -1e30, "start": 0, "end": 0}
    assert prediction["nbest"] == [answer]
    assert prediction["null_odds"] == pytest.approx(1e30)


def every_pair(outputs, windows, examples, max_answer_length):
    """The scores of all texts of every question, pair by pair."""
    scores = [{} for _ in examples]
    for w, question in enumerate(windows.questions):
        positions = range(windows.firsts[w], windows.firsts[w] + windows.lengths[w])
        for start, end in itertools.product(positions, positions):
            in_place = windows.best_begins[w] <= start < windows.best_ends[w]
            if in_place and 0 <= end - start < max_answer_length:
                tokens = windows.tokens[w] - windows.firsts[w]
                begin, stop = windows.token_starts[tokens + start], windows.token_ends[tokens + end]
                text = examples[question]["context"][begin:stop].strip()
                score = float(outputs["start_logits"][w, start])
                score += float(outputs["end_logits"][w, end])
                if text:
                    scores[question][text] = max(score, scores[question].get(text, -np.inf))
    return scores


def random_windows(rng, num_questions, context):
    """Windows of four tokens, two apart, of contexts of up to nine words."""
    rows, examples, starts = [], [], []
    for question in range(num_questions):
        length = int(rng.integers(1, 10))
        examples.append(row(f"q{question}", context[: 2 * length]))
        for begin in range(0, max(length - 2, 1), 2):
            size = min(4, length - begin)
            last = begin + 4 >= length
            best = (5 if begin else 4, 4 + size if last else 7)
            rows.append((question, 4, size, len(starts) + begin, *best))
        starts += [2 * i for i in range(length)]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    ids = qa_windows.FIRST_ID + np.arange(len(rows))
    return Windows(ids, *columns, np.array(starts), np.array(starts) + 2), examples


def test_many_questions_against_every_pair():
    rng = np.random.default_rng(0)
    windows, examples = random_windows(rng, 600, "a b a c d a b e a ")
    shape = (len(windows.unique_ids), S)
    outputs = {x: rng.normal(size=shape).astype("float32") for x in ("start_logits", "end_logits")}
    options = AnswerOptions(False, n_best_size=S, max_answer_length=3)
    predictions = span_decoding.predict(outputs, windows, examples, options)
    expected = every_pair(outputs, windows, examples, max_answer_length=3)
    for example, scores in zip(examples, expected, strict=True):
        best = sorted(scores.values(), reverse=True)[:S]
        nbest = predictions[example["id"]]["nbest"]
        assert [answer["score"] for answer in nbest] == best
        for answer in nbest:
            assert scores[answer["text"]] == answer["score"]
            assert example["context"][answer["start"] : answer["end"]] == answer["text"]
    assert len(predictions) == 600
