"""Random requests are answered as Python answers them, or refused with a sentence."""

import fuzzing
import numpy as np
import pytest
import tensorflow as tf

NUMBER = 20
# One for each way that texts are asked.
KINDS = ("classification", "multiple_choice", "span_or_none", "fill_mask")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=KINDS)
def served(request, tmp_path_factory):
    vocabulary = fuzzing.VOCABULARIES[KINDS.index(request.param) % 2]
    return fuzzing.export(request.param, vocabulary, str(tmp_path_factory.mktemp("fuzz") / "x"))


@pytest.mark.parametrize(
    "check",
    [fuzzing.check_text, fuzzing.check_ids, fuzzing.check_examples],
    ids=lambda f: f.__name__,
)
def test_random_requests(served, check):
    verdicts = [check(served, f"{check.__name__} {number}") for number in range(NUMBER)]
    assert [verdict.wrong for verdict in verdicts if verdict.wrong] == []
    num_refused = sum(verdict.is_refused for verdict in verdicts)
    assert 0 < num_refused < NUMBER


def test_ids_of_64_bits_are_not_cut_to_others(served):
    ids = tf.train.Feature(int64_list=tf.train.Int64List(value=[2**32 + 1] * 5))
    example = tf.train.Example(features=tf.train.Features(feature={"input_ids": ids}))
    name = next(name for name, inputs in served.inputs.items() if inputs == ["inputs"])
    request = {"inputs": np.array([example.SerializeToString()], object)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_ids must be from 0 to"):
        served.ask(name, request)


def test_texts_of_another_rank_are_refused(served):
    for name in ("text", "question"):
        for shape in ([], [1, 1, 1]):
            values = {key: np.full(shape, b"a", object) for key in served.inputs.get(name, [])}
            if values:
                verdict = fuzzing.judge(served, name, values, refuses=True)
                assert verdict.is_refused
                assert not verdict.wrong
