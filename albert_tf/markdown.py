"""Writes Markdown: the cards of checkpoints and of exports are lists of sections.

A section is a heading, a paragraph, a table or a block of code, as one string.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf import files


def write(path: str, sections: Iterable[str]) -> None:
    """Writes a card: its sections, without the empty ones, with a blank line between them."""
    content = "\n\n".join(filter(None, sections))
    files.write_bytes(
        path, f"{content}\n".encode("utf-8", "replace")
    )  # JSON may hold half of a character


def front_matter(values: Mapping[str, Any]) -> str:
    """Returns the head that the Hugging Face Hub reads: YAML, in the part of it that is JSON."""
    return "\n".join(["---", *(f"{key}: {json.dumps(x)}" for key, x in values.items()), "---"])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of cells without line breaks."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str, language: str = "") -> str:
    """Returns a fenced block of code."""
    return f"```{language}\n{text}\n```"
