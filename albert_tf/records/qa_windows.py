"""`windows.npz`: where in its context each window of a question lies. Writer and reader meet here.

A context that is too long for the model is read through several overlapping windows. The model
answers with positions in a window's input; these arrays turn them into characters of the context.
"""

import io
from typing import NamedTuple

import numpy as np

from albert_tf import files

# The first of the unique ids, as published.
FIRST_ID = 1_000_000_000


class Windows(NamedTuple):
    """W windows, those of a question side by side; T tokens of all the contexts.

    Attributes:
        unique_ids: [W] ascending.
        questions: [W] the row of the question in `examples.jsonl`, never descending.
        firsts: [W] the position in the input of the first token of the context.
        lengths: [W] how many tokens of the context the window holds, from there on.
        tokens: [W] where in `token_starts` the first of them is.
        best_begins: [W] the positions from here...
        best_ends: [W] ...to before here have more context in this window than in another.
        token_starts: [T] the character of its context where a token starts.
        token_ends: [T] the character after the last of the token.
    """

    unique_ids: np.ndarray
    questions: np.ndarray
    firsts: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray
    best_begins: np.ndarray
    best_ends: np.ndarray
    token_starts: np.ndarray
    token_ends: np.ndarray


def write(path: str, windows: Windows) -> None:
    content = io.BytesIO()
    np.savez(content, **windows._asdict())
    files.write_bytes(path, content.getvalue())


def read(path: str) -> Windows:
    with np.load(io.BytesIO(files.read_bytes(path, "windows of questions"))) as arrays:
        return Windows(**arrays)


def part(windows: Windows, rows: slice) -> Windows:
    """Some of the windows; the tokens stay."""
    tokens = {"token_starts": windows.token_starts, "token_ends": windows.token_ends}
    return Windows(**{name: array[rows] for name, array in windows._asdict().items()} | tokens)
