"""Finds in the StableHLO of a lowered step what would run badly on a TPU, with operation and name.

Most of it lowers without a word: shapes that depend on values are padded, float64 is emulated, a
callback waits for the host.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator

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
    """An operation of StableHLO that breaks a rule.

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
    """One operation: its kind, and its lines with those of its regions but not of inner loops."""

    kind: str
    lines: list[str]

    @property
    def types(self) -> list[str]:
        """Those of the operands and results, such as 4x8xf32; not of what is in the regions."""
        return _TYPE.findall(self.lines[0] + (self.lines[-1] if len(self.lines) > 1 else ""))


def lint(module: bytes) -> list[Finding]:
    """Returns all that the rules find in a module of StableHLO, as text; sorted."""
    lines = module.decode().splitlines()
    names = _read_names(lines)
    counts: collections.Counter[Finding] = collections.Counter()
    for operation in _read_operations(lines):
        for rule, line, detail in _find_faults(operation):
            location = _LOCATION.search(line)
            name = names.get(location[1], "unnamed") if location else "unnamed"
            counts[Finding(rule, operation.kind, name, detail)] += 1
    return sorted(dataclasses.replace(one, count=count) for one, count in counts.items())


def _read_operations(lines: Iterable[str]) -> Iterator[Operation]:
    """Yields each operation once; one in a region also is part of the operation around it."""
    opened: list[tuple[Operation, int]] = []  # and the depth of braces before it
    depth = 0
    for line in lines:
        if line.startswith("#loc"):
            continue
        before = depth
        depth += line.count("{") - line.count("}")
        for around, _ in reversed(opened):
            around.lines.append(line)
            if around.kind == _LOOP:
                break
        match = _OPERATION.match(line)
        if match and (depth > before or match[1] == _LOOP):
            opened.append((Operation(match[1], [line]), before))
            continue
        if match:
            yield Operation(match[1], [line])
        while opened and depth <= opened[-1][1]:
            yield opened.pop()[0]


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


def _find_faults(operation: Operation) -> Iterator[tuple[str, str, str]]:
    """Yields the rules that an operation breaks: a rule, the line whose name tells, and why."""
    shapes, line = operation.types, operation.lines[-1]
    kind, dtypes = operation.kind.split(".")[1], [shape.split("x")[-1] for shape in shapes]
    if any("?" in shape for shape in shapes):
        detail = "a shape that depends on values: make it a constant of the config"
        yield "dynamic shape", line, detail
    if "f64" in dtypes:
        yield "float type", line, "float64 is emulated by many operations: cast to float32"
    elif "f16" in dtypes:
        yield "float type", line, "float16 overflows and needs loss scaling: take bfloat16"
    adds = kind in REDUCTIONS and re.search(r"\badd\b", "\n".join(operation.lines))
    if adds and dtypes[-1] == "bf16":
        detail = "adds up in bfloat16, which has 8 bits: cast to float32 before"
        yield "bfloat16 sum", line, detail
    if kind in ("infeed", "outfeed", "send", "recv"):
        yield "host", line, "the device waits for the host: take it out of the step"
    if kind == "rng":
        detail = "random numbers with a hidden state: resuming and recomputing draw others"
        yield "stateful random numbers", line, detail
    if kind == "custom_call":
        target = _TARGET.search(operation.lines[0])
        called = target[1] or target[2] if target else "?"
        yield "custom call", line, f"calls {called}, which not every device has"
    if operation.kind == _LOOP:
        yield from _find_stacked(operation)


def _find_stacked(loop: Operation) -> Iterator[tuple[str, str, str]]:
    """Yields a fault of a loop that keeps for its gradient all that is computed in it."""
    kept: dict[str, list[str]] = {}
    for line in loop.lines:
        if ".dynamic_update_slice" in line:
            whole, part = (shape.split("x") for shape in _TYPE.findall(line)[:2])
            if part[0] == "1" != whole[0] and len(part) > 2 and part[-1] in ("f32", "bf16"):
                kept.setdefault(whole[0], []).append(line)
    for turns, lines in kept.items():
        if len(lines) > MAX_STACKED:
            detail = f"{turns} turns keep {len(lines)} arrays each: recompute what is in it"
            yield "loop without recomputing", lines[0], detail
