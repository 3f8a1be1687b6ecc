"""Lengths that go together, and those that do not."""

import pytest

from albert_tf.errors import UserError
from albert_tf.records import task_table, token_lengths
from albert_tf.train_config import FinetuneConfig


def test_each_kind_has_its_own():
    settings = FinetuneConfig(max_seq_length=99, max_qa_length=11)
    found = token_lengths.of(task_table.MULTIPLE_CHOICE, settings)
    assert found == {"max_seq_length": 99, "max_qa_length": 11}
    assert token_lengths.of("fill_mask", settings) == {"max_seq_length": 99}


@pytest.mark.parametrize("kind", [task_table.SPAN, task_table.SPAN_OR_NONE])
def test_a_token_of_the_context_is_the_least(kind):
    least = {"max_seq_length": 68, "max_query_length": 64, "doc_stride": 1}
    token_lengths.check(kind, least)
    for length in (67, 40):
        with pytest.raises(UserError, match="max_query_length=64 leaves no room for the context"):
            token_lengths.check(kind, {**least, "max_seq_length": length})
    with pytest.raises(UserError, match="doc_stride must be at least 1, not 0"):
        token_lengths.check(kind, {**least, "doc_stride": 0})


def test_texts_and_passages_need_room():
    token_lengths.check(task_table.CLASSIFICATION, {"max_seq_length": 5})
    with pytest.raises(UserError, match="max_seq_length must be at least 5, not 4"):
        token_lengths.check("encoder", {"max_seq_length": 4})
    with pytest.raises(UserError, match="max_qa_length=7 leaves no room for the passage"):
        token_lengths.check(task_table.MULTIPLE_CHOICE, {"max_seq_length": 10, "max_qa_length": 7})
