"""The windows of contexts that a model reads, and the file that stores them: `windows.npz`.

A context that is too long for the model is read through several overlapping windows. The model
answers with positions in a window's input; these arrays turn them into characters of the context.
"""

import io
from typing import Any, NamedTuple

import numpy as np

from albert_tf import files

# The first of the unique ids, as published.
FIRST_ID = 1_000_000_000

Array = Any  # np.ndarray or tf.Tensor


class Windows(NamedTuple):
    """W windows, those of a question side by side; T tokens of all the contexts.

    Arrays of NumPy, or tensors of int32.

    Attributes:
        unique_ids: [W] ascending.
        questions: [W] the row of the question, never descending.
        firsts: [W] the position in the input of the first token of the context.
        lengths: [W] number of tokens of the context that the window holds, from there on.
        tokens: [W] the index in `token_starts` of the first of them.
        best_begins: [W] the positions from here...
        best_ends: [W] ...to before here have more context in this window than in another.
        token_starts: [T] the character of its context where a token starts.
        token_ends: [T] the character after the last of the token.
    """

    unique_ids: Array
    questions: Array
    firsts: Array
    lengths: Array
    tokens: Array
    best_begins: Array
    best_ends: Array
    token_starts: Array
    token_ends: Array

    def select(self, rows: slice) -> "Windows":
        """Returns some of the windows, with all tokens."""
        *columns, token_starts, token_ends = self
        return Windows._make([*(column[rows] for column in columns), token_starts, token_ends])


def write(path: str, windows: Windows) -> None:
    content = io.BytesIO()
    np.savez(content, **windows._asdict())
    files.write_bytes(path, content.getvalue())


def read(path: str) -> Windows:
    with np.load(io.BytesIO(files.read_bytes(path, "windows of questions"))) as arrays:
        return Windows(**arrays)
