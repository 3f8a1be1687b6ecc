"""Requests of texts with masks, and of passages with a question and its options."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
import tiny_texts

from albert_tf.data_prep.task_data import race
from albert_tf.export.requests import text_requests
from albert_tf.kinds import task_table
from albert_tf.records import features
from albert_tf.train_config import Lengths

QUESTIONS = ["What is _ of ___ it?", "Which?", "_", "__ the_"]
OPTIONS = [
    ["office", "a\\1_b", "", "$&"],
    ["x " * 40, "y", "z_", "é"],
    [*"abcd"],
    ["", "", "", "_"],
]


def test_guesses_are_pieces_and_nothing_where_there_is_no_mask():
    vocabulary = tiny_texts.wordpieces()
    the, cafe = (vocabulary.piece_to_id(piece) for piece in ("the", "café"))
    ids = [[[the, cafe], [cafe, the]], [[the, cafe], [the, cafe]]]
    chances = [[[0.5, 0.25], [0.5, 0.125]], [[0.75, 0.0], [0.5, 0.5]]]
    outputs = {"top_ids": tf.constant(ids), "top_probabilities": tf.constant(chances)}
    ids = {features.MASKED_LM_POSITIONS: tf.constant([[3, 7], [2, 0]])}
    guesses = task_table.MODELS["fill_mask"].answer.respond_to_texts(outputs, ids, vocabulary)
    words = [[["the", "café"], ["café", "the"]], [["the", "café"], ["", ""]]]
    assert np.char.decode(guesses["tokens"].numpy().astype("S9")).tolist() == words
    assert guesses["probabilities"].numpy().tolist()[1] == [[0.75, 0.0], [0.0, 0.0]]


def test_blanks_are_filled_as_in_the_records():
    endings_of_questions = (
        text_requests.fill_blanks(tf.constant(QUESTIONS), tf.constant(OPTIONS)).numpy().tolist()
    )
    for question, options, endings in zip(QUESTIONS, OPTIONS, endings_of_questions, strict=True):
        assert endings == [race.fill_blank(question, option).encode() for option in options]


def test_what_is_no_text_joins_to_no_character():
    rng = random.Random(0)
    ends = [rng.randbytes(rng.randint(1, 5)) for _ in range(300)]
    questions = [b"a" + end + b"_" + other for end, other in itertools.pairwise(ends)]
    endings_of_questions = text_requests.fill_blanks(
        tf.constant(questions), tf.constant([ends] * len(questions))
    ).numpy()
    decoded = [end.decode(errors="replace") for end in ends]
    for question, endings in zip(questions, endings_of_questions, strict=True):
        text = question.decode(errors="replace")
        assert [ending.decode() for ending in endings] == [
            race.fill_blank(text, x) for x in decoded
        ]


def packed(passages, questions, options):
    """In a graph, where nothing is computed in the order of the lines."""
    made = tiny_texts.graph(tiny_texts.sentencepieces())
    lengths = Lengths(max_seq_length=9, max_qa_length=3)
    texts = tf.TensorSpec([None], tf.string)
    pack = tf.function(
        lambda *texts: text_requests.pack_choices(
            dict(zip(("passage", "question", "options"), texts, strict=True)), made, lengths
        ),
        input_signature=[texts, texts, tf.TensorSpec([None, None], tf.string)],
        autograph=False,
    )
    return pack(passages, questions, options)


def test_batches_of_different_sizes_are_refused():
    for sizes in ((1, 2, 2), (2, 2, 1), (0, 0, 2)):
        passages, questions, options = (tf.fill([size], "a") for size in sizes)
        with pytest.raises(tf.errors.InvalidArgumentError, match="the same number of rows"):
            packed(passages, questions, options[:, tf.newaxis])


@pytest.mark.full
def test_long_options_in_many_blanks_are_refused():
    questions = tf.constant(["_ " * 3000, "_"])
    options = tf.constant([["a" * 300] * 2, ["b" * 1_900_000, ""]])
    assert packed(questions, questions, options)["input_ids"].shape == (2, 2, 9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 2097152 bytes"):
        packed(questions, questions, tf.tile(options, [1, 2]))
