"""Answers to questions inside a graph are the answers of Python."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tiny_texts
from python_reference import LENGTHS, WORDS, answer_questions, make_questions

from albert_tf.export.requests import answer_ops, window_ops
from albert_tf.kinds.spans.qa_windows import AnswerOptions
from albert_tf.kinds.spans.span_features import Question
from albert_tf.records import features


def logits(batch):
    """Of a model that knows its tokens' ids and places only: many scores are equal."""
    ids = tf.cast(batch[features.INPUT_IDS], tf.float32)
    place = tf.range(tf.shape(ids)[1], dtype=tf.float32)
    start = tf.round(4 * (tf.sin(ids * 1.7) + tf.sin(place)))
    end = tf.round(4 * (tf.cos(ids * 0.3) + tf.cos(place)))
    # Some are no numbers.
    return {
        "start_logits": tf.where(batch[features.INPUT_IDS] % 17 == 5, np.nan, start),
        "end_logits": tf.where(batch[features.INPUT_IDS] % 19 == 7, np.inf, end),
    }


def beams(batch, starts=3, ends=4):
    outputs = logits(batch)
    hidden = tf.cast(batch["p_mask"], tf.float32) * 1e30
    start = tf.math.top_k(outputs["start_logits"] - hidden, starts)
    place = tf.range(tf.shape(hidden)[1])
    shifts = tf.cast(start.indices[:, :, tf.newaxis] * place % 7, tf.float32)
    end = tf.math.top_k((outputs["end_logits"] - hidden)[:, tf.newaxis] + shifts, ends)
    return {
        "start_top_log_probs": start.values,
        "start_top_index": start.indices,
        "end_top_log_probs": tf.reshape(end.values, [-1, starts * ends]),
        "end_top_index": tf.reshape(end.indices, [-1, starts * ends]),
        "cls_logits": tf.sin(tf.reduce_sum(tf.cast(batch[features.INPUT_IDS], tf.float32), 1)),
    }


def make_reader(tokenizer, run, options, null_threshold=0.0):
    graph = tiny_texts.graph(tokenizer)

    def read(questions, contexts):
        windows, batch = window_ops.pack(questions, contexts, graph, LENGTHS)
        outputs = window_ops.run_in_batches(run, batch)
        return answer_ops.answer(outputs, windows, contexts, options, null_threshold)

    return tf.function(
        read, input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False
    )


@pytest.mark.parametrize(
    ("make", "run", "may_be_none"),
    [
        (tiny_texts.sentencepieces, logits, True),
        (tiny_texts.sentencepieces, beams, True),
        pytest.param(tiny_texts.sentencepieces, logits, False, marks=pytest.mark.full),
        pytest.param(tiny_texts.wordpieces, logits, True, marks=pytest.mark.full),
        pytest.param(tiny_texts.wordpieces, beams, True, marks=pytest.mark.full),
    ],
)
def test_answers_are_those_of_python(make, run, may_be_none):
    tokenizer, questions = make(), make_questions(60)
    options, threshold = AnswerOptions(may_be_none, n_best_size=7, max_answer_length=9), 0.0
    if may_be_none:
        rows = answer_questions(tokenizer, questions, run, options)
        threshold = sorted(row["null_odds"] for row in rows)[45]
    expected = answer_questions(tokenizer, questions, run, options, threshold)
    answers = make_reader(tokenizer, run, options, threshold)(
        tf.constant([q.question for q in questions]), tf.constant([q.context for q in questions])
    )
    answers = {name: value.numpy() for name, value in answers.items()}
    assert ("null_odds" in answers) == may_be_none
    for i, question in enumerate(questions):
        best = expected[i]
        assert answers["answer"][i].decode() == best["answer"]
        assert (
            answers["answer"][i].decode()
            == question.context[answers["start"][i] : answers["end"][i]]
        )
        assert (answers["start"][i], answers["end"][i]) == (best["start"], best["end"])
        assert answers["score"][i] == pytest.approx(best["score"], rel=1e-6)
        assert answers["probability"][i] == pytest.approx(best["probability"], rel=1e-6)
        if may_be_none:
            assert answers["null_odds"][i] == pytest.approx(best["null_odds"], rel=1e-6)
    assert len(set(answers["answer"])) > 20
    if may_be_none:
        assert sum(row["null_odds"] > threshold and row["score"] > -1e30 for row in expected) > 5


def test_many_windows_are_read_some_at_a_time():
    sizes = []

    def run(batch):
        tf.py_function(lambda rows: sizes.append(int(rows)), [tf.shape(batch["input_ids"])[0]], [])
        return logits(batch)

    read = make_reader(tiny_texts.sentencepieces(), run, AnswerOptions(may_be_none=True))
    read(tf.constant(["the"] * 5), tf.constant([" ".join(WORDS * 10)] * 5))
    assert max(sizes) == 32
    assert len(sizes) > 2
    graph = read.get_concrete_function().graph.as_graph_def()
    loops = [node for node in graph.node if "While" in node.op and node.name.startswith("while")]
    assert [loop.attr["parallel_iterations"].i for loop in loops] == [1]


def test_of_long_contexts_the_first_windows_are_read_and_others_answered():
    tokenizer = tiny_texts.sentencepieces()
    long = [" ".join(random.Random(seed).choices(WORDS, k=3000)) for seed in range(2)]
    questions = [
        Question(str(i), "the cafe", context, (), False, False)
        for i, context in enumerate(["sold 2011,", *long])
    ]
    options = AnswerOptions(may_be_none=False)
    answers = make_reader(tokenizer, logits, options)(
        tf.constant([q.question for q in questions]), tf.constant([q.context for q in questions])
    )
    for i, row in enumerate(answer_questions(tokenizer, questions, logits, options)):
        assert answers["answer"][i].numpy().decode() == row["answer"]
        assert (answers["start"][i], answers["end"][i]) == (row["start"], row["end"])
    none = make_reader(tokenizer, logits, options)(*[tf.constant([], tf.string)] * 2)
    assert all(value.shape == (0,) for value in none.values())
    _, batch = window_ops.pack(
        tf.constant(["the"]), tf.constant(long[:1]), tiny_texts.graph(tokenizer), LENGTHS
    )
    assert len(batch["input_ids"]) == window_ops.MAX_WINDOWS
