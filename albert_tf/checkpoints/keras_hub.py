"""Reads and writes presets of Keras Hub: the folder of an `AlbertBackbone` and its tokenizer.

`config.json`, `model.weights.h5`, `metadata.json`, `tokenizer.json`, and the vocabulary in
`assets/tokenizer/`. Their attention has an axis for the heads; they map embeddings to the hidden
size even if the two sizes are equal. Source: keras-hub, `models/albert`. It need not be installed.
"""

import io
import os
import sys
import unicodedata
from typing import Any

import keras
import numpy as np
import sentencepiece
import tensorflow as tf
from absl import logging

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint, tf_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.model import weight_names
from albert_tf.model.weight_names import ENCODER, POOLER
from albert_tf.tokenizers import normalization, tokenization
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.normalization import TokenizerConfig
from albert_tf.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer, make_normalizer
from albert_tf.train_config import SentenceVectors

WEIGHTS = "model.weights.h5"
_CONFIG, _METADATA, _TASK = "config.json", "metadata.json", "task.json"
_TOKENIZER, _PREPROCESSOR = "tokenizer.json", "preprocessor.json"
_VERSION = "0.32.0"  # whose presets these are
_ASSETS = os.path.join("assets", "tokenizer")
# Of presets that we have written, the model without our normalization lies beside theirs.
_SPM = "vocabulary.spm"
_NAMES: tokenization.Names = {
    tokenization.MODEL: (tokenization.MODEL, _SPM),
    tokenization.VOCAB: (tokenization.VOCAB,),
    tokenization.NORMALIZATION: (tokenization.NORMALIZATION,),
}
# Keras Hub applies the vocabulary alone.
_PLAIN = TokenizerConfig(lower_case=False, keep_accents=True, unicode_form="none", compat="hf_fast")
_BACKBONE = "AlbertBackbone"
# Their fields of the config: ours.
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
    "embedding_dim": "embedding_size",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Layers are named by their class and number: our name -> theirs.
_TABLES = {
    weight_names.WORDS: "reversible_embedding",
    "bert/embeddings/position_embeddings": "position_embedding",
    "bert/embeddings/token_type_embeddings": "embedding",
}
_LAYERS = {
    "bert/embeddings/LayerNorm": "layer_normalization",
    weight_names.MAPPING: "dense",
    "bert/pooler/dense": "dense_1",
}
_BLOCK = "transformer_encoder"
_BLOCK_LAYERS = {
    "attention_1/self/query": "_self_attention_layer/query_dense",
    "attention_1/self/key": "_self_attention_layer/key_dense",
    "attention_1/self/value": "_self_attention_layer/value_dense",
    "attention_1/output/dense": "_self_attention_layer/output_dense",
    "LayerNorm": "_self_attention_layer_norm",
    "ffn_1/intermediate/dense": "_feedforward_intermediate_dense",
    "ffn_1/intermediate/output/dense": "_feedforward_output_dense",
    "LayerNorm_1": "_feedforward_layer_norm",
}


def map_names(config: AlbertConfig) -> dict[str, str]:
    """{published name: the place of the array in their file} of a model of that config."""
    layers = dict(_LAYERS)
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            number = group * config.inner_group_num + inner
            block, ours = f"{_BLOCK}_{number}" if number else _BLOCK, weight_names.BLOCK
            layers |= {
                ours.format(group, inner) + a: f"{block}/{b}" for a, b in _BLOCK_LAYERS.items()
            }
    names = {ours: f"layers/{theirs}/vars/0" for ours, theirs in _TABLES.items()}
    for ours, theirs in layers.items():
        pair = ("gamma", "beta") if "LayerNorm" in ours else ("kernel", "bias")
        names |= {f"{ours}/{name}": f"layers/{theirs}/vars/{i}" for i, name in enumerate(pair)}
    return names


def read(folder: str) -> ModelCheckpoint:
    """Reads backbone and vocabulary; `UserError` if one is missing, damaged, or no ALBERT's."""
    path = os.path.join(folder, WEIGHTS)
    config = _read_config(os.path.join(folder, _CONFIG))
    arrays = _read_arrays(path)
    names = {theirs: ours for ours, theirs in map_names(config).items()}
    weights = {
        names.get(name, name): tf_checkpoint.to_float32(name, array, path)
        for name, array in arrays.items()
    }
    shapes = {**weight_names.parts(config)[ENCODER], **weight_names.parts(config)[POOLER]}
    for name, shape in shapes.items():  # without the axis of the heads
        if name in weights and weights[name].size == np.prod(shape):
            weights[name] = weights[name].reshape(shape)
    skipped = {}
    if config.embedding_size == config.hidden_size:
        skipped = model_checkpoint.drop_mapping(weights, path)
    if tf.io.gfile.exists(os.path.join(folder, _TASK)):
        logging.info(f"{_TASK} is not read: of a preset, the backbone alone is.")
    assets = os.path.join(folder, _ASSETS)
    vocabulary = tokenization.read_files(assets, _NAMES)
    if vocabulary and not tf.io.gfile.exists(os.path.join(assets, tokenization.MODEL)):
        plain = files.to_json(config_io.to_dict(_PLAIN))
        vocabulary = {tokenization.NORMALIZATION: plain, **vocabulary}
    return ModelCheckpoint(
        source=path,
        config=config,
        weights=weights,
        skipped=skipped,
        vocabulary=vocabulary,
        vectors=SentenceVectors(max_seq_length=_read_length(folder, config)),
    )


