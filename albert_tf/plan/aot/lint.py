"""Finds in the StableHLO of a lowered step what would run badly on a TPU, with operation and name.

Most of it lowers without a word: shapes that depend on values are padded, float64 is emulated, a
callback waits for the host.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter")
# Written in a loop without recomputing there are a dozen; with it, the input of each turn.
MAX_STACKED = 2

# Its regions begin on the next line.
_LOOP = "stablehlo.while"
# `%1 = stablehlo.add ...`, `"stablehlo.all_reduce"(...)`, and `mhlo.` and `chlo.`, too
_OPERATION = re.compile(r'^\s*(?:%[\w:, %#]+ = )?"?((?:stablehlo|chlo|mhlo)\.[a-z_0-9]+)"?')
_TYPE = re.compile(r"tensor<([^>]*?)(?:, #stablehlo[^>]*>)?>")
_TARGET = re.compile(r'@(\w+)|call_target_name = "(.*?)"')  # of a custom call
_LOCATION = re.compile(r"loc\((#loc\d*)\)\s*$")
_NAMED = re.compile(r'^(#loc\d*) = loc\("(.*?)"\S*?\)$')
_FUSED = re.compile(r"^(#loc\d*) = loc\(fused(?:<.*?>)?\[(.*?)\]\)$")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """An operation of StableHLO that breaks a rule of `RULES`.

    `name` is TensorFlow's, after the layer and the function that made it.
    """

    rule: str
    operation: str
    name: str
    detail: str
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.rule}: {self.operation} {self.name!r}{times}: {self.detail}"


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation: its kind, its lines with those of its regions, its location."""

    kind: str
    text: str
    location: str

    @property
    def types(self) -> list[str]:
        """Of its operands and results, not of what is in its regions."""
        lines = self.text.splitlines()
        return _TYPE.findall(lines[0] + (lines[-1] if len(lines) > 1 else ""))

    @property
    def dtypes(self) -> list[str]:
        return [kind.split("x")[-1] for kind in self.types]


def lint(module: bytes) -> list[Finding]:
    """Returns all that the rules find in a module of StableHLO, as text; sorted."""
    lines = module.decode().splitlines()
    names = _read_names(lines)
    counts: collections.Counter[Finding] = collections.Counter()
    for operation in _read_operations(lines):
        for rule, is_broken_by, detail in RULES:
            if is_broken_by(operation):
                name = names.get(operation.location, "unnamed")
                target = _TARGET.search(operation.text)
                detail = detail.format(target=target[1] or target[2] if target else "?")
                counts[Finding(rule, operation.kind, name, detail)] += 1
    counts.update(_find_stacked(_read_operations(lines), names))
    return sorted(dataclasses.replace(one, count=count) for one, count in counts.items())


def _read_operations(lines: Iterable[str]) -> Iterator[Operation]:
    """Yields each operation once; one in a region also is part of the operation around it."""
    opened: list[tuple[str, list[str], int]] = []  # kind, lines, depth of braces before it
    depth = 0
    for line in lines:
        if line.startswith("#loc"):
            continue
        before = depth
        depth += line.count("{") - line.count("}")
        match = _OPERATION.match(line)
        for _, text, _ in opened:
            text.append(line)
        if match and (depth > before or match[1] == _LOOP):
            opened.append((match[1], [line], before))
            continue
        if match:
            yield Operation(match[1], line, _location(line))
        while opened and depth <= opened[-1][2]:
            kind, text, _ = opened.pop()
            yield Operation(kind, "\n".join(text), _location(line))


def _location(line: str) -> str:
    match = _LOCATION.search(line)
    return match[1] if match else ""


def _read_names(lines: Iterable[str]) -> dict[str, str]:
    """Returns {location: its name}; of a fused one the first that is no file."""
    named: dict[str, str] = {}
    fused: dict[str, list[str]] = {}
    for line in lines:
        if match := _NAMED.match(line):
            named[match[1]] = match[2]
        elif match := _FUSED.match(line):
            fused[match[1]] = match[2].split(", ")
    for location, parts in fused.items():
        named[location] = next((named[part] for part in parts if part in named), "unnamed")
    return named


def _sums_in_bfloat16(operation: Operation) -> bool:
    adds = operation.kind.split(".")[1] in REDUCTIONS and re.search(r"\badd\b", operation.text)
    return bool(adds) and operation.dtypes[-1] == "bf16"


# Each rule: its name, which operations break it, and what is wrong with them.
RULES: tuple[tuple[str, Callable[[Operation], bool], str], ...] = (
    (
        "dynamic shape",
        lambda x: any("?" in kind for kind in x.types),
        "a shape that depends on values: make it a constant of the config",
    ),
    (
        "float type",
        lambda x: "f64" in x.dtypes,
        "float64 is emulated by many operations: cast to float32",
    ),
    (
        "float type",
        lambda x: "f16" in x.dtypes and "f64" not in x.dtypes,
        "float16 overflows and needs loss scaling: take bfloat16",
    ),
    (
        "bfloat16 sum",
        _sums_in_bfloat16,
        "adds up in bfloat16, which has 8 bits: cast to float32 before",
    ),
    (
        "host",
        lambda x: x.kind.endswith((".infeed", ".outfeed", ".send", ".recv")),
        "the device waits for the host: take it out of the step",
    ),
    (
        "stateful random numbers",
        lambda x: x.kind.endswith(".rng"),
        "random numbers with a hidden state: resuming and recomputing draw others",
    ),
    (
        "custom call",
        lambda x: x.kind.endswith(".custom_call"),
        "calls {target}, which not every device has",
    ),
)


def _find_stacked(operations: Iterable[Operation], names: dict[str, str]) -> list[Finding]:
    """A loop that keeps for its gradient all that is computed in it."""
    findings = []
    for loop in operations:
        if loop.kind != _LOOP:
            continue
        kept: dict[str, list[str]] = {}
        for line in _own_lines(loop.text):
            if ".dynamic_update_slice" in line:
                whole, part = (kind.split("x") for kind in _TYPE.findall(line)[:2])
                if part[0] == "1" != whole[0] and len(part) > 2 and part[-1] in ("f32", "bf16"):
                    kept.setdefault(whole[0], []).append(line)
        for turns, lines in kept.items():
            if len(lines) > MAX_STACKED:
                name = names.get(_location(lines[0]), "unnamed")
                detail = f"{turns} turns keep {len(lines)} arrays each: recompute what is in it"
                findings.append(Finding("loop without recomputing", loop.kind, name, detail))
    return findings


def _own_lines(loop: str) -> Iterator[str]:
    """The lines of a loop but not those of loops within it."""
    first, *lines = loop.splitlines()
    yield first
    depth, inner = 0, None  # of braces; where an inner loop begins
    for line in lines:
        depth += line.count("{") - line.count("}")
        if inner is None and f"{_LOOP}(" in line:
            inner = depth
        elif inner is None:
            yield line
        elif depth <= inner:
            inner = None
