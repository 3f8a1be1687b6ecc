import itertools
import random

import pytest
import tensorflow as tf
import tiny_texts

from data_prep.task_data import race
from export.requests import choice_requests, packing

PASSAGES = ["The cafe sold 2011, offices. " * 3, "한국어 문장을 읽고", "", "a"]
QUESTIONS = ["What is _ of ___ it?", "Which?", "_", "__ the_"]
OPTIONS = [
    ["office", "a\\1_b", "", "$&"],
    ["x " * 40, "y", "z_", "é"],
    [*"abcd"],
    ["", "", "", "_"],
]


def test_blanks_are_filled_as_in_the_records():
    found = choice_requests.endings(tf.constant(QUESTIONS), tf.constant(OPTIONS)).numpy().tolist()
    for question, options, endings in zip(QUESTIONS, OPTIONS, found, strict=True):
        expected = [race.fill_blank(question, option).encode() for option in options]
        assert endings == expected


def test_what_is_no_text_joins_to_no_character():
    rng = random.Random(0)
    ends = [rng.randbytes(rng.randint(1, 5)) for _ in range(300)]
    questions = [b"a" + end + b"_" + other for end, other in itertools.pairwise(ends)]
    found = choice_requests.endings(
        tf.constant(questions), tf.constant([ends] * len(questions))
    ).numpy()
    decoded = [end.decode(errors="replace") for end in ends]
    for question, endings in zip(questions, found, strict=True):
        text = question.decode(errors="replace")
        assert [ending.decode() for ending in endings] == [
            race.fill_blank(text, x) for x in decoded
        ]


def test_endings_lose_their_beginnings_and_passages_their_ends():
    vocabulary = tiny_texts.sentencepieces()
    length, most = 31, 13
    found = choice_requests.pack(
        tf.constant(PASSAGES),
        tf.constant(QUESTIONS),
        tf.constant(OPTIONS),
        tiny_texts.graph(vocabulary),
        packing.get_special_ids(vocabulary),
        max_seq_length=length,
        max_qa_length=most,
    )
    assert found["input_ids"].shape == (4, 4, length)
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    for i, (passage, question, options) in enumerate(
        zip(PASSAGES, QUESTIONS, OPTIONS, strict=True)
    ):
        for j, option in enumerate(options):
            ending = vocabulary.encode(race.fill_blank(question, option))[-most:]
            first = vocabulary.encode(passage)[: length - 3 - len(ending)]
            tokens = [cls, *first, sep, *ending, sep]
            rest = length - len(tokens)
            segments = [0] * (len(first) + 2) + [1] * (len(ending) + 1) + [0] * rest
            row = {name: value[i, j].numpy().tolist() for name, value in found.items()}
            assert row["input_ids"] == tokens + [vocabulary.pad_id] * rest
            assert row["input_mask"] == [1] * len(tokens) + [0] * rest
            assert row["segment_ids"] == segments


def packed(passages, questions, options):
    """In a graph, where nothing is computed in the order of the lines."""
    vocabulary = tiny_texts.sentencepieces()
    made, ids = tiny_texts.graph(vocabulary), packing.get_special_ids(vocabulary)
    texts = tf.TensorSpec([None], tf.string)
    pack = tf.function(
        lambda *batch: choice_requests.pack(*batch, made, ids, max_seq_length=9, max_qa_length=3),
        input_signature=[texts, texts, tf.TensorSpec([None, None], tf.string)],
        autograph=False,
    )
    return pack(passages, questions, options)


def test_batches_of_different_sizes_are_refused():
    for sizes in ((1, 2, 2), (2, 1, 2), (2, 2, 1), (0, 0, 2), (3, 3, 0)):
        passages, questions, options = (tf.fill([size], "a") for size in sizes)
        with pytest.raises(tf.errors.InvalidArgumentError, match="the same number of rows"):
            packed(passages, questions, options[:, tf.newaxis])


def test_long_options_in_many_blanks_are_refused():
    questions = tf.constant(["_ " * 3000, "_"])
    options = tf.constant([["a" * 300] * 2, ["b" * 1_900_000, ""]])
    assert packed(questions, questions, options)["input_ids"].shape == (2, 2, 9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 2097152 bytes"):
        packed(questions, questions, tf.tile(options, [1, 2]))
