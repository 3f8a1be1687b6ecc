"""A sample of random inputs."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")  # which needs Python 3.11
sys.path.insert(0, str(Path(__file__).parent))

import hostile_targets
import random_inputs

from albert_tf.errors import UserError

NUMBER = 600
TARGETS = hostile_targets.TARGETS


def raise_error(error):
    raise error


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda: {}["x"], "KeyError"),
        (lambda: raise_error(UserError("")), "without a word"),
        (lambda: raise_error(OSError("strange")), "OSError: strange"),
    ],
)
def test_a_defect_is_noticed(read, what):
    with pytest.raises(random_inputs.DefectError, match=what):
        random_inputs.judge(read)


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_random_input_works_or_is_one_line(name):
    share = TARGETS[name].weight / sum(target.weight for target in TARGETS.values())
    outcomes = random_inputs.run(TARGETS[name], round(NUMBER * share))
    assert outcomes.total() > 0
