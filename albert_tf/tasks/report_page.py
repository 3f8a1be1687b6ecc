"""Writes the page about a run as HTML: one file that loads nothing and runs no script.

Sections are strings of HTML. Every text is escaped here.
"""

import html
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from albert_tf import files

Mark = tuple[int, int, str]  # start and end in characters, and what it is
Cell = str | tuple[str, float]  # a text, and perhaps a share from 0 to 1, drawn as a bar behind it
Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 400, 220, 50, 12, 10, 24  # of a drawing
_MOST_POINTS, _MOST_CHARACTERS = 400, 600  # of a curve, of a text
# Colours that show on white and on black; and the same patterns of a line in CSS and in SVG.
_LINES = (("#2f7fd1", "solid", "none"), ("#d9691e", "dashed", "7 4"), ("#808080", "dotted", "2 3"))
# A text on the page cannot load or run anything, whatever it contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ground: #f4f7f7; --card: #fff; --ink: #1b2b2a;
  --soft: #566b68; --line: #d5dfdd; --main: #00695f; --bar: #2f7fd133; --mark: #ffe0a3 }
@media (prefers-color-scheme: dark) { :root { --ground: #101716; --card: #192221; --ink: #e4eeec;
  --soft: #9fb3b0; --line: #31413f; --main: #5fc7b8; --bar: #2f7fd166; --mark: #6b4a10 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1000px; padding: 12px 16px 48px; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.2 } h2 { font-size: 1.3rem; margin: 2rem 0 .8rem }
h3 { font-size: 1rem; margin: 0 0 .6rem }
section, dl, details { margin: 0 0 1rem; padding: 1rem; border: 1px solid var(--line);
  border-radius: 10px; background: var(--card) }
dl, .cards { display: grid; gap: 0 1rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)) }
dl { gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 190px), 1fr)) }
section { min-width: 0 }
dd { margin: 0 } dd:nth-of-type(2n+1) { font-size: 1.25rem; font-weight: 600 }
dl div:first-child dd:nth-of-type(1) { font-size: 2rem; line-height: 1.2; color: var(--main) }
dt, small, figcaption, svg, .note { color: var(--soft); font-size: .9rem }
figure { margin: 0 } svg { width: 100%; height: auto; font-size: 12px; fill: currentColor }
.key { display: inline-block; width: 26px; margin: 0 6px 4px 0; border-top: 3px }
.scrolls { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; unicode-bidi: plaintext }
th:first-child { text-align: left } .texts td { text-align: left; white-space: pre-wrap }
td[style] { min-width: 6em;
  background: linear-gradient(90deg, var(--bar) var(--share), transparent 0) }
