import random

import numpy as np
import pytest
import tensorflow as tf
import tiny_texts

from albert_tf.records import features
from albert_tf.tasks import span_decoding
from data_prep.task_data import span_features
from data_prep.task_data.span_features import Question
from export.requests import answer_ops, packing, window_ops
from export.requests.window_ops import Lengths

WORDS = ["the", "cafe", "sold", "2011,", "offices;", "difficult", "figure", "한국어", "문장을"]
WORDS += ["ｶﾞｷﾞ", "中", "I\u0307", "e\u0301", "ﬃ", "\xa0", "~", "a"]
OUTPUTS = ("start", "end", "score", "probability")
LENGTHS = Lengths(max_seq_length=37, doc_stride=11, max_query_length=8)


def questions(count):
    rng = random.Random(count)
    contexts = [
        " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 40))) for _ in range(count)
    ]
    contexts[1], contexts[2] = "", " \u0301 "
    return [
        Question(
            str(i), " ".join(rng.choice(WORDS) for _ in range(i % 12)), context, (), False, False
        )
        for i, context in enumerate(contexts)
    ]


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
    found = logits(batch)
    hidden = tf.cast(batch["p_mask"], tf.float32) * 1e30
    start = tf.math.top_k(found["start_logits"] - hidden, starts)
    place = tf.range(tf.shape(hidden)[1])
    shifts = tf.cast(start.indices[:, :, tf.newaxis] * place % 7, tf.float32)
    end = tf.math.top_k((found["end_logits"] - hidden)[:, tf.newaxis] + shifts, ends)
    return {
        "start_top_log_probs": start.values,
        "start_top_index": start.indices,
        "end_top_log_probs": tf.reshape(end.values, [-1, starts * ends]),
        "end_top_index": tf.reshape(end.indices, [-1, starts * ends]),
        "cls_logits": tf.sin(tf.reduce_sum(tf.cast(batch[features.INPUT_IDS], tf.float32), 1)),
    }


def in_python(tokenizer, asked, run, null_threshold=0.0, **settings):
    """For each question {output: value}."""
    encoded = span_features.encode(asked, tokenizer, LENGTHS.max_query_length)
    encoded = first_windows(encoded)
    cut = span_features.cut(encoded, LENGTHS.max_seq_length, LENGTHS.doc_stride)
    targets = span_features.targets(asked, encoded, cut)
    batch = span_features.batch(slice(None), encoded, cut, targets, LENGTHS.max_seq_length)
    outputs = run({name: tf.constant(value, tf.int32) for name, value in batch.items()})
    outputs = {name: value.numpy() for name, value in outputs.items()}
    outputs["unique_ids"] = batch["unique_ids"][:, 0]
    found = span_decoding.predict(outputs, cut, [q._asdict() for q in asked], **settings)
    return [answered(found[question.id], null_threshold) for question in asked]


def first_windows(encoded):
    """Of contexts that take more windows than the graph reads, their tokens."""
    rooms = LENGTHS.max_seq_length - 3 - np.array([len(query) for query in encoded.queries])
    most = rooms + (window_ops.MOST - 1) * np.minimum(rooms, LENGTHS.doc_stride)
    return encoded._replace(lengths=np.minimum(encoded.lengths, most))


def answered(prediction, null_threshold):
    """With the empty answer where the official script takes there to be none."""
    best = prediction["nbest"][0]
    found = {"answer": best["text"], **{name: best[name] for name in OUTPUTS}}
    if "null_odds" in prediction:
        found["null_odds"] = prediction["null_odds"]
        if found["null_odds"] > null_threshold:
            found |= {"answer": "", "start": 0, "end": 0}
    return found


def make_read(tokenizer, run, **settings):
    read = answer_ops.make_read(
        run,
        tiny_texts.graph(tokenizer),
        packing.special(tokenizer),
        LENGTHS,
        answer_ops.Settings(**settings),
    )
    return tf.function(
        read, input_signature=[tf.TensorSpec([None], tf.string)] * 2, autograph=False
    )


