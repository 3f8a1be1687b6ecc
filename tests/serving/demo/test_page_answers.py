"""What the page shows of a model's outputs; the models are functions of a line."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.serving.demo import page_answers
from albert_tf.serving.demo.page_answers import DemoModel


def model(view, inputs, run, labels=()):
    def run_tensors(**texts):
        rows = {name: value.numpy().tolist() for name, value in texts.items()}
        return {name: tf.constant(value) for name, value in run(rows).items()}

    return DemoModel(name="m", view=view, inputs=inputs, labels=labels, run=run_tensors)


def classify(rows):
    """0.9 for `good` in the text, else 0.3; the second label has what is left."""
    values = [0.9 if b"good" in text else 0.3 for text in rows["text"]]
    return {"label": [b"x"] * len(values), "probabilities": [[x, 1 - x] for x in values]}


CLASSIFIER = model("label", ("text",), classify, ("yes", "no"))


def test_bars_are_the_likeliest_first():
    [part] = page_answers.answer(CLASSIFIER, {"text": "so bad"})
    assert [bar["label"] for bar in part["bars"]] == ["no", "yes"]
    np.testing.assert_allclose([bar["value"] for bar in part["bars"]], [0.7, 0.3], rtol=1e-6)


def test_a_word_counts_what_is_lost_without_it():
    _, part = page_answers.answer(CLASSIFIER, {"text": "a  good\nday"}, weigh_words=True)
    assert "'yes'" in part["title"]
    assert "".join(x["text"] for x in part["segments"]) == "a  good\nday"
    weights = {x["text"]: x["weight"] for x in part["segments"] if "weight" in x}
    np.testing.assert_allclose([weights[w] for w in ("a", "good", "day")], [0, 0.6, 0], atol=1e-6)


def test_long_texts_are_not_weighed_word_by_word():
    text = "word " * (page_answers.MAX_WORDS + 1)
    assert len(page_answers.answer(CLASSIFIER, {"text": text})) == 1
    with pytest.raises(UserError, match="at most 64 words"):
        page_answers.answer(CLASSIFIER, {"text": text}, weigh_words=True)


def reader(start, end, **more):
    outputs = {"answer": [b"now"], "start": [start], "end": [end], "probability": [0.5], **more}
    return model("answer", ("context", "question"), lambda rows: outputs)


CONTEXT = "😀 She came now, 你好."


def test_the_answer_is_marked_by_its_characters():
    """Characters, of which JavaScript would count some twice."""
    start = CONTEXT.index("now")
    parts = page_answers.answer(reader(start, start + 3), {"context": CONTEXT, "question": "When?"})
    assert parts[0]["title"] == "now"
    assert parts[0]["segments"] == [
        {"text": "😀 She came "},
        {"text": "now", "mark": "answer", "score": None},
        {"text": ", 你好."},
    ]
    assert parts[1] == {"kind": "value", "title": "probability", "value": 0.5}


def test_no_answer_marks_nothing():
    parts = page_answers.answer(
        reader(0, 0, null_odds=[2.0]), {"context": CONTEXT, "question": "Why?"}
    )
    assert parts[0]["title"] == "The passage has no answer."
    assert parts[0]["segments"] == [{"text": CONTEXT}]
    assert parts[2]["value"] == 2


def test_spans_have_their_types_and_scores():
    outputs = {
        "num_spans": [2],
        "span_starts": [[0, 15, 0]],
        "span_ends": [[3, 19, 0]],
        "span_types": [[b"PER", b"LOC", b""]],
        "span_scores": [[0.75, 0.5, 0.0]],
    }
    tagger = model("spans", ("text",), lambda rows: outputs)
    [part] = page_answers.answer(tagger, {"text": "Ann moved from Oslo."})
    assert part["title"] == "2 spans"
    assert part["segments"] == [
        {"text": "Ann", "mark": "PER", "score": 0.75},
        {"text": " moved from "},
        {"text": "Oslo", "mark": "LOC", "score": 0.5},
        {"text": "."},
    ]


def guess(rows):
    number = rows["text"][0].count(b"[MASK]")
    tokens = [["▁sea", "s", "▁"]] * number
    return {
        "tokens": np.array([tokens], dtype=object).reshape(1, number, 3).astype(bytes)
        if not number
        else [[[piece.encode() for piece in row] for row in tokens]],
        "probabilities": np.full([1, number, 3], 0.25, np.float32),
    }


def test_guesses_are_words():
    parts = page_answers.answer(model("guesses", ("text",), guess), {"text": "[MASK] [MASK]"})
    assert [part["title"] for part in parts] == ["[MASK] 1", "[MASK] 2"]
    assert [bar["label"] for bar in parts[1]["bars"]] == ["sea", "s", "a space"]


def test_a_text_without_a_mask_is_one_line():
    with pytest.raises(UserError, match=r"Write \[MASK\] where"):
        page_answers.answer(model("guesses", ("text",), guess), {"text": "no mask"})


VECTORS = {b"north": [0.0, 2.0], b"east": [3.0, 0.0], b"south": [0.0, -1.0], b"up": [0.0, 5.0]}


@pytest.mark.parametrize("output", ["embedding", "sequence_output"])
def test_the_nearest_sentence_is_first(output):
    def embed(rows):
        vectors = np.array([VECTORS[text] for text in rows["text"]], np.float32)
        if output == "embedding":
            return {"embedding": vectors}
        # A second token that is padding, and must not count.
        tokens = np.stack([vectors, vectors * 0 + 9], 1)
        return {"sequence_output": tokens, "input_mask": np.array([[1, 0]] * len(vectors))}

    lines = "south\n\n  east \nnorth"
    [part] = page_answers.answer(model("nearest", ("text",), embed), {"text": "up", "lines": lines})
    assert [bar["label"] for bar in part["bars"]] == ["north", "east", "south"]
    np.testing.assert_allclose([bar["value"] for bar in part["bars"]], [1, 0, -1], atol=1e-6)


def test_choices_are_lines():
    def choose(rows):
        assert rows["options"] == [[b"at nine", b"never"]]
        return {"choice": [b"A"], "probabilities": [[0.25, 0.75]]}

    chooser = model("choice", ("options", "passage", "question"), choose, ("A", "B"))
    texts = {"passage": "p", "question": "q", "options": "at nine\nnever\n"}
    [part] = page_answers.answer(chooser, texts)
    assert part["bars"][0] == {"label": "never", "value": 0.75}
    fields = page_answers.describe(chooser)["fields"]
    assert [field["name"] for field in fields] == ["question", "passage", "options"]
    assert fields[2]["examples"][0].count("\n") == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "an object of texts"),
        ([], "an object of texts"),
        ({}, "Text: type something first"),
        ({"text": " \n"}, "Text: type something first"),
        ({"text": 7}, "Text: type something first"),
        ({"text": ["a"]}, "Text: type something first"),
        ({"text": "\ud800"}, "half of a character"),
    ],
)
def test_inputs_that_are_no_texts_are_one_line(inputs, message):
    with pytest.raises(UserError, match=message):
        page_answers.answer(CLASSIFIER, inputs)


def test_what_the_graph_refuses_is_its_own_sentence():
    @tf.function
    def refuse(text):
        tf.debugging.Assert(False, ["a text has too many bytes."])
        return {"value": tf.zeros([1])}

    chooser = DemoModel(name="m", view="value", inputs=("text",), labels=(), run=refuse)
    with pytest.raises(UserError, match=r"^a text has too many bytes\.$|too many bytes"):
        page_answers.answer(chooser, {"text": "x"})
