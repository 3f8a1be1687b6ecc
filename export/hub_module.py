"""Writes modules that follow TF Hub's text API: an encoder and its preprocessor."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files, folders
from albert_tf.checkpoints import tf_checkpoint
from albert_tf.errors import UserError
from albert_tf.export import saved_model
from albert_tf.export.graph_tokenizer.graph_tokenizer import make_tokenizer
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests import packing
from albert_tf.model import weight_names, xla
from albert_tf.records import features
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer

# {our name of an input: the Hub's}
NAMES = {
    features.INPUT_IDS: "input_word_ids",
    features.INPUT_MASK: "input_mask",
    features.SEGMENT_IDS: "input_type_ids",
}
ENCODER, PREPROCESSOR = "encoder", "preprocessor"
_POSITIONS = features.MASKED_LM_POSITIONS
# Attributes in which users of a module look for its vocabulary.
_ATTRIBUTES = {tokenization.MODEL: "sp_model_file", tokenization.WORDPIECE: "vocab_file"}

Tensors = Mapping[str, Any]
# (ids under our names, training, seed) -> outputs
Encode = Callable[[Tensors, bool, tf.Tensor | None], dict[str, Any]]


def write(model: ExportedModel, folder: str, seq_length: int | None = 128) -> str:
    """Writes both modules into a folder, completely or not at all. Returns the encoder's folder.

    `seq_length` is the default text length; None writes no preprocessor.

    Raises `UserError` if the folder exists, the preprocessor has no vocabulary, or the encoder
    cannot read texts of that length.
    """
    longest = model.config.max_position_embeddings
    if seq_length is not None and seq_length > longest:
        raise UserError(f"--seq_length={seq_length}: the model reads at most {longest} tokens.")
    folders.refuse_existing(folder, "--output_dir: ")
    with folders.replacing(folder) as temporary:
        if seq_length is not None:
            _write_preprocessor(model, os.path.join(temporary, PREPROCESSOR), seq_length)
        with xla.trace_options(compile_pieces=False):
            _write_encoder(model, os.path.join(temporary, ENCODER))
        tf_checkpoint.remove_parts(temporary)
        for module in tf.io.gfile.glob(os.path.join(temporary, "*")):
            files.write_hashes(module, files.list_files(module))
    return os.path.join(folder, ENCODER)


def _write_encoder(model: ExportedModel, folder: str) -> None:
    """Writes the encoder: trainable, with `mlm` and `sop` if the checkpoint has these heads.

    Called with {"input_word_ids", "input_mask", "input_type_ids": [B, S] int32} and `training`, it
    returns

        sequence_output, default and pooled_output  [B, S, D], [B, D], [B, D]
        encoder_outputs                             list of [B, S, D]

    `mlm` also needs `masked_lm_positions` [B, P], and adds `mlm_logits` [B, P, V]; `sop` adds
    `sop_logits` [B, 2]. All float32.
    """
    network: Any = model.network
    albert = getattr(network, "albert", network)
    weights = weight_names.weights_by_name(network)
    parts = {
        part: [weights[name] for name in shapes if name in weights]
        for part, shapes in weight_names.parts(model.config).items()
    }
    shared = parts[weight_names.ENCODER] + parts[weight_names.POOLER]

    def encode(batch: Tensors, training: bool, seed: tf.Tensor | None) -> dict[str, Any]:
        outputs = albert(batch, training=training, seed=seed)
        return {**outputs, "default": outputs["pooled_output"]}

    def predict_masked(batch: Tensors, training: bool, seed: tf.Tensor | None) -> dict[str, Any]:
        outputs = encode(batch, training, seed)
        vectors = tf.gather(outputs["sequence_output"], batch[_POSITIONS], batch_dims=1)
        return {**outputs, "mlm_logits": network.masked_lm(vectors, training=training)}

    def predict_order(batch: Tensors, training: bool, seed: tf.Tensor | None) -> dict[str, Any]:
        outputs = encode(batch, training, seed)
        return {**outputs, "sop_logits": network.second_head.scores(outputs["pooled_output"])}

    root = _make_module(encode, shared)
    if network is not albert:
        variables = shared + parts[weight_names.MASKED_LM]
        root.mlm = _make_module(predict_masked, variables, [_POSITIONS])
        if model.has_part(weight_names.SENTENCE_ORDER):
            root.sop = _make_module(predict_order, shared + parts[weight_names.SENTENCE_ORDER])
    _save(root, model, folder)


def _make_module(
    encode: Encode, variables: Sequence[tf.Variable], more_inputs: Sequence[str] = ()
) -> tf.train.Checkpoint:
    """Returns an object that can be called, trained, and used inside another model."""
    names = NAMES | {name: name for name in more_inputs}

    @tf.function(autograph=False)
    def call(inputs: Tensors, training: bool = False) -> dict[str, Any]:
        batch = {ours: inputs[theirs] for ours, theirs in names.items()}
        # Each call draws a new seed for dropout.
        seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32) if training else None
        return encode(batch, training, seed)

    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names.values()}
    for training in (False, True):
        call.get_concrete_function(specs, training=training)
    module = tf.train.Checkpoint()
    module.__call__ = call
    module.variables = module.trainable_variables = list(variables)
    module.regularization_losses = []
    return module


def _write_preprocessor(model: ExportedModel, folder: str, seq_length: int) -> None:
    """Writes the preprocessor, which turns texts into the encoder's inputs.

    Called with [B] strings it returns the encoder's three inputs, [B, seq_length] int32. For pairs
    and other lengths:

        tokenize(texts)                                  ragged [B, None] int32
        bert_pack_inputs([ragged], seq_length=...)       the three inputs, for a text
        bert_pack_inputs([ragged, ragged], seq_length=)  for a pair
        tokenize.get_special_tokens_dict()               ids of special tokens, int32

    Raises `UserError` if there is no vocabulary.
    """
    if model.tokenizer is None:
        raise UserError(f"{model.source} has no vocabulary: add it, or pass --text=false.")
    tokenizer = make_tokenizer(model.tokenizer)
    texts = [tf.TensorSpec([None], tf.string)]
    tokenize = tf.function(
        # int64 is the usual type of row splits.
        lambda inputs: tokenizer.tokenize(inputs).with_row_splits_dtype(tf.int64),
        input_signature=texts,
        autograph=False,
    )
    pack = _make_pack(tokenizer.vocabulary, seq_length)
    root = tf.train.Checkpoint(
        tokenize=tf.train.Checkpoint(), bert_pack_inputs=tf.train.Checkpoint()
    )
    root.tokenize.__call__ = tokenize
    special = _list_special_tokens(tokenizer.vocabulary)
    root.tokenize.get_special_tokens_dict = tf.function(
        lambda: {name: tf.constant(value) for name, value in special.items()}, input_signature=[]
    )
    root.bert_pack_inputs.__call__ = pack
    root.__call__ = tf.function(
        lambda inputs: pack([tokenize(inputs)]), input_signature=texts, autograph=False
    )
    _save(root, model, folder)


def _make_pack(vocabulary: Tokenizer, seq_length: int) -> Callable[..., dict[str, tf.Tensor]]:
    """Returns the traced function `bert_pack_inputs`; `seq_length` is its default."""

    @tf.function(autograph=False)
    def pack(inputs: Sequence[tf.RaggedTensor], seq_length: tf.Tensor | int = seq_length):
        first, second = [*inputs, None][:2]
        batch = packing.pack(first, second, vocabulary, seq_length, pads=True)
        return {NAMES[name]: value for name, value in batch.items()}

    ragged = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
    for inputs in ([ragged], [ragged, ragged]):
        pack.get_concrete_function(inputs)
        pack.get_concrete_function(inputs, seq_length=tf.TensorSpec([], tf.int32))
    return pack


def _list_special_tokens(vocabulary: Tokenizer) -> dict[str, int]:
    return {
        "vocab_size": vocabulary.size,
        "padding_id": vocabulary.pad_id,
        "start_of_sequence_id": vocabulary.cls_id,
        "end_of_segment_id": vocabulary.sep_id,
        "mask_id": vocabulary.mask_id,
    }


def _save(root: tf.train.Checkpoint, model: ExportedModel, folder: str) -> None:
    # Unknown without a vocabulary.
    if model.tokenizer is not None:
        root.do_lower_case = tf.Variable(model.tokenizer.config.lower_case, trainable=False)
    with saved_model.write_assets(model) as root.assets:
        for asset in root.assets:
            name = os.path.basename(asset.asset_path.numpy().decode())
            if name in _ATTRIBUTES:
                setattr(root, _ATTRIBUTES[name], asset)
        tf.saved_model.save(root, folder)
    saved_model.remove_uuid(folder)
