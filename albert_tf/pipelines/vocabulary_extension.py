"""Adds pieces to a vocabulary and its checkpoint: from a list, or those that shorten a text most.

Ids of the old pieces stay. A new piece of SentencePiece gets a score, a logarithm of a probability,
that makes it the best segmentation of its own characters; WordPiece takes the longest piece anyway.
"""

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.vocabulary import VocabularyConfig
from albert_tf.errors import UserError, require, to_text
from albert_tf.model import weight_names
from albert_tf.run_files import BEST
from albert_tf.tokenizers import (
    normalization,
    sentencepiece_proto,
    tokenization,
    vocabulary_uses,
    wordpiece_tokenizer,
)
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START, SentencePieceTokenizer
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.tokenizers.wordpiece_tokenizer import CONTINUATION, WordPieceTokenizer

# SentencePiece's: an unknown character is that much worse than the rarest piece.
_UNKNOWN_PENALTY = 10.0
_MARGIN = 0.1  # by which a new piece is better than its parts
_MOST_WORDS = 2_000_000
_LEAST_SIZE = 8000  # of the vocabulary of the text
_MOST_LINES = 20_000  # in which lost marks are counted
_LONGEST = 200  # characters of a piece
_WEIGHTS_OF_PIECES = (weight_names.WORDS, "cls/predictions/output_bias")


def extend(
    path: str,
    target: str,
    *,
    which: str = BEST,
    pieces: str | None = None,
    input_files: Sequence[str] = (),
    num_pieces: int = 1000,
    eval_files: Sequence[str] = (),
) -> None:
    """Writes a checkpoint of this project, whole or not at all; prints what changed.

    Args:
        path, which: of any checkpoint, as of `formats.read`.
        target: a folder, which must not exist.
        pieces: file with a new piece in each line, as the vocabulary writes it.
        input_files: patterns of text to learn `num_pieces` from, at most, in place of `pieces`.
        eval_files: patterns of text to count the pieces of a word in; default: `input_files`.

    Raises `UserError` for bad input, or a checkpoint without its vocabulary.
    """
    require(
        bool(pieces) != bool(input_files),
        "give --pieces, a list, or --input, text to learn pieces from: one of them.",
    )
    files.refuse_existing(target, "--output_dir: ")
    paths = documents.expand_inputs(input_files) if input_files else []
    eval_paths = documents.expand_inputs(eval_files) if eval_files else paths
    checkpoint = formats.read(path, which=which)
    model_checkpoint.log_summary(checkpoint)
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    if tokenizer is None:
        raise UserError(f"{checkpoint.source} has no vocabulary beside it: put it there.")
    vocabulary_uses.check(vocabulary_uses.GROWTH, tokenizer)
    new = _read_list(pieces, tokenizer) if pieces else _learn(tokenizer, paths, num_pieces)
    extended, parts = extend_checkpoint(checkpoint, tokenizer, new)
    extended_tokenizer = model_checkpoint.load_tokenizer(extended)
    assert extended_tokenizer
    _check_use(new, extended_tokenizer)
    with files.cleaning_up():
        formats.write_folder(extended, target)
    for piece, ids in itertools.islice(zip(new, parts, strict=True), 5):
        logging.info(f"new: {piece} ({' '.join(map(tokenizer.id_to_piece, ids))})")
    print(f"{target}: {tokenizer.size:,} + {len(new):,} = {extended_tokenizer.size:,} pieces")
    if eval_paths:
        words, before = _measure(tokenizer, eval_paths)
        _, after = _measure(extended_tokenizer, eval_paths)
        print(
            f"{words:,} words: {before / words:.4f} pieces a word before, {after / words:.4f} after"
        )