def _read_length(folder: str, config: AlbertConfig) -> int | None:
    """The length of texts in the tokenizer or the preprocessor, if they have one."""
    lengths = []
    for name in (_TOKENIZER, _PREPROCESSOR):
        path = os.path.join(folder, name)
        content = files.read_json(path, name) if tf.io.gfile.exists(path) else {}
        values = content.get("config", {}) if isinstance(content, dict) else None
        if not isinstance(values, dict):
            raise UserError(f"{path} does not describe an object of Keras. Download it again.")
        fixed = {"add_bos": (False,), "add_eos": (False,), "proto": (None,)}
        model_checkpoint.check_keys(values, path, fixed)
        length = values.get("sequence_length")
        lengths += [length] if isinstance(length, int) and length > 0 else []
    return min([*lengths, config.max_position_embeddings]) if lengths else None


def _read_config(path: str) -> AlbertConfig:
    content = files.read_json(path, "preset of Keras Hub")
    name = content.get("class_name") if isinstance(content, dict) else None
    if name != _BACKBONE:
        raise UserError(f"{path}: a preset of {name!r}, not of {_BACKBONE!r}. Take an ALBERT's.")
    values = content.get("config")
    lacking = [key for key in _FIELDS if not isinstance(values, dict) or key not in values]
    if lacking:
        raise UserError(
            f"{path}: the config has no {lacking[0]}: it is damaged. Download it again."
        )
    model_checkpoint.check_keys(values, path, {}, {*_FIELDS, "name", "trainable", "dtype"})
    fields = {ours: values[theirs] for theirs, ours in _FIELDS.items()}
    fields["attention_probs_dropout_prob"] = fields["hidden_dropout_prob"]
    return config_io.from_dict(AlbertConfig, {"hidden_act": "gelu", **fields}, path)


def _read_arrays(path: str) -> dict[str, np.ndarray]:
    import h5py  # comes with Keras

    arrays = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            # Older presets have another name of the list of layers.
            arrays[name.replace("_layer_checkpoint_dependencies/", "layers/")] = item[()]

    content = files.read_bytes(path, "weights")
    try:
        with h5py.File(io.BytesIO(content)) as file:
            file.visititems(keep)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: a damaged file ({reason}). Download it again.") from None
    return arrays


def write(checkpoint: ModelCheckpoint, folder: str) -> None:
    """Writes all but heads; `UserError` if Keras Hub has no such model."""
    config = checkpoint.config
    _check_model(checkpoint)
    weights = dict(checkpoint.weights) | model_checkpoint.make_mapping(config)
    names = map_names(config)
    arrays = {theirs: weights[ours] for ours, theirs in names.items()}
    _write_arrays({name: _split_heads(name, a, config) for name, a in arrays.items()}, folder)
    values: dict[str, Any] = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    files.write_json(os.path.join(folder, _CONFIG), _describe("backbone", _BACKBONE, values))
    metadata = {
        "keras_version": keras.__version__,
        "keras_hub_version": _VERSION,
        "parameter_count": sum(array.size for array in arrays.values()),
    }
    files.write_json(os.path.join(folder, _METADATA), metadata)
    _write_vocabulary(checkpoint, folder)


