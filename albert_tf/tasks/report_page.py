"""HTML pages of reports, each one file that loads nothing: text, tables and curves as SVG.

All texts are escaped here. Pages are read with a browser of any width.
"""

import html
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources

Table = Sequence[Sequence[str]]
Points = Sequence[Sequence[float]]  # (x, y), or (x, y, lowest y, highest y)
Mark = tuple[int, int, str]  # start and end in characters, and the CSS class of what it is

# Nothing is loaded and nothing runs, whatever a text on the page says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 360, 210, 52, 40, 30
# Of a middling brightness: they are seen on white and on black.
_COLOURS = ["#2f7fd1", "#d9691e", "#3a9a46", "#a557b8", "#808080", "#b8860b", "#0a9396", "#e0447c"]
_MOST_POINTS = 400  # of a curve


def escape(text: object) -> str:
    """Returns HTML that shows a text; its direction does not change that of what is around it."""
    return f"<bdi>{html.escape(str(text))}</bdi>"


def make_page(title: str, parts: Sequence[str]) -> bytes:
    """Returns the page whose heading is the title, and whose parts are HTML."""
    style = resources.files("albert_tf").joinpath("style.css").read_text("utf-8")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>"
        f'<body class="report"><h1>{html.escape(title)}</h1>{"".join(parts)}</body></html>\n'
    )
    # A JSON file may hold half of a character.
    return page.encode("utf-8", "replace")


def make_summary(rows: Iterable[tuple[str, str, str]]) -> str:
    """Returns a card of (name, value, note); the first is the largest, one without note is wide."""
    cells = "".join(
        f"<div{'' if note else ' class=wide'}><dt>{html.escape(name)}</dt><dd>{escape(value)}</dd>"
        f"<small>{html.escape(note)}</small></div>"
        for name, value, note in rows
    )
    return f'<section class="part"><dl class="summary">{cells}</dl></section>'


def make_columns(parts: Iterable[str]) -> str:
    """Returns cards beside each other where there is room; empty ones are left out."""
    cards = "".join(f'<section class="part">{part}</section>' for part in parts if part)
    return f'<div class="columns">{cards}</div>' if cards else ""


def mark(text: str, marks: Sequence[Mark], most: int) -> str:
    """Returns a text of at most `most` characters, those around the first of its marks."""
    first = min((start for start, _, _ in marks), default=0)
    begin = max(0, min(first - most // 3, len(text) - most))
    end = min(begin + most, len(text))
    places = {min(max(place, begin), end) for start, stop, _ in marks for place in (start, stop)}
    parts = ["…" if begin else ""]
    for start, stop in itertools.pairwise(sorted({begin, end, *places})):
        names = sorted({name for low, high, name in marks if low <= start < high})
        piece = html.escape(text[start:stop])
        parts.append(f'<mark class="{" ".join(names)}">{piece}</mark>' if names else piece)
    return f"<bdi>{''.join(parts)}{'…' if end < len(text) else ''}</bdi>"


def make_table(
    table: Table,
    *,
    choose_class: Callable[[Sequence[str]], str] = lambda row: "",
    shades: Mapping[tuple[int, int], float] | None = None,
) -> str:
    """Returns a table whose first row is its head.

    Args:
        choose_class: names the CSS class of a row.
        shades: {(row, column): how dark a cell is, from 0 to 1}, without the head, from 0.
    """
    head, *rows = table
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = [f"<tr>{cells}</tr>"]
    for number, row in enumerate(rows):
        kind = f" class={name}" if (name := choose_class(row)) else ""
        cells = ""
        for column, cell in enumerate(row):
            shade = (shades or {}).get((number, column), 0.0)
            style = f' class=shaded style="--share:{shade:.2f}"' if shade else ""
            cells += f"<td{style}>{html.escape(cell)}</td>"
        lines.append(f"<tr{kind}>{cells}</tr>")
    return f'<div class="scrolls"><table>{"".join(lines)}</table></div>'


def draw_curves(title: str, unit: str, curves: Mapping[str, Points]) -> str:
    """Returns a drawing of curves, {name: points in the order of x}, with bands where they have
    them; points that are no number are left out, and the drawing if there is no other.
    """
    finite = {
        name: [p for p in points if all(map(math.isfinite, p))] for name, points in curves.items()
    }
    kept = {name: _thin(points) for name, points in finite.items() if points}
    if not kept:
        return ""
    every = [point for points in kept.values() for point in points]
    across = _make_axis([x for x, *_ in every], _LEFT, _WIDTH - 15)
    up = _make_axis([y for _, *ys in every for y in ys], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text x="{_LEFT}" y="16" font-weight="bold">{html.escape(title)}</text>']
    # Names below the curves, in columns that are as wide as the longest.
    width = max(85, 22 + 7 * max(map(len, kept)))
    columns = max(1, (_WIDTH - _LEFT - 60) // width)
    height = _HEIGHT + 16 * ((len(kept) - 1) // columns)
    for value in up[1]:
        y = up[0](value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 15}" stroke="#8884"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>')
    for value in across[1]:
        x = across[0](value)
        place = f'x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{value:.6g}</text>')
    line = 'fill="none" stroke-width="1.8"'
    for number, (name, points) in enumerate(kept.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        if all(len(point) == 4 for point in points):
            edges = [(x, high) for x, _, _, high in points]
            edges += [(x, low) for x, _, low, _ in reversed(points)]
            band = " ".join(f"{across[0](x):.1f},{up[0](y):.1f}" for x, y in edges)
            parts.append(f'<polygon points="{band}" fill="{colour}" fill-opacity=".15"/>')
        places = " ".join(f"{across[0](x):.1f},{up[0](y):.1f}" for x, y, *_ in points)
        parts.append(f'<polyline points="{places}" {line} stroke="{colour}"/>')
        if len(points) < 50:
            parts += [
                f'<circle cx="{across[0](x):.1f}" cy="{up[0](y):.1f}" r="2.5" fill="{colour}"/>'
                for x, y, *_ in points
            ]
        row, column = divmod(number, columns)
        x, y = _LEFT + width * column, _HEIGHT - 4 + 16 * row
        parts.append(f'<path d="M{x} {y - 4}h14" stroke="{colour}" stroke-width="4"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{html.escape(name)}</text>')
    parts.append(
        f'<text x="{_WIDTH - 15}" y="{_HEIGHT - 4}" text-anchor="end">{html.escape(unit)}</text>'
    )
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    label = html.escape(f"{title}: {', '.join(kept)}")
    # For a file of its own, too.
    size += ' xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" fill="currentColor"'
    return f'<svg {size} font-size="12" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _thin(points: Points) -> Points:
    """Leaves out points that nobody could see, but not the last."""
    stride = math.ceil(len(points) / _MOST_POINTS)
    return [*points[:-1][::stride], points[-1]]


def _make_axis(
    values: Sequence[float], begin: float, end: float
) -> tuple[Callable[[float], float], list[float]]:
    """Returns a function from values to places, and the round values at which a mark stands."""
    low, high = min(values), max(values)
    if low == high:
        pad = abs(low) / 10 or 0.5
        low, high = low - pad, high + pad
    rough = (high - low) / 5
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    marks = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return lambda value: begin + (value - low) / (high - low) * (end - begin), marks
