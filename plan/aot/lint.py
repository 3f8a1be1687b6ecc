"""What a lowered step must not have if it is to run well on a TPU, found in its StableHLO.

Most of it lowers without a word: shapes that depend on values are padded, float64 is emulated, a
callback waits for the host. Here each is an error with the operation and its name.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter")
HOST = ("infeed", "outfeed", "send", "recv")
# Written in a loop without recomputing there are a dozen; with it, the input of each turn.
MAX_STACKED = 2

# Its regions begin on the next line.
_LOOP = "stablehlo.while"
# `%1 = stablehlo.add ...`, `"stablehlo.all_reduce"(...)`, and `mhlo.` and `chlo.`, too
_OPERATION = re.compile(r'^\s*(?:%[\w:, %#]+ = )?"?((?:stablehlo|chlo|mhlo)\.[a-z_0-9]+)"?')
_TYPE = re.compile(r"tensor<([^>]*?)(?:, #stablehlo[^>]*>)?>")
_LOCATION = re.compile(r"loc\((#loc\d*)\)\s*$")
_NAMED = re.compile(r'^(#loc\d*) = loc\("(.*?)"\S*?\)$')
_FUSED = re.compile(r"^(#loc\d*) = loc\(fused(?:<.*?>)?\[(.*?)\]\)$")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """Something that a rule found.

    Attributes:
        rule: a key of `RULES`.
        operation: of StableHLO.
        name: that TensorFlow gave to it, after the layer and the function that made it.
        detail: what is wrong with it.
        count: of operations of that name.
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
    """One operation: what it is, its lines (its regions too) and where it says it comes from."""

    kind: str
    text: str
    location: str

    @property
    def types(self) -> list[str]:
        """Of its operands and results, not of what is in its regions."""
        lines = self.text.splitlines()
        return _TYPE.findall(lines[0] + (lines[-1] if len(lines) > 1 else ""))


def lint(module: bytes) -> list[Finding]:
    """All that the rules find in a module of StableHLO, as text; sorted."""
    lines = module.decode().splitlines()
    names = _names(lines)
    counts: collections.Counter[Finding] = collections.Counter()
    for operation in _operations(lines):
        for rule, check in RULES.items():
            if detail := check(operation):
                name = names.get(operation.location, "unnamed")
                counts[Finding(rule, operation.kind, name, detail)] += 1
    counts.update(_stacked(_operations(lines), names))
    return sorted(dataclasses.replace(one, count=count) for one, count in counts.items())


def _operations(lines: Iterable[str]) -> Iterator[Operation]:
    """Each operation once; those in the regions of another for themselves and as part of it."""
    open_ones: list[tuple[str, list[str], int]] = []  # kind, lines, depth of braces before it
    depth = 0
    for line in lines:
        if line.startswith("#loc"):
            continue
        before = depth
        depth += line.count("{") - line.count("}")
        match = _OPERATION.match(line)
        for _, text, _ in open_ones:
            text.append(line)
        if match and (depth > before or match[1] == _LOOP):
            open_ones.append((match[1], [line], before))
            continue
        if match:
            yield Operation(match[1], line, _location(line))
        while open_ones and depth <= open_ones[-1][2]:
            kind, text, _ = open_ones.pop()
            yield Operation(kind, "\n".join(text), _location(line))


def _location(line: str) -> str:
    match = _LOCATION.search(line)
    return match[1] if match else ""


def _names(lines: Iterable[str]) -> dict[str, str]:
    """What each location is called; one of several by the first that is no file."""
    named: dict[str, str] = {}
    fused: dict[str, list[str]] = {}
    for line in lines:
        if match := _NAMED.match(line):
            named[match[1]] = match[2]
        elif match := _FUSED.match(line):
            fused[match[1]] = match[2].split(", ")
    for location, parts in fused.items():
        known = [named[part] for part in parts if part in named]
        named[location] = next(iter(known), "unnamed")
    return named


def _dynamic_shape(operation: Operation) -> str | None:
    if any("?" in kind for kind in operation.types):
        return "a shape that depends on values: make it a constant of the config"
    return None


def _float_type(operation: Operation) -> str | None:
    kinds = {kind.split("x")[-1] for kind in operation.types}
    if "f64" in kinds:
        return "float64 is emulated by many operations: cast to float32"
    if "f16" in kinds:
        return "float16 overflows and needs loss scaling: take bfloat16"
    return None


def _bfloat16_reduction(operation: Operation) -> str | None:
    if operation.kind.split(".")[1] not in REDUCTIONS:
        return None
    if re.search(r"\badd\b", operation.text) and operation.types[-1].split("x")[-1] == "bf16":
        return "adds up in bfloat16, which has 8 bits: cast to float32 before"
    return None


def _host(operation: Operation) -> str | None:
    if operation.kind.split(".")[1] in HOST:
        return "the device waits for the host: take it out of the step"
    return None


def _stateful_random(operation: Operation) -> str | None:
    if operation.kind.endswith(".rng"):
        return "random numbers with a hidden state: resuming and recomputing draw others"
    return None


def _custom_call(operation: Operation) -> str | None:
    if not operation.kind.endswith(".custom_call"):
        return None
    target = re.search(r"@(\w+)|call_target_name = \"(.*?)\"", operation.text)
    called = (target[1] or target[2]) if target else "?"
    return f"calls {called}, which not every device has"


RULES: dict[str, Callable[[Operation], str | None]] = {
    "dynamic shape": _dynamic_shape,
    "float type": _float_type,
    "bfloat16 sum": _bfloat16_reduction,
    "host": _host,
    "stateful random numbers": _stateful_random,
    "custom call": _custom_call,
}


def _stacked(operations: Iterable[Operation], names: dict[str, str]) -> list[Finding]:
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