def _check_model(checkpoint: ModelCheckpoint) -> None:
    config, source = checkpoint.config, checkpoint.source
    # Theirs repeats each group equally often, one after the other.
    model_checkpoint.check_groups(checkpoint, lambda step, steps, n: step // (steps // n))
    if config.hidden_act != "gelu":
        raise UserError(f"{source}: hidden_act is {config.hidden_act!r}; Keras Hub's is 'gelu'.")
    pooler = weight_names.parts(config)[POOLER]
    if not pooler.keys() <= checkpoint.weights.keys():
        raise UserError(
            f"{source} has no pooler, and Keras Hub would make one up. Take another --to_format."
        )
    if config.attention_probs_dropout_prob != config.hidden_dropout_prob:
        logging.info(
            f"Keras Hub has one dropout for all: {config.hidden_dropout_prob:g}, of the hidden "
            f"layers, is written, not {config.attention_probs_dropout_prob:g} of the attention."
        )


def _split_heads(name: str, array: np.ndarray, config: AlbertConfig) -> np.ndarray:
    """An array of attention with an axis of the heads: [D, D] -> [D, N, H], or [N, H, D]."""
    heads, hidden = config.num_attention_heads, config.hidden_size
    kind, _, number = name.rpartition("/vars/")
    if kind.endswith("output_dense") and "_self_attention" in kind and number == "0":
        return array.reshape(heads, hidden // heads, hidden)
    if kind.endswith(("query_dense", "key_dense", "value_dense")):
        return array.reshape(*array.shape[:-1], heads, hidden // heads)
    return array


def _write_arrays(arrays: dict[str, np.ndarray], folder: str) -> None:
    import h5py

    with files.making_temporary_folder("albert-keras-hub") as local:
        path = os.path.join(local, WEIGHTS)
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
        tf.io.gfile.copy(path, os.path.join(folder, WEIGHTS))


def _describe(module: str, name: str, values: dict[str, Any], dtype: str = "float32") -> Any:
    """The JSON with which Keras Hub makes one of its objects."""
    policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": dtype}}
    common = {"name": f"albert_{module}", "trainable": True, "dtype": policy}
    return {
        "module": f"keras_hub.src.models.albert.albert_{module}",
        "class_name": name,
        "config": {**common, **values},
        "registered_name": f"keras_hub>{name}",
    }


def _write_vocabulary(checkpoint: ModelCheckpoint, folder: str) -> None:
    vocabulary = {name: x for name, x in checkpoint.vocabulary.items() if name in _NAMES}
    if tokenization.MODEL not in vocabulary:
        if checkpoint.vocabulary:
            logging.warning("Keras Hub's ALBERT has no WordPiece: the vocabulary is left out.")
        return
    assets = os.path.join(folder, _ASSETS)
    tf.io.gfile.makedirs(assets)
    tokenization.write_files(vocabulary, assets, _NAMES)
    ours = model_checkpoint.load_tokenizer(checkpoint)
    assert ours and isinstance(ours.backend, SentencePieceTokenizer)
    content = _add_normalization(vocabulary[tokenization.MODEL], ours.backend.config)
    files.write_bytes(os.path.join(assets, _SPM), content)
    values: dict[str, Any] = {
        "config_file": _TOKENIZER,
        "proto": None,
        "sequence_length": None,
        "add_bos": False,
        "add_eos": False,
    }
    tokenizer = _describe("tokenizer", "AlbertTokenizer", values, "int32")
    files.write_json(os.path.join(folder, _TOKENIZER), tokenizer)
    length = checkpoint.vectors.max_seq_length or checkpoint.config.max_position_embeddings
    values = {"tokenizer": tokenizer, "config_file": _PREPROCESSOR, "sequence_length": length}
    values["truncate"] = "round_robin"
    kind = ("text_classifier_preprocessor", "AlbertTextClassifierPreprocessor")
    files.write_json(os.path.join(folder, _PREPROCESSOR), _describe(*kind, values))
    digits = " and its rule for digits before a comma" * bool(ours.backend.expansions)
    logging.info(
        "Keras Hub's tokenizer normalizes text by a table in the vocabulary, character by "
        f"character, without what depends on the next ones{digits}."
    )


def _add_normalization(content: bytes, config: TokenizerConfig) -> bytes:
    """Returns a SentencePiece model that normalizes text as we do, and then as it did before."""
    if config == _PLAIN:
        return content
    model = proto.ModelProto.FromString(content)
    own = make_normalizer(content)

    def change(text: str) -> str:
        changed = " " if text.isspace() else normalization.normalize(text, config)
        return own.normalize(changed)

    characters = [
        c
        for c in map(chr, range(1, sys.maxunicode + 1))
        if unicodedata.category(c) not in ("Cs", "Cn", "Co")
    ]
    single = {c: change(c) for c in characters}
    rules = {c: changed for c, changed in single.items() if changed != c}
    for text in {unicodedata.normalize("NFD", c) for c in characters}:  # with loose marks
        changed = change(text)
        if changed != "".join(single.get(c, c) for c in text):
            rules[text] = changed
    made = sentencepiece.SentencePieceNormalizer(norm_map=[*rules.items()])
    charsmap = proto.ModelProto.FromString(made.serialized_model_proto()).normalizer_spec
    model.normalizer_spec.precompiled_charsmap = charsmap.precompiled_charsmap
    return model.SerializeToString()
