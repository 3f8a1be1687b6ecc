"""Questions to what a model reads that looks for the answer in a context.

    [CLS] question [SEP] part of the context [SEP]

A context that is too long becomes several windows, which overlap. Q questions, W windows, T tokens
of all the contexts, S tokens of an input.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.records import features, qa_windows, token_lengths
from albert_tf.records.qa_windows import Windows
from albert_tf.tokenizers.tokenization import Tokenizer

_BATCH = 256  # contexts to encode at once


class Answer(NamedTuple):
    """A part of a context: its text and its first character."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a context.

    Attributes:
        id: predictions are by id.
        question: its text.
        context: in which the answer is to be found.
        answers: the first is the one that is learnt; none if there is none or it is not known.
        is_impossible: the context holds no answer.
        labelled: it is known whether there is an answer, and which.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool
    labelled: bool


class Encoded(NamedTuple):
    """Questions in tokens.

    Attributes:
        queries: [Q] the tokens of each question.
        num_truncated: how many questions were longer than may be.
        ids: [T] the tokens of the contexts, each context once.
        starts: [T] the character of its context where a token starts.
        ends: [T] the character after its last.
        begins: [Q] where the context of a question begins in `ids`...
        lengths: [Q] ...and how many tokens it has.
        cls_id, sep_id: of the vocabulary.
    """

    queries: list[list[int]]
    num_truncated: int
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    cls_id: int
    sep_id: int


class Targets(NamedTuple):
    """What is learnt.

    Attributes:
        start_positions: [W] of the answer's first token in the input, 0 if the window does not hold
            the whole answer.
        end_positions: [W] of its last.
        is_impossible: [W] bool, the window is known not to hold the whole answer.
        is_exact: [Q] bool, false if pieces do not give the answer back as it is: it begins or ends
            within one.
    """

    start_positions: np.ndarray
    end_positions: np.ndarray
    is_impossible: np.ndarray
    is_exact: np.ndarray


def encode(questions: Sequence[Question], tokenizer: Tokenizer, max_query_length: int) -> Encoded:
    """Encodes the questions, cut after `max_query_length` tokens, and each context once."""
    rows = {context: i for i, context in enumerate(dict.fromkeys(q.context for q in questions))}
    # Python's numbers take ten times the memory of an array's: one batch at a time.
    parts, lengths = [], []
    for contexts in _batches(list(rows)):
        encoded = tokenizer.encode_batch_with_offsets(contexts)
        lengths += [len(ids) for ids, _ in encoded]
        ids = np.fromiter(itertools.chain.from_iterable(ids for ids, _ in encoded), np.int32)
        spans = itertools.chain.from_iterable(spans for _, spans in encoded)
        parts.append((ids, *np.array([*spans], np.int32).reshape(-1, 2).T))
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    row = np.array([rows[question.context] for question in questions])
    queries = tokenizer.encode_batch([question.question for question in questions])
    ids, starts, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Encoded(
        queries=[query[:max_query_length] for query in queries],
        num_truncated=sum(len(query) > max_query_length for query in queries),
        ids=ids,
        starts=starts,
        ends=ends,
        begins=bounds[row],
        lengths=np.array(lengths)[row],
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
    )


def cut(encoded: Encoded, max_seq_length: int, doc_stride: int) -> Windows:
    """Cuts contexts into windows; one that has no token has a window all the same."""
    num_queries = np.array([len(query) for query in encoded.queries])
    rooms = max_seq_length - num_queries - token_lengths.NUM_SPECIAL_TOKENS
    strides = np.minimum(rooms, doc_stride)
    counts = 1 - np.minimum(rooms - encoded.lengths, 0) // strides
    bounds = np.concatenate([[0], np.cumsum(counts)])
    questions = np.repeat(np.arange(len(counts)), counts)
    skipped = (np.arange(bounds[-1]) - bounds[questions]) * strides[questions]
    lengths = np.minimum(encoded.lengths[questions] - skipped, rooms[questions])
    firsts = num_queries[questions] + 2
    best_begins, best_ends = np.zeros_like(lengths), lengths.copy()
    for question in np.flatnonzero(counts > 1):
        rows = slice(bounds[question], bounds[question + 1])
        best_begins[rows], best_ends[rows] = _most_context(skipped[rows], lengths[rows])
    return Windows(
        unique_ids=qa_windows.FIRST_ID + np.arange(bounds[-1]),
        questions=questions,
        firsts=firsts,
        lengths=lengths,
        tokens=encoded.begins[questions] + skipped,
        best_begins=firsts - skipped + best_begins,
        best_ends=firsts - skipped + best_ends,
        token_starts=encoded.starts,
        token_ends=encoded.ends,
    )


