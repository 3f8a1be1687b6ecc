"""Strategies of JSON values: any, and those of valid files in which something is damaged."""

import json
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(max_size=30) | st.sampled_from(["", " ", "\n", "\0", "a\tb", '"', "\ud800", "NaN"])
KEY = st.sampled_from(["text", "label", "id", "sha256", "format", "settings", "files", "task"])
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 1, 2, 12, 2**31, 2**63, 10**30])
    | st.floats()
    | TEXT
)
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY | TEXT, inner, max_size=4),
    max_leaves=12,
)


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def objects(keys: list[str], values: st.SearchStrategy = JSON) -> st.SearchStrategy:
    """Objects of some of these keys, and now and then others."""
    return st.dictionaries(st.sampled_from(keys) | st.text(max_size=4), values, max_size=6)


def _list_places(value: Any, place: tuple = ()) -> list[tuple]:
    """The ways to all values within a JSON value, and itself."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    return [place, *(x for key, inner in pairs for x in _list_places(inner, (*place, key)))]


def _replace(value: Any, place: tuple, new: Any) -> Any:
    """The value with another one at a place; `_GONE` removes what is there."""
    if not place:
        return None if new is _GONE else new
    copy = value.copy()
    inner = _replace(copy[place[0]], place[1:], new) if place[1:] or new is not _GONE else _GONE
    if inner is _GONE:
        del copy[place[0]]
    else:
        copy[place[0]] = inner
    return copy


_GONE = object()


@st.composite
def damaged(draw: Any, value: Any) -> Any:
    """A JSON value in which up to three values are others, or gone."""
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(_list_places(value)))
        value = _replace(value, place, draw(st.just(_GONE) | SCALAR | JSON))
    return value