@pytest.mark.parametrize(
    ("make", "run", "may_be_none"),
    [
        (tiny_texts.sentencepieces, logits, True),
        (tiny_texts.sentencepieces, beams, True),
        pytest.param(tiny_texts.sentencepieces, logits, False, marks=pytest.mark.slow),
        pytest.param(tiny_texts.wordpieces, logits, True, marks=pytest.mark.slow),
        pytest.param(tiny_texts.wordpieces, beams, True, marks=pytest.mark.slow),
    ],
)
def test_answers_are_those_of_python(make, run, may_be_none):
    tokenizer, asked = make(), questions(60)
    settings = {"may_be_none": may_be_none, "n_best_size": 7, "max_answer_length": 9}
    if may_be_none:
        odds = sorted(row["null_odds"] for row in in_python(tokenizer, asked, run, **settings))
        settings["null_threshold"] = odds[45]
    expected = in_python(tokenizer, asked, run, **settings)
    found = make_read(tokenizer, run, **settings)(
        tf.constant([q.question for q in asked]), tf.constant([q.context for q in asked])
    )
    found = {name: value.numpy() for name, value in found.items()}
    assert ("null_odds" in found) == may_be_none
    for i, question in enumerate(asked):
        best = expected[i]
        assert found["answer"][i].decode() == best["answer"]
        assert found["answer"][i].decode() == question.context[found["start"][i] : found["end"][i]]
        assert (found["start"][i], found["end"][i]) == (best["start"], best["end"])
        assert found["score"][i] == pytest.approx(best["score"], rel=1e-6)
        assert found["probability"][i] == pytest.approx(best["probability"], rel=1e-6)
        if may_be_none:
            assert found["null_odds"][i] == pytest.approx(best["null_odds"], rel=1e-6)
    assert len(set(found["answer"])) > 20
    if may_be_none:
        assert sum(row["null_odds"] > odds[45] and row["score"] > -1e30 for row in expected) > 5


def test_windows_hold_what_the_records_hold():
    tokenizer = tiny_texts.sentencepieces()
    asked = questions(40)
    encoded = span_features.encode(asked, tokenizer, LENGTHS.max_query_length)
    expected = span_features.cut(encoded, LENGTHS.max_seq_length, LENGTHS.doc_stride)
    targets = span_features.targets(asked, encoded, expected)
    rows = span_features.batch(slice(None), encoded, expected, targets, LENGTHS.max_seq_length)
    found, batch = window_ops.cut(
        tf.constant([q.question for q in asked]),
        tf.constant([q.context for q in asked]),
        tiny_texts.graph(tokenizer),
        packing.special(tokenizer),
        LENGTHS,
    )
    for name in ("questions", "firsts", "lengths"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask"):
        size = batch[name].shape[1]
        assert np.array_equal(batch[name], rows[name][:, :size])
        assert rows["input_mask"][:, size:].sum() == 0
    wins = expected.best_ends > expected.best_begins
    assert np.array_equal(found.best_ends > found.best_begins, wins)
    for name in ("best_begins", "best_ends"):
        assert np.array_equal(getattr(found, name)[wins], getattr(expected, name)[wins])


def test_many_windows_are_read_some_at_a_time():
    sizes = []

    def run(batch):
        tf.py_function(lambda rows: sizes.append(int(rows)), [tf.shape(batch["input_ids"])[0]], [])
        return logits(batch)

    read = make_read(tiny_texts.sentencepieces(), run, may_be_none=True)
    read(tf.constant(["the"] * 5), tf.constant([" ".join(WORDS * 10)] * 5))
    assert max(sizes) == 32
    assert len(sizes) > 2
    graph = read.get_concrete_function().graph.as_graph_def()
    loops = [node for node in graph.node if "While" in node.op and node.name.startswith("while")]
    assert [loop.attr["parallel_iterations"].i for loop in loops] == [1]


def test_of_long_contexts_the_first_windows_are_read_and_others_answered():
    tokenizer = tiny_texts.sentencepieces()
    long = [" ".join(random.Random(seed).choices(WORDS, k=3000)) for seed in range(2)]
    asked = [
        Question(str(i), "the cafe", context, (), False, False)
        for i, context in enumerate(["sold 2011,", *long])
    ]
    found = make_read(tokenizer, logits, may_be_none=False)(
        tf.constant([q.question for q in asked]), tf.constant([q.context for q in asked])
    )
    for i, row in enumerate(in_python(tokenizer, asked, logits, may_be_none=False)):
        assert found["answer"][i].numpy().decode() == row["answer"]
        assert (found["start"][i], found["end"][i]) == (row["start"], row["end"])
    _, batch = window_ops.cut(
        tf.constant(["the"]),
        tf.constant(long[:1]),
        tiny_texts.graph(tokenizer),
        packing.special(tokenizer),
        LENGTHS,
    )
    assert len(batch["input_ids"]) == window_ops.MOST


def test_no_question_at_all():
    found = make_read(tiny_texts.sentencepieces(), logits, may_be_none=True)(
        tf.constant([], tf.string), tf.constant([], tf.string)
    )
    assert all(value.shape == (0,) for value in found.values())


def test_what_is_refused():
    read = make_read(tiny_texts.sentencepieces(), logits, may_be_none=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the same number of rows"):
        read(tf.constant(["a"]), tf.constant(["a", "b"]))
