"""What differs is listed, and is an error unless it is named."""

import pytest

from albert_tf.checkpoints import matching
from albert_tf.errors import UserError

FOUND = {"a": (2, 3), "b": (4,), "d": (1,), "e": (7, 2)}
WANTED = {"a": (2, 3), "b": (5,), "c": (1,), "e": (-1, 2)}


def test_every_name_is_in_one_list():
    names = matching.compare(FOUND, WANTED)
    assert names.loaded == ["a", "e"]
    assert (names.missing, names.unexpected, names.misshapen) == (["c"], ["d"], ["b"])
    assert matching.lines(names) == [
        "loaded 2, missing 1, unexpected 1, misshapen 1",
        "loaded: a",
        "loaded: e",
        "missing: c",
        "unexpected: d",
        "misshapen: b [4] instead of [5]",
    ]


def test_long_lists_are_not_cut_short():
    names = matching.compare({}, {str(i): () for i in range(6)})
    assert matching.lines(names)[1:] == [f"missing: {i}" for i in range(6)]


def test_the_lists_are_told_before_the_error():
    told = []
    with pytest.raises(UserError, match="1 missing: c"):
        matching.check(FOUND, WANTED, "ckpt", allow_partial="[bd]", say=told.append)
    assert told == matching.lines(matching.compare(FOUND, WANTED))


def test_that_nothing_is_loaded_is_always_an_error():
    names = matching.compare({"a": (2,)}, {"b": (2,)})
    with pytest.raises(UserError, match=r"^ckpt has no weight that fits the model"):
        matching.require(names, "ckpt", ".*")


def test_any_size_does_not_mean_any_number_of_axes():
    assert matching.compare({"a": (3,)}, {"a": (-1, 2)}).misshapen == ["a"]


@pytest.mark.parametrize(
    ("allowed", "listed"),
    [
        (None, r"1 missing: c; 1 unexpected: d; 1 misshapen: b \[4\] instead of \[5\]"),
        ("c", r"1 unexpected: d; 1 misshapen: b"),
        ("[bd]", r"1 missing: c\)"),
        (".", None),
        ("", r"1 missing: c; "),  # a pattern matches whole names
    ],
)
def test_what_is_not_named_is_an_error(allowed, listed):
    names = matching.compare(FOUND, WANTED)
    if listed is None:
        matching.require(names, "ckpt", allowed)
        return
    with pytest.raises(UserError, match=rf"^ckpt does not fit the model \({listed}") as caught:
        matching.require(names, "ckpt", allowed)
    assert "--allow_partial=REGEX" in str(caught.value)


def test_a_wrong_pattern_is_named():
    with pytest.raises(UserError, match=r"--allow_partial: '\(' is not a regular expression"):
        matching.pattern("(")
