"""HTML pages of reports, each one file that loads nothing: text and tables.

All texts are escaped here. Pages are read with a browser of any width.
"""

import html
import itertools
from collections.abc import Iterable, Sequence
from importlib import resources

Table = Sequence[Sequence[str]]
Mark = tuple[int, int, str]  # start and end in characters, and the CSS class of what it is

# Nothing is loaded and nothing runs, whatever a text on the page says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


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
    """Returns a card of (name, value, note); the first is the largest."""
    cells = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{escape(value)}</dd>"
        f"<small>{html.escape(note)}</small></div>"
        for name, value, note in rows
    )
    return f'<section class="part"><dl class="summary">{cells}</dl></section>'


def make_columns(parts: Iterable[str]) -> str:
    """Returns cards next to each other where there is room; empty ones are left out."""
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


def make_table(table: Table) -> str:
    """Returns a table whose first row is its head."""
    head, *rows = table
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    content = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scrolls"><table>{content}</table></div>'


def make_card(title: str, table: Table, note: str = "") -> str:
    """Returns a table with a title, and perhaps a note."""
    shown = f"<p>{escape(note)}</p>" if note else ""
    return f"<h3>{html.escape(title)}</h3>{shown}{make_table(table)}"
