"""The program bin/extend_vocabulary: a checkpoint and its vocabulary, with new pieces."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import formats, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep import new_pieces
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.new_pieces import Extension
from albert_tf.errors import UserError, require
from albert_tf.model import weight_names
from albert_tf.run_files import BEST
from albert_tf.tokenizers import vocabulary_uses

_OUTPUT_BIAS = "cls/predictions/output_bias"


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
        path: of any checkpoint.
        which: checkpoint of a run, as of `formats.read`.
        target: a folder, which must not exist.
        pieces: file with a new piece in each line (see `new_pieces.read_list`).
        input_files: patterns of text to learn pieces from, in place of `pieces`.
        num_pieces: to learn, at most.
        eval_files: patterns of text to count the pieces of a word in; default: `input_files`.

    Raises:
        UserError: bad input, or a checkpoint without its vocabulary.
    """
    require(
        bool(pieces) != bool(input_files),
        "give --pieces, a list, or --input_files, text to learn pieces from: one of them.",
    )
    if tf.io.gfile.exists(target):
        raise UserError(f"--to: {target} exists. Remove it, or name another folder.")
    paths = documents.expand_inputs(input_files) if input_files else []
    eval_paths = documents.expand_inputs(eval_files) if eval_files else paths
    checkpoint = formats.read(path, which=which)
    model_checkpoint.log_summary(checkpoint)
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    if tokenizer is None:
        raise UserError(f"{checkpoint.source} has no vocabulary beside it: put it there.")
    vocabulary_uses.check(vocabulary_uses.GROWTH, tokenizer)
    if pieces:
        new = new_pieces.read_list(pieces, tokenizer)
    else:
        new = new_pieces.learn(tokenizer, paths, num_pieces)
    extension = new_pieces.extend(tokenizer, checkpoint.vocabulary, new)
    extended = extend_checkpoint(checkpoint, extension)
    extended_tokenizer = model_checkpoint.load_tokenizer(extended)
    assert extended_tokenizer
    new_pieces.check(extension, extended_tokenizer, tokenizer.size)
    with files.cleaning_up(), files.replacing_folder(target) as temporary:
        formats.get_writer("albert_tf")(extended, temporary)
    logging.info(f"new: {new_pieces.describe(extension, tokenizer)}")
    print(f"{target}: {tokenizer.size:,} + {len(new):,} = {extended_tokenizer.size:,} pieces")
    if eval_paths:
        words, before = new_pieces.measure(tokenizer, eval_paths)
        _, after = new_pieces.measure(extended_tokenizer, eval_paths)
        print(
            f"{words:,} words: {before / words:.4f} pieces a word before, {after / words:.4f} after"
        )


def extend_checkpoint(checkpoint: ModelCheckpoint, extension: Extension) -> ModelCheckpoint:
    """Returns the checkpoint with rows for the new pieces: the mean of the rows of their parts.

    These are the word embeddings, which also are the output's matrix, and the output's bias.
    """
    size = checkpoint.config.vocab_size + len(extension.pieces)
    weights = {
        name: _add_rows(array, extension.parts) if name in _ROWS else array
        for name, array in checkpoint.weights.items()
    }
    return dataclasses.replace(
        checkpoint,
        config=dataclasses.replace(checkpoint.config, vocab_size=size),
        weights=weights,
        vocabulary=extension.files,
    )


_ROWS = (weight_names.WORDS, _OUTPUT_BIAS)


def _add_rows(array: np.ndarray, parts: Sequence[Sequence[int]]) -> np.ndarray:  # [V, ...]
    rows = [array[list(ids)].mean(0, dtype=np.float64) for ids in parts]
    return np.concatenate([array, np.array(rows, array.dtype)])
