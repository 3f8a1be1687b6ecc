"""Random requests are answered as Python answers them, or refused with a sentence."""

import fuzzing
import numpy as np
import pytest

NUMBER = 20
# One for each way that texts are asked.
KINDS = ("classification", "multiple_choice", "span_or_none", "fill_mask")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=KINDS)
def served(request, tmp_path_factory):
    vocabulary = fuzzing.VOCABULARIES[KINDS.index(request.param) % 2]
    return fuzzing.export(request.param, vocabulary, str(tmp_path_factory.mktemp("fuzz") / "x"))


def test_random_requests(served):
    verdicts = [fuzzing.check_text(served, f"check_text {number}") for number in range(NUMBER)]
    assert [verdict.wrong for verdict in verdicts if verdict.wrong] == []
    num_refused = sum(verdict.is_refused for verdict in verdicts)
    assert 0 < num_refused < NUMBER


def test_texts_of_another_rank_are_refused(served):
    for name in ("text", "question"):
        for shape in ([], [1, 1, 1]):
            values = {key: np.full(shape, b"a", object) for key in served.inputs.get(name, [])}
            if values:
                verdict = fuzzing.judge(served, name, values, refuses=True)
                assert verdict.is_refused
                assert not verdict.wrong
