"""HTML pages of reports, each one file that loads nothing: text, tables and curves as SVG.

All texts are escaped here. Pages are read with a browser of any width.
"""

import html
import math
from collections.abc import Callable, Mapping, Sequence

Table = Sequence[Sequence[str]]
Points = Sequence[tuple[float, float]]

_STYLE = """
body { font: 16px/1.5 sans-serif; margin: 0 auto; max-width: 60em; padding: 1em; color: #222 }
div { overflow-x: auto } img, svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-size: 0.9em } th, td { padding: 0.3em 0.7em }
td, th { border-bottom: 1px solid #ccc; text-align: right; white-space: nowrap }
td:first-child, th:first-child { text-align: left; position: sticky; left: 0; background: #fff }
td:first-child { white-space: normal; min-width: 7em } tr.paper { color: #666; font-style: italic }
code { white-space: pre-wrap; overflow-wrap: anywhere } li { margin-bottom: 1em }
p, li, summary { overflow-wrap: anywhere } svg { display: block; margin-bottom: 1em }
li p { margin: 0 0 0.2em } small { color: #666 }
"""
# Nothing is loaded and nothing runs, whatever a text on the page says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 460, 230, 60, 40, 30
_COLOURS = [
    "#1f5fa8",
    "#c2571a",
    "#2e7d32",
    "#8e3a9d",
    "#6d6d6d",
    "#b8860b",
    "#008b8b",
    "#d81b60",
    "#5d4037",
    "#7cb342",
]
_MOST_POINTS = 400  # of a curve


def escape(text: object) -> str:
    """Returns HTML that shows a text; its direction does not change that of what is around it."""
    return f"<bdi>{html.escape(str(text))}</bdi>"


def make_page(title: str, parts: Sequence[str]) -> bytes:
    """Returns the page whose heading is the title, and whose parts are HTML."""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )
    # A JSON file may hold half of a character.
    return page.encode("utf-8", "replace")


def make_table(
    table: Table,
    *,
    choose_class: Callable[[Sequence[str]], str] = lambda row: "",
    shades: Mapping[tuple[int, int], float] | None = None,
) -> str:
    """Returns a table whose first row is its head.

    Args:
        table: rows of cells.
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
            style = f' style="background:rgba(31,95,168,{shade:.2f})"' if shade else ""
            cells += f"<td{style}>{html.escape(cell)}</td>"
        lines.append(f"<tr{kind}>{cells}</tr>")
    return f"<div><table>{''.join(lines)}</table></div>"


def draw_curves(title: str, unit: str, curves: Mapping[str, Points]) -> str:
    """Returns a drawing of curves, {name: (x, y) in the order of x}; points that are no number
    are left out, and the drawing if there is no other.
    """
    finite = {name: [p for p in points if math.isfinite(p[1])] for name, points in curves.items()}
    kept = {name: _thin(points) for name, points in finite.items() if points}
    if not kept:
        return ""
    every = [point for points in kept.values() for point in points]
    across = _make_axis([x for x, _ in every], _LEFT, _WIDTH - 15)
    up = _make_axis([y for _, y in every], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text x="{_LEFT}" y="16" font-weight="bold">{html.escape(title)}</text>']
    # Names below the curves, in columns that are as wide as the longest.
    width = max(85, 7 * max(map(len, kept)))
    columns = max(1, (_WIDTH - _LEFT - 60) // width)
    height = _HEIGHT + 16 * ((len(kept) - 1) // columns)
    for value in up[1]:
        y = up[0](value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 15}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>')
    for value in across[1]:
        x = across[0](value)
        place = f'x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{value:.6g}</text>')
    for number, (name, points) in enumerate(kept.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = " ".join(f"{across[0](x):.1f},{up[0](y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}"/>')
        if len(points) < 50:
            parts += [
                f'<circle cx="{across[0](x):.1f}" cy="{up[0](y):.1f}" r="2.5" fill="{colour}"/>'
                for x, y in points
            ]
        row, column = divmod(number, columns)
        place = f'x="{_LEFT + width * column}" y="{_HEIGHT - 4 + 16 * row}"'
        parts.append(f'<text {place} fill="{colour}">{html.escape(name)}</text>')
    parts.append(
        f'<text x="{_WIDTH - 15}" y="{_HEIGHT - 4}" text-anchor="end">{html.escape(unit)}</text>'
    )
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    label = html.escape(f"{title}: {', '.join(kept)}")
    size += ' xmlns="http://www.w3.org/2000/svg"'  # for a file of its own
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
