"""Tests of strict matching: differences are listed, and errors unless they are allowed."""

import numpy as np
import pytest
from absl import logging
from refusals import one_line

from albert_tf.checkpoints import matching

SIZES = {"a": (2, 3), "b": (4,), "d": (1,), "e": (7, 2)}
WEIGHTS = {name: np.zeros(size) for name, size in SIZES.items()}
SHAPES = {"a": (2, 3), "b": (5,), "c": (1,), "e": (-1, 2)}


def test_the_lists_are_logged_before_the_error(capsys):
    logging.set_verbosity(logging.DEBUG)
    with one_line("1 missing: c"):
        matching.match_strictly(WEIGHTS, SHAPES, "ckpt", "[bd]")
    assert capsys.readouterr().err.splitlines() == [
        "loaded 2, missing 1, unexpected 1, mismatched 1",
        "loaded: a",
        "loaded: e",
        "missing: c",
        "unexpected: d",
        "mismatched: b [4] instead of [5]",
    ]


def test_the_names_that_are_loaded_are_shown_on_request_alone(capsys):
    matching.match_strictly(WEIGHTS, SHAPES, "ckpt", "[bcd]")
    log = capsys.readouterr().err
    assert "loaded 2, missing 1" in log
    assert "loaded: a" not in log


def test_any_size_does_not_mean_any_number_of_axes():
    assert matching.compare_weights({"a": np.zeros(3)}, {"a": (-1, 2)}).mismatched.keys() == {"a"}


@pytest.mark.parametrize(
    ("allowed", "listed"),
    [
        (None, r"1 missing: c; 1 unexpected: d; 1 mismatched: b \[4\] instead of \[5\]"),
        ("c", r"1 unexpected: d; 1 mismatched: b"),
        ("[bd]", r"1 missing: c\)"),
        (".", None),
        ("", r"1 missing: c; "),  # a pattern matches whole names
    ],
)
def test_a_difference_that_is_not_allowed_is_an_error(allowed, listed):
    if listed is None:
        matches = matching.match_strictly(WEIGHTS, SHAPES, "ckpt", allowed)
        assert matches == matching.compare_weights(WEIGHTS, SHAPES)
        return
    with one_line(rf"^ckpt does not fit the model \({listed}.*--allow_partial=REGEX"):
        matching.match_strictly(WEIGHTS, SHAPES, "ckpt", allowed)


def test_a_wrong_pattern_is_named():
    with one_line(r"--allow_partial: '\(' is not a regular expression"):
        matching.compile_pattern("(")