p { margin: 0 0 .3rem; unicode-bidi: plaintext } li { margin-bottom: 1rem }
b, mark { unicode-bidi: isolate } mark { background: var(--mark); color: inherit }
pre { margin: 0 0 .3rem; overflow-x: auto } summary { cursor: pointer }
"""


def write(path: str, title: str, sections: Iterable[str]) -> None:
    """Writes the page whose heading is the title."""
    name, content = escape(title), "\n".join(filter(None, sections))
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>{name}</h1>\n{content}\n</main>\n</body>\n</html>\n"
    )
    files.write_bytes(path, page.encode("utf-8", "replace"))  # JSON may hold half of a character


def escape(text: object) -> str:
    return html.escape(str(text))


def make_summary(rows: Iterable[tuple[str, str, str]]) -> str:
    """Returns a card of (name, value, note); the first is the largest."""
    cells = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd><small>{escape(note)}</small>"
        "</dd></div>"
        for name, value, note in rows
    )
    return f"<dl>{''.join(cells)}</dl>"


def make_cards(sections: Iterable[str]) -> str:
    """Returns sections next to each other where there is room."""
    content = "\n".join(filter(None, sections))
    return f'<div class="cards">{content}</div>' if content else ""


def make_section(title: str, rows: Sequence[Sequence[Cell]], note: str = "") -> str:
    """Returns a table with a title, and perhaps a note; the first row is its head."""
    shown = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h3>{escape(title)}</h3>{shown}{_make_table(title, rows)}</section>"


def make_details(title: str, rows: Sequence[Sequence[Cell]]) -> str:
    """Returns a table that a reader opens; its texts are long."""
    table = _make_table(title, rows, "texts")
    return f"<details><summary>{escape(title)}</summary>{table}</details>"


def _make_table(title: str, rows: Sequence[Sequence[Cell]], style: str = "numbers") -> str:
    def make_cell(cell: Cell, kind: str = "td") -> str:
        text, share = (cell, None) if isinstance(cell, str) else cell
        bar = "" if share is None else f' style="--share: {share:.0%}"'
        end = kind.partition(" ")[0]
        return f"<{kind}{bar}>{escape(text)}</{end}>"

    head, *others = rows
    lines = ["".join(make_cell(cell, 'th scope="col"') for cell in head)]
    for name, *cells in others:
        lines.append(make_cell(name, 'th scope="row"') + "".join(map(make_cell, cells)))
    content = "\n".join(f"<tr>{line}</tr>" for line in lines)
    # With a keyboard it is scrolled when it has the focus.
    label = f'tabindex="0" role="region" aria-label="{escape(title)}"'
    return f'<div class="scrolls" {label}><table class="{style}">{content}</table></div>'


def mark(text: str, marks: Sequence[Mark] = ()) -> str:
    """Returns a text, or the part of a long one around its first mark, with names of the marks."""
    first = min((start for start, _, _ in marks), default=0)
    begin = max(0, min(first - _MOST_CHARACTERS // 3, len(text) - _MOST_CHARACTERS))
    end = min(begin + _MOST_CHARACTERS, len(text))
    places = {min(max(place, begin), end) for start, stop, _ in marks for place in (start, stop)}
    parts = ["…" if begin else ""]

    def find_names(cut: tuple[int, int]) -> list[str]:
        return sorted({name for low, high, name in marks if low <= cut[0] < high})

    cuts = itertools.pairwise(sorted({begin, end, *places}))
    for names, pieces in itertools.groupby(cuts, find_names):
        piece = escape("".join(text[start:stop] for start, stop in pieces))
        shown = f"<mark>{piece}</mark> <small>({' and '.join(names)})</small> "
        parts.append(shown if names else piece)
    return "".join([*parts, "…" if end < len(text) else ""])


def draw_curves(title: str, unit: str, curves: Mapping[str, Points]) -> str:
    """Returns a drawing of up to three curves, {name: points in the order of x}; "" without any.

    `unit` says what x is. Values that are not finite are left out.
    """
    finite = {name: [p for p in x if all(map(math.isfinite, p))] for name, x in curves.items()}
    # Not more points than can be seen, and the last one.
    kept = {x: p[::-1][:: len(p) // _MOST_POINTS + 1][::-1] for x, p in finite.items() if p}
    if not kept:
        return ""
    every = [point for points in kept.values() for point in points]
    place_x, marks_x = _make_axis([0, *(x for x, _ in every)], _LEFT, _WIDTH - _RIGHT)
    place_y, marks_y = _make_axis([y for _, y in every], _HEIGHT - _BOTTOM, _TOP)
    parts, keys, words = [], [], []
    for value in marks_y:
        y = place_y(value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#8885"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    for value in marks_x:
        at = f'x="{place_x(value):.1f}" y="{_HEIGHT - 6}" text-anchor="middle"'
        parts.append(f"<text {at}>{value:,.6g}</text>")
    for (name, points), (colour, style, dashes) in zip(kept.items(), _LINES, strict=False):
        places = [(place_x(x), place_y(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        line = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{path}" {line}/>')
        dots = places if len(places) < 30 else ()
        parts += (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in dots)
        keys.append(f'<span class="key" style="border-top-color: {colour}; border-top-style: ')
        keys[-1] += f'{style}"></span>{escape(name)}'
        words.append(f"{name} from {points[0][1]:.4g} to {points[-1][1]:.4g}")
    label = escape(f"{title} by {unit}: {'; '.join(words)}")
    drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{label}</title>'
    legend = f"<figcaption>{' &#160; '.join(keys)} &#160; (by {unit})</figcaption>"
    figure = f"<figure>{drawing}{''.join(parts)}</svg>{legend}</figure>"
    return f"<section><h3>{escape(title)}</h3>{figure}</section>"


def _make_axis(
    values: Sequence[float], begin: float, end: float
) -> tuple[Callable[[float], float], list[float]]:
    """Returns a function from values to places, and the round values that have a mark."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low - (abs(low) / 10 or 0.5), high + (abs(high) / 10 or 0.5)
    rough = (high - low) / 6
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    marks = [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return lambda value: begin + (value - low) / (high - low) * (end - begin), marks