def extend_checkpoint(
    checkpoint: ModelCheckpoint, tokenizer: Tokenizer, new: Mapping[str, float]
) -> tuple[ModelCheckpoint, list[list[int]]]:
    """Returns the checkpoint with rows for new pieces, and of each the ids of its old parts.

    A row is the mean of the rows of the parts: in the word embeddings, which also are the output's
    matrix, and in the output's bias. `new` is {piece: its share of a text's pieces; 0 if unknown}.
    """
    segments = _read_segments(tokenizer)
    split = [_split(segments, piece, tokenizer)[0] for piece in new]
    parts = [[tokenizer.ids_by_piece.get(x or "", tokenizer.unk_id) for x in row] for row in split]
    content = checkpoint.vocabulary
    if tokenization.WORDPIECE in content:
        text = content[tokenization.WORDPIECE].decode().removesuffix("\n")
        rows = "".join(f"{line}\n" for line in [*text.split("\n"), *new])
        changed = {tokenization.WORDPIECE: rows.encode()}
    else:
        changed = _extend_model(content[tokenization.MODEL], new, segments)
    weights = {
        name: _add_rows(array, parts) if name in _WEIGHTS_OF_PIECES else array
        for name, array in checkpoint.weights.items()
    }
    size = checkpoint.config.vocab_size + len(new)
    extended = dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, vocab_size=size),
        weights=weights,
        vocabulary={**content, **changed},
    )
    return extended, parts


def _add_rows(array: np.ndarray, parts: Sequence[Sequence[int]]) -> np.ndarray:  # [V, ...]
    rows = [array[list(ids)].mean(0, dtype=np.float64) for ids in parts]
    return np.concatenate([array, np.array(rows, array.dtype)])


def _check_use(new: Mapping[str, float], tokenizer: Tokenizer) -> None:
    """Raises `UserError` for a new piece that the new tokenizer does not make of its own text."""
    for piece in new:
        if _encode_piece(piece, tokenizer) != [tokenizer.ids_by_piece[piece]]:
            raise UserError(
                f"the vocabulary never makes {piece!r} of a text that has it: its rules split it. "
                "Leave it out."
            )


class _Segments(NamedTuple):
    """The scores of pieces, {piece: score}; `unknown` is that of a character without piece."""

    scores: dict[str, float]
    unknown: float

    def split(self, text: str) -> tuple[list[str | None], float]:
        """The best segmentation of a text and its score; None stands for unknown characters."""
        best: list[tuple[float, int]] = [(0.0, 0)]
        for end in range(1, len(text) + 1):
            options = [
                (best[begin][0] + self.scores[text[begin:end]], begin)
                for begin in range(end)
                if text[begin:end] in self.scores
            ]
            options.append((best[end - 1][0] + self.unknown, end - 1))
            best.append(max(options))
        pieces: list[str | None] = []
        end = len(text)
        while end:
            begin = best[end][1]
            piece = text[begin:end]
            pieces.append(piece if piece in self.scores else None)
            end = begin
        return pieces[::-1], best[-1][0]


def _read_list(path: str, tokenizer: Tokenizer) -> dict[str, float]:
    """Reads a file with a piece in each line, as the vocabulary writes it.

    Raises `UserError`, with its line, for a piece that is there already or twice, or that no text
    becomes; or if the file is empty.
    """
    lines = to_text(files.read_bytes(path, "--pieces"), f"--pieces: {path}").split("\n")
    rows = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    require(bool(rows), f"--pieces: {path} is empty. Write a piece in each line.")
    known = dict(tokenizer.ids_by_piece)
    for number, piece in rows.items():
        place = f"{path}, line {number}: {piece[:40]!r}"
        if piece in known:
            where = "twice" if known[piece] < 0 else f"in the vocabulary already: {known[piece]}"
            raise UserError(f"{place} is there {where}. Remove it.")
        if problem := _find_problem(piece, tokenizer):
            raise UserError(f"{place} {problem}")
        known[piece] = -1
    if not any(_starts_word(piece, tokenizer) for piece in rows.values()):
        logging.warning(
            f"none of the pieces begins a word. Write {WORD_START} before those that do."
        )
    return dict.fromkeys(rows.values(), 0.0)