def _most_context(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each window of a context, the tokens that have more context in it than in any other.

    They are side by side. Context counts on the side where there is less of it, a hundredth of the
    window's length besides, and the first of equals wins: as published.
    """
    ends = starts + lengths
    tokens = np.arange(ends[-1])
    sides = np.minimum(tokens - starts[:, np.newaxis], ends[:, np.newaxis] - 1 - tokens)
    scores = np.where(sides >= 0, sides + 0.01 * lengths[:, np.newaxis], -np.inf)
    best, ranks = scores.argmax(axis=0), np.arange(len(starts))
    return np.searchsorted(best, ranks, "left"), np.searchsorted(best, ranks, "right")


def targets(questions: Sequence[Question], encoded: Encoded, cut: Windows) -> Targets:
    """Finds the tokens of the first answers. No question is dropped, whatever its answer is."""
    found = [_tokens_of_answer(question, encoded, i) for i, question in enumerate(questions)]
    first, last, is_exact = (np.array(column) for column in zip(*found, strict=True))
    rows = cut.questions
    skipped = cut.tokens - encoded.begins[rows]
    starts, ends = first[rows] - skipped, last[rows] - skipped
    holds = (first[rows] >= 0) & (starts >= 0) & (ends < cut.lengths)
    labelled = np.array([question.labelled for question in questions])
    return Targets(
        start_positions=np.where(holds, cut.firsts + starts, 0),
        end_positions=np.where(holds, cut.firsts + ends, 0),
        is_impossible=labelled[rows] & ~holds,
        is_exact=is_exact,
    )


def _tokens_of_answer(question: Question, encoded: Encoded, row: int) -> tuple[int, int, bool]:
    """The answer's first and last token in the context, and whether they are it and no more.

    (-1, -1) if there is none, or if the context has no token at all.
    """
    if not question.answers:
        return -1, -1, True
    if not encoded.lengths[row]:
        return -1, -1, False
    answer = question.answers[0]
    stripped = answer.text.strip()
    begin = answer.start + answer.text.index(stripped)
    tokens = slice(encoded.begins[row], encoded.begins[row] + encoded.lengths[row])
    starts, ends = encoded.starts[tokens], encoded.ends[tokens]
    first = min(int(np.searchsorted(ends, begin, "right")), len(ends) - 1)
    last = max(int(np.searchsorted(starts, begin + len(stripped), "left")) - 1, first)
    text = question.context[starts[first] : ends[last]].strip()
    return first, last, text == stripped


def batch(
    rows: slice, encoded: Encoded, cut: Windows, targets: Targets, max_seq_length: int
) -> dict[str, np.ndarray]:
    """The features of the N windows `rows`: [N, S], and [N, 1] for the targets."""
    firsts, lengths = cut.firsts[rows], cut.lengths[rows]
    ids = np.zeros((len(firsts), max_seq_length), np.int32)
    columns = (cut.questions[rows], firsts, lengths, cut.tokens[rows])
    for row, question, first, length, token in zip(ids, *columns, strict=True):
        row[0] = encoded.cls_id
        row[1 : first - 1] = encoded.queries[question]
        row[first - 1] = row[first + length] = encoded.sep_id
        row[first : first + length] = encoded.ids[token : token + length]
    place = np.arange(max_seq_length)
    begins, ends = firsts[:, np.newaxis], (firsts + lengths)[:, np.newaxis]
    in_context = (place >= begins) & (place < ends)
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: place <= ends,
        features.SEGMENT_IDS: (place >= begins) & (place <= ends),
        # [CLS] may be the answer: that there is none.
        features.P_MASK: ~in_context & (place > 0),
        features.UNIQUE_IDS: cut.unique_ids[rows, np.newaxis],
        features.START_POSITIONS: targets.start_positions[rows, np.newaxis],
        features.END_POSITIONS: targets.end_positions[rows, np.newaxis],
        features.IS_IMPOSSIBLE: targets.is_impossible[rows, np.newaxis],
    }


def count(encoded: Encoded, cut: Windows, targets: Targets) -> dict[str, int]:
    """What is worth telling: for the manifest."""
    return {
        "windows": len(cut.unique_ids),
        "truncated_questions": encoded.num_truncated,
        "inexact_answers": int(np.count_nonzero(~targets.is_exact)),
        "windows_without_answer": int(np.count_nonzero(targets.is_impossible)),
    }


def _batches(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[i : i + _BATCH] for i in range(0, len(texts), _BATCH)]
