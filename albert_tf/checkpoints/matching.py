"""Strict loading: what a checkpoint holds against what is wanted; nothing differs unexplained.

The same for converting, for `--init_checkpoint` and for fine-tuning.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from albert_tf.errors import UserError

Shape = Sequence[int]


class Comparison(NamedTuple):
    """Names of weights, sorted; a name is in one of the lists.

    Attributes:
        loaded: in both, of one shape.
        missing: wanted, but not in the checkpoint.
        unexpected: in the checkpoint, but not wanted.
        misshapen: in both, of two shapes.
        shapes: for the misshapen, "[found] instead of [wanted]".
    """

    loaded: Sequence[str]
    missing: Sequence[str]
    unexpected: Sequence[str]
    misshapen: Sequence[str]
    shapes: Mapping[str, str]


def check(
    found: Mapping[str, Shape],
    wanted: Mapping[str, Shape],
    where: str,
    *,
    allow_partial: str | None,
    say: Callable[[str], None],
) -> Comparison:
    """Compares, says what came of it, and raises `UserError` where `require` does."""
    names = compare(found, wanted)
    for line in lines(names):
        say(line)
    require(names, where, allow_partial)
    return names


def compare(found: Mapping[str, Shape], wanted: Mapping[str, Shape]) -> Comparison:
    """Sorts names by what becomes of them. In a wanted shape, -1 stands for any size."""
    both = sorted(found.keys() & wanted.keys())
    misshapen = {
        name: f"{list(found[name])} instead of {list(wanted[name])}"
        for name in both
        if not _fits(found[name], wanted[name])
    }
    return Comparison(
        loaded=[name for name in both if name not in misshapen],
        missing=sorted(wanted.keys() - found.keys()),
        unexpected=sorted(found.keys() - wanted.keys()),
        misshapen=list(misshapen),
        shapes=misshapen,
    )


def _fits(found: Shape, wanted: Shape) -> bool:
    return len(found) == len(wanted) and all(
        b in (a, -1) for a, b in zip(found, wanted, strict=True)
    )


def require(names: Comparison, where: str, allow_partial: str | None = None) -> None:
    """Raises `UserError` unless all that differs is matched, as a whole, by `allow_partial`.

    Also if nothing is loaded: that has never been meant.
    """
    allowed = pattern(allow_partial)
    wrong = []
    for kind in ("missing", "unexpected", "misshapen"):
        rows = [name for name in getattr(names, kind) if not allowed.fullmatch(name)]
        if rows:
            wrong.append(f"{len(rows)} {kind}: {rows[0]} {names.shapes.get(rows[0], '')}".strip())
    if wrong:
        raise UserError(
            f"{where} does not fit the model ({'; '.join(wrong)}). Use the config beside the "
            "checkpoint, or name what may differ with --allow_partial=REGEX."
        )
    if not names.loaded:
        raise UserError(f"{where} has no weight that fits the model: nothing would be loaded.")


def pattern(allow_partial: str | None) -> re.Pattern[str]:
    """The pattern of names that may differ; without one, no name may.

    Raises:
        UserError: it is not a regular expression.
    """
    try:
        return re.compile(r"(?!)" if allow_partial is None else allow_partial)
    except re.error as error:
        raise UserError(
            f"--allow_partial: {allow_partial!r} is not a regular expression ({error})."
        ) from None


def lines(names: Comparison) -> list[str]:
    """The four lists for people: their lengths, then every name in a line of its own."""
    kinds = ("loaded", "missing", "unexpected", "misshapen")
    told = [", ".join(f"{kind} {len(getattr(names, kind))}" for kind in kinds)]
    for kind in kinds:
        rows = getattr(names, kind)
        told += [f"{kind}: {name} {names.shapes.get(name, '')}".strip() for name in rows]
    return told