def _learn(tokenizer: Tokenizer, paths: Sequence[str], number: int) -> dict[str, float]:
    """Learns the pieces that save most pieces of a text, the best first; perhaps fewer.

    A SentencePiece vocabulary is trained on the text. Of its pieces that are new, those count that
    occur often, and were cut into many, in words that it cuts into fewer pieces.

    Raises `UserError` if the text has too little for new pieces.
    """
    # A limit: a small text gives fewer. It must have room for all characters.
    config = VocabularyConfig(vocab_size=max(tokenizer.size, _LEAST_SIZE) + number)
    lines = functools.partial(_read_lines, tokenizer, paths, config)
    first = itertools.islice(vocabulary.sample_lines(paths, config), _MOST_LINES)
    if (losses := normalization.count_losses(first, tokenizer.normalize)).lost:
        logging.warning(f"{losses}, as the vocabulary's config says: no new piece has those.")
    model = vocabulary.train_model(lines(), config, is_limit=True)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    words = _count_words(lines())
    segments = _read_segments(tokenizer)
    total = 0
    counts: Counter[str] = Counter()
    gains: Counter[str] = Counter()
    before = tokenizer.encode_batch(list(words))
    after = processor.encode(list(words), out_type=str)
    for count, ids, pieces in zip(words.values(), before, after, strict=True):
        total += count * len(pieces)
        # A word that becomes known is worth a piece, too.
        if len(pieces) >= len(ids) + ids.count(tokenizer.unk_id):
            continue
        for piece in {_to_own_form(piece, tokenizer) for piece in pieces}:
            if piece not in tokenizer.ids_by_piece and not _find_problem(piece, tokenizer):
                parts, _ = _split(segments, piece, tokenizer)
                counts[piece] += count
                gains[piece] += count * (len(parts) - 1 + parts.count(None))
    best = sorted((piece for piece in gains if gains[piece]), key=lambda x: (-gains[x], x))
    require(bool(best), "the text gives no new piece: the vocabulary has its words already.")
    return {piece: counts[piece] / total for piece in best[:number]}


def _count_words(lines: Iterator[str]) -> Counter[str]:
    """The words of a text and how often they occur; of a large one not the rarest."""
    words: Counter[str] = Counter()
    least = 1
    for line in lines:
        words.update(line.split())
        while len(words) > _MOST_WORDS:
            least += 1
            words = Counter({word: count for word, count in words.items() if count >= least})
    return words


def _measure(tokenizer: Tokenizer, paths: Sequence[str]) -> tuple[int, int]:
    """Returns the number of words of a text, and that of its pieces."""
    words = pieces = 0
    for line in _read_lines(tokenizer, paths, VocabularyConfig()):
        words += len(line.split())
        pieces += len(tokenizer.encode(line))
    return words, pieces


def _read_lines(
    tokenizer: Tokenizer, paths: Sequence[str], config: VocabularyConfig
) -> Iterator[str]:
    for line in vocabulary.sample_lines(paths, config):
        words = tokenizer.normalize(line)
        if isinstance(tokenizer.backend, wordpiece_tokenizer.WordPieceTokenizer):
            words = " ".join(wordpiece_tokenizer.split_words(tokenizer.backend, words))
        if words:
            yield words


def _starts_word(piece: str, tokenizer: Tokenizer) -> bool:
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        return piece.startswith(WORD_START)
    return not piece.startswith(CONTINUATION)


def _to_own_form(piece: str, tokenizer: Tokenizer) -> str:
    """A piece of SentencePiece as the vocabulary writes it."""
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        return piece
    is_start = piece.startswith(WORD_START)
    return piece.removeprefix(WORD_START) if is_start else f"{CONTINUATION}{piece}"


def _to_text(piece: str) -> str:
    return piece.removeprefix(WORD_START).removeprefix(CONTINUATION)


