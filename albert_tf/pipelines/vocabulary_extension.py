"""Adds tokens to a vocabulary and its checkpoint: from a list, or learnt from text.

Old ids stay. A new SentencePiece piece gets a score, a log probability, that makes it the best
segmentation of its own characters; WordPiece uses the longest token anyway.
"""

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import sentencepiece
from absl import logging

from albert_tf import files, folders, processes
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.vocabulary import VocabularyConfig
from albert_tf.errors import UserError, require
from albert_tf.file_checks import to_text
from albert_tf.model import weight_names
from albert_tf.run_files import BEST
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers import (
    sentencepiece_tokenizer,
    tokenization,
    vocabulary_uses,
    wordpiece_tokenizer,
)
from albert_tf.tokenizers.sentencepiece_tokenizer import WORD_START, SentencePieceTokenizer
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.tokenizers.wordpiece_tokenizer import CONTINUATION, WordPieceTokenizer

# From SentencePiece: an unknown character is this much worse than the rarest piece.
_UNKNOWN_PENALTY = 10.0
_MARGIN = 0.1  # by how much a new piece is better than its parts
_LEAST_SIZE = 8000  # of the text's vocabulary
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
    """Writes the extended checkpoint, completely or not at all; prints what changed.

    Args:
        path, which: any checkpoint, as in `formats.read`.
        target: a folder that must not exist.
        pieces: a file with one new token per line, as the vocabulary writes it.
        input_files: patterns of text to learn up to `num_pieces` tokens from, instead of `pieces`.
        eval_files: patterns of text in which tokens per word are counted; default: `input_files`.

    Raises `UserError` for bad input, or a checkpoint without a vocabulary.
    """
    require(
        bool(pieces) != bool(input_files),
        "pass either --pieces, a list, or --input, text to learn tokens from.",
    )
    folders.refuse_existing(target, "--output_dir: ")
    paths = documents.expand_inputs(input_files) if input_files else []
    eval_paths = documents.expand_inputs(eval_files) if eval_files else paths
    checkpoint = formats.read(path, which=which)
    model_checkpoint.log_summary(checkpoint)
    old = _load_tokenizer(checkpoint)
    vocabulary_uses.check(vocabulary_uses.GROWTH, old)
    new = _read_list(pieces, old) if pieces else _learn(old, paths, num_pieces)
    extended, parts = extend_checkpoint(checkpoint, old, new)
    tokenizer = _load_tokenizer(extended)
    for piece in new:
        if _encode_piece(piece, tokenizer) != [tokenizer.ids_by_piece[piece]]:
            raise UserError(
                f"the vocabulary never produces {piece!r}: its rules split such text. Leave it out."
            )
    with processes.cleaning_up():
        formats.write_folder(extended, target)
    for piece, ids in itertools.islice(zip(new, parts, strict=True), 5):
        logging.info(f"new: {piece} ({' '.join(map(old.id_to_piece, ids))})")
    print(f"{target}: {old.size:,} + {len(new):,} = {tokenizer.size:,} pieces")
    if eval_paths:
        (words, before), (_, after) = (_measure(x, eval_paths) for x in (old, tokenizer))
        print(
            f"{words:,} words: {before / words:.4f} tokens a word before, {after / words:.4f} after"
        )


def _load_tokenizer(checkpoint: ModelCheckpoint) -> Tokenizer:
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    if tokenizer is None:
        raise UserError(f"{checkpoint.source} has no vocabulary next to it: put it there.")
    return tokenizer


def extend_checkpoint(
    checkpoint: ModelCheckpoint, tokenizer: Tokenizer, new: Mapping[str, float]
) -> tuple[ModelCheckpoint, list[list[int]]]:
    """Returns the checkpoint with rows for new tokens, and the ids of the old parts of each.

    A row is the mean of the rows of the parts, in the word embeddings (which are also the output
    matrix) and in the output bias. `new` is {token: its share of a text's tokens; 0 if unknown}.
    """
    parts = [_encode_piece(piece, tokenizer) for piece in new]
    content = checkpoint.vocabulary
    if tokenization.WORDPIECE in content:
        text = content[tokenization.WORDPIECE].decode().removesuffix("\n")
        changed = {tokenization.WORDPIECE: "\n".join([text, *new, ""]).encode()}
    else:
        changed = _extend_model(content[tokenization.MODEL], new)
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


def _extend_model(content: bytes, new: Mapping[str, float]) -> dict[str, bytes]:
    """Returns the files of a SentencePiece vocabulary with new pieces."""
    model = proto.ModelProto.FromString(content)
    used = (proto.NORMAL, proto.USER_DEFINED)
    scores = {x.piece: x.score for x in model.pieces if x.type in used}
    rarest = min(x.score for x in model.pieces if x.type == proto.NORMAL)
    # Short pieces first: a long piece must also beat a split into new short ones.
    for piece in sorted(new, key=len):
        own = math.log(new[piece]) if new[piece] else rarest
        split = _score_best_split(piece, scores, rarest - _UNKNOWN_PENALTY)
        scores[piece] = max(own, split + _MARGIN)
    for piece in new:
        model.pieces.add(piece=piece, score=scores[piece], type=proto.NORMAL)
    rows = "".join(f"{x.piece}\t{x.score:g}\n" for x in model.pieces)
    return {tokenization.MODEL: model.SerializeToString(), tokenization.VOCAB: rows.encode()}


