"""Tests which lengths each kind of task uses, and which fit together."""

import pytest
from refusals import one_line

from albert_tf.kinds import task_table, token_lengths
from albert_tf.train_config import FinetuneConfig, Lengths


def check(kind, **lengths):
    token_lengths.check(Lengths(**lengths), task_table.KINDS.get(kind))


def test_each_kind_has_its_own():
    config = FinetuneConfig(max_seq_length=99, max_qa_length=11)
    selected = token_lengths.select(config, task_table.KINDS["multiple_choice"])
    assert selected == {"max_seq_length": 99, "max_qa_length": 11}
    assert token_lengths.select(config, None) == {"max_seq_length": 99}


LEAST = {"max_seq_length": 68, "max_query_length": 64, "doc_stride": 1}
CHOICES = {"max_seq_length": 10, "max_qa_length": 6}


@pytest.mark.parametrize(
    ("kind", "least", "change", "message"),
    [
        ("span", LEAST, {"max_seq_length": 67}, "query_length=64 leaves no room for the context"),
        ("span_or_none", LEAST, {"doc_stride": 0}, "doc_stride must be at least 1, not 0"),
        ("encoder", {"max_seq_length": 5}, {"max_seq_length": 4}, "must be at least 5, not 4"),
        ("multiple_choice", CHOICES, {"max_qa_length": 7}, "=7 leaves no room for the passage"),
    ],
)
def test_texts_need_room(kind, least, change, message):
    check(kind, **least)
    with one_line(message):
        check(kind, **least | change)


def test_windows_that_do_not_overlap_are_refused():
    named = (task_table.KINDS["span"], ("doc_stride", "max_query_length"))
    config = FinetuneConfig(max_seq_length=128, doc_stride=60)
    assert token_lengths.follow(config, *named) == config
    config = FinetuneConfig(max_seq_length=128, doc_stride=61)
    with one_line("doc_stride=61: windows of max_seq_length=128 would not overlap. Use at most 60"):
        token_lengths.follow(config, *named)


@pytest.mark.parametrize(
    ("kind", "length", "expected"),
    [
        ("span", 384, (128, 64, 128)),
        ("span", 256, (94, 64, 128)),
        ("span_or_none", 128, (41, 42, 128)),
        ("span", 6, (1, 2, 128)),
        ("token_classification", 128, (63, 64, 128)),
        ("multiple_choice", 128, (128, 64, 42)),
        ("classification", 16, (128, 64, 128)),
    ],
)
def test_lengths_follow_that_of_the_sequence(kind, length, expected):
    config = FinetuneConfig(max_seq_length=length)
    followed = token_lengths.follow(config, task_table.KINDS[kind], ())
    assert (followed.doc_stride, followed.max_query_length, followed.max_qa_length) == expected
    token_lengths.check(followed, task_table.KINDS[kind])
    assert token_lengths.follow(followed, task_table.KINDS[kind], ("max_query_length",)) == followed


def test_buckets_end_with_the_longest():
    assert token_lengths.make_buckets(20) == [8, 16, 20]
    assert token_lengths.make_buckets(20, few=True) == [20]
    assert token_lengths.make_buckets(130) == [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 130]
    assert token_lengths.make_buckets(130, few=True) == [32, 64, 128, 130]
    # Padding adds seven tokens or a fifth.
    buckets = token_lengths.make_buckets(512)
    assert len(buckets) == 20
    for length in range(1, 513):
        bucket = min(x for x in buckets if x >= length)
        assert bucket - length <= max(7, bucket / 5)