def _find_problem(piece: str, tokenizer: Tokenizer) -> str | None:
    """Why no text becomes a piece, if so."""
    text = _to_text(piece)
    if not text or len(text) > _LONGEST:
        return f"has {len(text)} characters: a piece has from 1 to {_LONGEST}."
    if len(text.split()) > 1 or WORD_START in text:
        return "has a space within: a piece is a word, or a part of one."
    if (normalized := tokenizer.normalize(text)) != text:
        return f"is never read: the vocabulary makes {normalized[:40]!r} of it. Write it so."
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        if len(text) > 1 and text[-1] == "," and text[-2].isdigit():
            return "ends with digits and a comma, which are always split. Remove it."
    elif isinstance(tokenizer.backend, WordPieceTokenizer) and [
        text
    ] != wordpiece_tokenizer.split_words(tokenizer.backend, text):
        return "is several words to the vocabulary: it splits at punctuation. Remove it."
    return None


def _read_segments(tokenizer: Tokenizer) -> _Segments:
    """The scores of a vocabulary; those of WordPiece make the fewest pieces the best."""
    backend = tokenizer.backend
    if not isinstance(backend, SentencePieceTokenizer):
        return _Segments(dict.fromkeys(backend.pieces, -1.0), -1e3)
    model = vocabulary_uses.read_model(backend)
    kinds = (sentencepiece_proto.NORMAL, sentencepiece_proto.USER_DEFINED)
    scores = {x.piece: x.score for x in model.pieces if x.type in kinds}
    return _Segments(scores, _find_rarest(model) - _UNKNOWN_PENALTY)


def _find_rarest(model: Any) -> float:
    return min(x.score for x in model.pieces if x.type == sentencepiece_proto.NORMAL)


def _split(segments: _Segments, piece: str, tokenizer: Tokenizer) -> tuple[list[str | None], float]:
    """The old pieces that a new one is cut into, and their score."""
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        return segments.split(piece)
    return _split_greedily(segments.scores, piece), 0.0


def _split_greedily(known: Mapping[str, float], piece: str) -> list[str | None]:
    """WordPiece: the longest piece first; a word that has no pieces is unknown as a whole."""
    text = _to_text(piece)
    pieces: list[str | None] = []
    begin, prefix = 0, CONTINUATION if piece.startswith(CONTINUATION) else ""
    while begin < len(text):
        ends = range(len(text), begin, -1)
        end = next((end for end in ends if prefix + text[begin:end] in known), None)
        if end is None:
            return [None]
        pieces.append(prefix + text[begin:end])
        begin, prefix = end, CONTINUATION
    return pieces


def _extend_model(
    content: bytes, new: Mapping[str, float], segments: _Segments
) -> dict[str, bytes]:
    """Returns the files of a SentencePiece vocabulary with new pieces."""
    model = sentencepiece_proto.ModelProto.FromString(content)
    rarest, scores = _find_rarest(model), dict(segments.scores)
    grown = segments._replace(scores=scores)
    # The short ones first, for a long one must be better than a split into them, too.
    for piece in sorted(new, key=len):
        _, split_score = grown.split(piece)
        own = math.log(new[piece]) if new[piece] else rarest
        scores[piece] = max(own, split_score + _MARGIN)
    for piece in new:
        model.pieces.add(piece=piece, score=scores[piece], type=sentencepiece_proto.NORMAL)
    rows = "".join(f"{x.piece}\t{x.score:g}\n" for x in model.pieces)
    return {tokenization.MODEL: model.SerializeToString(), tokenization.VOCAB: rows.encode()}


def _encode_piece(piece: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a piece in a text, without those of what is around it."""
    backend, text = tokenizer.backend, _to_text(piece)
    if not isinstance(backend, SentencePieceTokenizer):
        # What continues a word is the longest piece, whatever stands before it.
        is_part = piece.startswith(CONTINUATION)
        return [tokenizer.ids_by_piece[piece]] if is_part else tokenizer.encode(text)
    if piece.startswith(WORD_START):
        return tokenizer.encode(text)
    _, ids = backend.encode_parts(["", text])  # as after a mask: it does not begin a word
    return ids