def _score_best_split(text: str, scores: Mapping[str, float], unknown: float) -> float:
    """Returns the score of the best segmentation; `unknown` is for a character without a piece."""
    best = [0.0]
    for end in range(1, len(text) + 1):
        known = (
            best[begin] + scores[text[begin:end]]
            for begin in range(end)
            if text[begin:end] in scores
        )
        best.append(max([best[-1] + unknown, *known]))
    return best[-1]


def _read_list(path: str, tokenizer: Tokenizer) -> dict[str, float]:
    """Reads a file with one token per line, as the vocabulary writes it.

    Raises `UserError`, with the line, for a token that already exists, occurs twice, or can never
    occur; or if the file is empty.
    """
    text = to_text(files.read_bytes(path, "--pieces"), f"--pieces: {path}")
    rows = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    new: dict[str, float] = {}
    for number, piece in ((number, piece) for number, piece in rows if piece):
        place = f"{path}, line {number}: {piece[:40]!r}"
        require(piece not in new, f"{place} occurs twice. Remove it.")
        if (known := tokenizer.ids_by_piece.get(piece)) is not None:
            raise UserError(f"{place} is already in the vocabulary: {known}. Remove it.")
        words = _read_words(piece, tokenizer)
        if words != [_to_text(piece)]:
            raise UserError(
                f"{place} never occurs: the vocabulary turns it into {' '.join(words)[:40]!r}. "
                "Write it that way, or remove it."
            )
        new[piece] = 0.0
    require(bool(new), f"--pieces: {path} is empty. Write one token per line.")
    is_sentencepiece = isinstance(tokenizer.backend, SentencePieceTokenizer)
    if is_sentencepiece and not any(piece.startswith(WORD_START) for piece in new):
        logging.warning(
            f"none of the tokens begins a word. Write {WORD_START} before tokens that do."
        )
    return new


def _learn(tokenizer: Tokenizer, paths: Sequence[str], number: int) -> dict[str, float]:
    """Learns the tokens that shorten a text most, best first; possibly fewer than asked for.

    It trains a SentencePiece vocabulary on the text. Among its new pieces it prefers frequent ones
    that were split into many tokens, in words that now have fewer.

    Raises `UserError` if the text is too small.
    """
    # An upper limit: a small text gives fewer. It must have room for all characters.
    config = VocabularyConfig(vocab_size=max(tokenizer.size, _LEAST_SIZE) + number)
    lines = functools.partial(_read_lines, tokenizer, paths, config)
    model = vocabulary.train_model(lines(), config, is_limit=True)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    words = Counter(word for line in lines() for word in line.split())
    counts: Counter[str] = Counter()
    gains: Counter[str] = Counter()
    before = tokenizer.encode_batch(list(words))
    after = processor.encode(list(words), out_type=str)
    for count, ids, pieces in zip(words.values(), before, after, strict=True):
        # A word that becomes known counts as one token saved.
        if len(pieces) >= len(ids) + ids.count(tokenizer.unk_id):
            continue
        for piece in {_to_own_form(piece, tokenizer) for piece in pieces}:
            is_word = _read_words(piece, tokenizer) == [_to_text(piece)]
            if is_word and piece not in tokenizer.ids_by_piece:
                parts = _encode_piece(piece, tokenizer)
                counts[piece] += count
                gains[piece] += count * (len(parts) - 1 + parts.count(tokenizer.unk_id))
    best = sorted((piece for piece in gains if gains[piece]), key=lambda x: (-gains[x], x))
    require(bool(best), "the text gives no new tokens: the vocabulary already has its words.")
    total = sum(count * len(pieces) for count, pieces in zip(words.values(), after, strict=True))
    return {piece: counts[piece] / total for piece in best[:number]}


def _measure(tokenizer: Tokenizer, paths: Sequence[str]) -> tuple[int, int]:
    """Returns the number of words and of tokens in a text."""
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
        if isinstance(tokenizer.backend, WordPieceTokenizer):
            words = " ".join(wordpiece_tokenizer.split_words(tokenizer.backend, words))
        if words:
            yield words


def _to_own_form(piece: str, tokenizer: Tokenizer) -> str:
    """Returns a SentencePiece piece as the vocabulary writes it."""
    if isinstance(tokenizer.backend, SentencePieceTokenizer):
        return piece
    is_start = piece.startswith(WORD_START)
    return piece.removeprefix(WORD_START) if is_start else f"{CONTINUATION}{piece}"


def _to_text(piece: str) -> str:
    return piece.removeprefix(WORD_START).removeprefix(CONTINUATION)


def _read_words(piece: str, tokenizer: Tokenizer) -> list[str]:
    """Returns the words that a vocabulary makes of a token's text: the token itself, if usable."""
    text = tokenizer.normalize(_to_text(piece))
    if isinstance(tokenizer.backend, WordPieceTokenizer):
        return wordpiece_tokenizer.split_words(tokenizer.backend, text)
    if sentencepiece_tokenizer.ends_with_digit_and_comma(text):
        return [text[:-1], ","]
    return text.replace(WORD_START, " ").split()


def _encode_piece(piece: str, tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of a token's text, without its surroundings."""
    backend, text = tokenizer.backend, _to_text(piece)
    if isinstance(backend, WordPieceTokenizer):
        return [token.id for token in backend.backend.model.tokenize(piece)]
    assert isinstance(backend, SentencePieceTokenizer)
    if piece.startswith(WORD_START):
        return tokenizer.encode(text)
    _, ids = backend.encode_parts(["", text])  # as after [MASK]: it does not begin a word
    return ids
