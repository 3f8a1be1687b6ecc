"""Modules by TF Hub's contract for text: the encoder, and what prepares texts for it.

Names are the Hub's, so that code written for such modules fits.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import formats
from albert_tf.errors import UserError
from albert_tf.model import albert_model, weight_names, xla
from albert_tf.records import features
from albert_tf.tasks import finetuned_model
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import FinetuneConfig
from export import export_source, saved_model, server_ops
from export.export_source import Source
from export.graph_tokenizer.graph_tokenizer import make_tokenizer
from export.model_kinds import Options
from export.requests import packing

# Our names of inputs -> the Hub's.
NAMES = {
    features.INPUT_IDS: "input_word_ids",
    features.INPUT_MASK: "input_mask",
    features.SEGMENT_IDS: "input_type_ids",
}
ENCODER, PREPROCESSOR = "encoder", "preprocessor"
_POSITIONS = features.MASKED_LM_POSITIONS

Tensors = Mapping[str, Any]
# (ids under our names, training, seed) -> outputs
Outputs = Callable[[Tensors, bool, tf.Tensor | None], dict[str, Any]]


def read(path: str) -> Source:
    """Reads any checkpoint, of a run the best, with the heads of pre-training that it has.

    Raises:
        UserError: it is not read, or lacks the encoder or the pooler.
    """
    what = formats.read(finetuned_model.find_best_checkpoint(path))
    has_head = weight_names.parts(what.config)[weight_names.MASKED_LM].keys() <= what.weights.keys()
    settings = FinetuneConfig(
        albert=what.config, max_seq_length=what.config.max_position_embeddings
    )
    kind = "fill_mask" if has_head else "encoder"
    source = export_source.from_checkpoint(what, Options(kind=kind, settings=settings))
    if not source.has(weight_names.POOLER):
        raise UserError(f"{path} has no pooler, which a module needs. Take a whole checkpoint.")
    return source


def write(source: Source, folder: str, seq_length: int | None = 128) -> None:
    """Writes both modules into a folder, `encoder` and `preprocessor`: whole, or not at all.

    Args:
        source: the model.
        folder: does not exist yet.
        seq_length: of texts, unless one is asked for; None writes no preprocessor.

    Raises:
        UserError: the folder exists, there is no vocabulary for the preprocessor, or the encoder
            reads no texts so long.
    """
    longest = source.config.max_position_embeddings
    if seq_length is not None and seq_length > longest:
        raise UserError(f"--seq_length={seq_length}: the model reads {longest} pieces at most.")
    if tf.io.gfile.exists(folder):
        raise UserError(f"--to: {folder} exists. Remove it, or name another folder.")
    with files.replacing_folder(folder) as temporary:
        if seq_length is not None:
            write_preprocessor(source, os.path.join(temporary, PREPROCESSOR), seq_length)
            server_ops.check(os.path.join(temporary, PREPROCESSOR))
        with xla.trace_options(compile_pieces=False):
            write_encoder(source, os.path.join(temporary, ENCODER))


def write_encoder(source: Source, folder: str) -> None:
    """Writes the encoder: trainable, with `mlm` and `sop` if the checkpoint has these heads.

    Called with {"input_word_ids", "input_mask", "input_type_ids": [B, S] int32} and `training`, it
    returns

        sequence_output, default and pooled_output  [B, S, D], [B, D], [B, D]
        encoder_outputs                             list of [B, S, D]

    `mlm` takes `masked_lm_positions` [B, P], too, and adds `mlm_logits` [B, P, V]; `sop` adds
    `sop_logits` [B, 2]. All float32.
    """
    network = source.network
    albert = network.albert if isinstance(network, albert_model.AlbertForPretraining) else network
    weights = weight_names.weights_by_name(network)
    parts = {
        part: [weights[name] for name in shapes if name in weights]
        for part, shapes in weight_names.parts(source.config).items()
    }
    shared = parts[weight_names.ENCODER] + parts[weight_names.POOLER]
    root = _module(_encode(albert), shared)
    if network is not albert:
        positions = {_POSITIONS: tf.TensorSpec([None, None], tf.int32, _POSITIONS)}
        outputs = _masked_lm(network)
        root.mlm = _module(outputs, shared + parts[weight_names.MASKED_LM], positions)
        if source.has(weight_names.SENTENCE_ORDER):
            variables = shared + parts[weight_names.SENTENCE_ORDER]
            root.sop = _module(_sentence_order(network), variables)
    _save(root, source, folder)


def _encode(albert: albert_model.Albert) -> Outputs:
    def outputs(batch: Tensors, training: bool, seed: tf.Tensor | None) -> dict[str, Any]:
        found = albert(batch, training=training, seed=seed)
        return {**found, "default": found["pooled_output"]}

    return outputs


def _masked_lm(network: albert_model.AlbertForPretraining) -> Outputs:
    def outputs(batch: Tensors, training: bool, seed: tf.Tensor | None) -> dict[str, Any]:
        found = _encode(network.albert)(batch, training, seed)
        vectors = tf.gather(found["sequence_output"], batch[_POSITIONS], batch_dims=1)
        return {**found, "mlm_logits": network.masked_lm(vectors, training=training)}

    return outputs


def _sentence_order(network: albert_model.AlbertForPretraining) -> Outputs:
    def outputs(batch: Tensors, training: bool, seed: tf.Tensor | None) -> dict[str, Any]:
        found = _encode(network.albert)(batch, training, seed)
        return {**found, "sop_logits": network.sentence_order(found["pooled_output"])}

    return outputs


def _module(
    outputs: Outputs,
    variables: Sequence[tf.Variable],
    more: Mapping[str, tf.TensorSpec] | None = None,
) -> tf.train.Checkpoint:
    """What can be called, trained, and put into another model. `more` are further inputs."""

    @tf.function(autograph=False)
    def call(inputs: Tensors, training: bool = False) -> dict[str, Any]:
        batch = {ours: inputs[theirs] for ours, theirs in NAMES.items()}
        # The seed of dropout is drawn anew each time.
        seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32) if training else None
        return outputs({**batch, **{name: inputs[name] for name in more or ()}}, training, seed)

    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in NAMES.values()}
    for training in (False, True):
        call.get_concrete_function({**specs, **(more or {})}, training=training)
    made = tf.train.Checkpoint()
    made.__call__ = call
    made.variables = made.trainable_variables = list(variables)
    made.regularization_losses = []
    return made


def write_preprocessor(source: Source, folder: str, seq_length: int = 128) -> None:
    """Writes what turns texts into the inputs of the encoder.

    Called with [B] strings it returns the encoder's three inputs, [B, seq_length] int32. For pairs
    and other lengths:

        tokenize(texts)                                  ragged [B, None] int32
        bert_pack_inputs([ragged], seq_length=...)       the three inputs, of a text
        bert_pack_inputs([ragged, ragged], seq_length=)  of a pair
        tokenize.get_special_tokens_dict()               ids of special pieces, int32

    Raises:
        UserError: there is no vocabulary.
    """
    if source.tokenizer is None:
        raise UserError(f"{source.name} has no vocabulary: add it, or take --text=false.")
    vocabulary, special = source.tokenizer, packing.special(source.tokenizer)

    def pack(inputs: Sequence[tf.RaggedTensor], seq_length: tf.Tensor | int = seq_length):
        first, second = [*inputs, None][:2]
        batch = packing.pack(first, second, special, seq_length, pads=True)
        return {NAMES[name]: value for name, value in batch.items()}

    texts = tf.TensorSpec([None], tf.string)
    tokenizer = make_tokenizer(vocabulary)
    tokenize = tf.function(
        # int64, which is what ragged tensors have unless asked otherwise.
        lambda inputs: tokenizer.tokenize(inputs).with_row_splits_dtype(tf.int64),
        input_signature=[texts],
        autograph=False,
    )
    root = tf.train.Checkpoint()
    root.tokenize = _tokenize(tokenize, vocabulary)
    root.bert_pack_inputs = tf.train.Checkpoint()
    root.bert_pack_inputs.__call__ = _traced_pack(pack)
    root.__call__ = tf.function(
        lambda inputs: pack([tokenize(inputs)]), input_signature=[texts], autograph=False
    )
    _save(root, source, folder)


def _tokenize(tokenize: Any, vocabulary: tokenization.Tokenizer) -> tf.train.Checkpoint:
    special = {
        "vocab_size": vocabulary.size,
        "padding_id": vocabulary.pad_id,
        "start_of_sequence_id": vocabulary.cls_id,
        "end_of_segment_id": vocabulary.sep_id,
        "mask_id": vocabulary.mask_id,
    }
    made = tf.train.Checkpoint()
    made.__call__ = tokenize
    made.get_special_tokens_dict = tf.function(
        lambda: {name: tf.constant(value, tf.int32) for name, value in special.items()},
        input_signature=[],
    )
    return made


def _traced_pack(pack: Callable[..., Tensors]) -> Any:
    """`pack` for a text or a pair, of the default length or another."""
    made = tf.function(pack, autograph=False)
    ragged = tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
    for number in (1, 2):
        made.get_concrete_function([ragged] * number)
        made.get_concrete_function([ragged] * number, seq_length=tf.TensorSpec([], tf.int32))
    return made


def _save(root: tf.train.Checkpoint, source: Source, folder: str) -> None:
    # Without a vocabulary nobody knows.
    if source.tokenizer is not None:
        lower_case = source.tokenizer.config.lower_case
        root.do_lower_case = tf.Variable(lower_case, trainable=False)
    with saved_model.asset_files(source) as root.assets:
        for asset in root.assets:
            name = os.path.basename(asset.asset_path.numpy().decode())
            if name in _ATTRIBUTES:
                setattr(root, _ATTRIBUTES[name], asset)
        tf.saved_model.save(root, folder)


# Where those who use a module look for its vocabulary.
_ATTRIBUTES = {tokenization.MODEL: "sp_model_file", tokenization.WORDPIECE: "vocab_file"}
