"""The `transformers` models that are read and written: their classes, keys and names.

Source: transformers, `models/albert` and `models/bert`.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from albert_tf.checkpoints import model_checkpoint
from albert_tf.config import MODEL_TYPES, AlbertConfig
from albert_tf.errors import require_choice
from albert_tf.model import weight_names
from albert_tf.model.weight_names import (
    CLASSIFIER,
    ENCODER,
    MASKED_LM,
    POOLER,
    PRETRAINED,
    SENTENCE_ORDER,
    SQUAD1,
    TOKEN_CLASSIFIER,
)

EPSILON = 1e-12
TOKENS, CHOICES, BARE = "ForTokenClassification", "ForMultipleChoice", "Model"
NEXT_SENTENCE = "ForNextSentencePrediction"
SEGMENTS = "bert/embeddings/token_type_embeddings"


class ModelClass(NamedTuple):
    """A transformers class.

    Attributes:
        parts: the names in `weight_names.parts` that its models have.
        use: the Hub's name for its use.
        kinds: our kinds of models that have its head.
    """

    parts: Set[str]
    use: str
    kinds: tuple[str, ...] = ()


# Keyed by the end of the name. A head that is trained last comes first.
CLASSES: Mapping[str, ModelClass] = {
    "ForQuestionAnswering": ModelClass({ENCODER, SQUAD1}, "question-answering", ("span",)),
    TOKENS: ModelClass(
        {ENCODER, TOKEN_CLASSIFIER}, "token-classification", ("token_classification",)
    ),
    "ForSequenceClassification": ModelClass(
        {ENCODER, POOLER, CLASSIFIER},
        "text-classification",
        ("classification", "regression", "multi_label"),
    ),
    CHOICES: ModelClass({ENCODER, POOLER, CLASSIFIER}, "multiple-choice", ("multiple_choice",)),
    "ForPreTraining": ModelClass(PRETRAINED, "fill-mask"),
    "ForMaskedLM": ModelClass({ENCODER, MASKED_LM}, "fill-mask", ("fill_mask",)),
    NEXT_SENTENCE: ModelClass({ENCODER, POOLER, SENTENCE_ORDER}, "text-classification"),
    BARE: ModelClass({ENCODER, POOLER}, "feature-extraction", ("encoder", "sentence_embedding")),
}


class Architecture(NamedTuple):
    """A `model_type`.

    Attributes:
        name: the prefix of the names of its classes.
        layers: {published name of a layer or a weight: theirs}.
        block: the prefix of a block's weights, given its group and its number in the group.
        block_layers: {name in a block: theirs}.
        head: the prefix of the names in the masked-LM head.
        defaults: values for keys that a config or its class lacks.
        derived: (their key, our field): the last key that is not null gives the field.
        renamed: {our field: their key}; None if they have no such key.
        old_activations: {name: its meaning in files without a version}.
        lacking: ends of the names of classes that it lacks.
    """

    name: str
    layers: Mapping[str, str]
    block: str
    block_layers: Mapping[str, str]
    head: str
    defaults: Mapping[str, Any]
    derived: Sequence[tuple[str, str]] = ()
    renamed: Mapping[str, str] = {}
    old_activations: Mapping[str, str] = {}
    lacking: Set[str] = frozenset()

    @property
    def prefix(self) -> str:
        """The prefix of the names of the encoder's weights."""
        return f"{self.name.lower()}."


_EMBEDDINGS = {
    weight_names.WORDS: "{}embeddings.word_embeddings.weight",
    SEGMENTS: "{}embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "{}embeddings.position_embeddings.weight",
    "bert/embeddings/LayerNorm": "{}embeddings.LayerNorm",
}
_QUESTIONS = {"cls/squad/output_": "qa_outputs"}
_CLASSIFIER = {"output_": "classifier"}
_TAGS = {"cls/token_classification/output_": "classifier"}
ARCHITECTURES = {
    "albert": Architecture(
        name="Albert",
        layers={
            weight_names.MAPPING: "albert.encoder.embedding_hidden_mapping_in",
            "bert/pooler/dense": "albert.pooler",
            "cls/predictions/transform/dense": "predictions.dense",
            "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
            "cls/predictions/output_bias": "predictions.bias",
            "cls/seq_relationship/output_": "sop_classifier.classifier",
        },
        block="albert.encoder.albert_layer_groups.{}.albert_layers.{}.",
        block_layers={
            "attention_1/self/query": "attention.query",
            "attention_1/self/key": "attention.key",
            "attention_1/self/value": "attention.value",
            "attention_1/output/dense": "attention.dense",
            "ffn_1/intermediate/dense": "ffn",
            "ffn_1/intermediate/output/dense": "ffn_output",
            "LayerNorm": "attention.LayerNorm",
            "LayerNorm_1": "full_layer_layer_norm",
        },
        head="predictions.",
        defaults={**model_checkpoint.PUBLISHED_DEFAULTS, "hidden_act": "gelu_new"},
        # Version 1 models, trained with the tanh approximation (HF#2395).
        old_activations={"gelu": "gelu_new"},
        lacking={NEXT_SENTENCE},
    ),
    "bert": Architecture(
        name="Bert",
        layers={
            "bert/pooler/dense": "bert.pooler.dense",
            "cls/predictions/transform/dense": "cls.predictions.transform.dense",
            "cls/predictions/transform/LayerNorm": "cls.predictions.transform.LayerNorm",
            "cls/predictions/output_bias": "cls.predictions.bias",
            "cls/seq_relationship/output_": "cls.seq_relationship",
        },
        block="bert.encoder.layer.{}.",
        block_layers={
            "attention_1/self/query": "attention.self.query",
            "attention_1/self/key": "attention.self.key",
            "attention_1/self/value": "attention.self.value",
            "attention_1/output/dense": "attention.output.dense",
            "ffn_1/intermediate/dense": "intermediate.dense",
            "ffn_1/intermediate/output/dense": "output.dense",
            "LayerNorm": "attention.output.LayerNorm",
            "LayerNorm_1": "output.LayerNorm",
        },
        head="cls.predictions.",
        defaults={
            "vocab_size": 30522,
            "hidden_size": 768,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "cross_layer_sharing": "none",
        },
        derived=[
            ("hidden_size", "embedding_size"),
            ("hidden_dropout_prob", "classifier_dropout_prob"),
            ("classifier_dropout", "classifier_dropout_prob"),
        ],
        renamed={
            "classifier_dropout_prob": "classifier_dropout",
            **dict.fromkeys(("embedding_size", "num_hidden_groups", "inner_group_num"), ""),
        },
    ),
}


def find(values: Mapping[str, Any], path: str) -> Architecture:
    """Returns the architecture of a config; `UserError` for another one.

    Old files do not say it.
    """
    known = values.get("model_type", "albert" if "embedding_size" in values else "bert")
    require_choice(f"{path}: model_type", known, MODEL_TYPES)
    return ARCHITECTURES[known]


def of_config(config: AlbertConfig) -> Architecture:
    """Returns the architecture in which a model is written."""
    return ARCHITECTURES["bert" if config.is_bert else "albert"]


def map_names(config: AlbertConfig, end: str = "") -> dict[str, str]:
    """{published name: theirs} for a model with that config, with all heads that both sides have.

    Two heads share a name there: `end`, the end of the class name, tells them apart.
    """
    known = of_config(config)
    layers = {ours: name.format(known.prefix) for ours, name in _EMBEDDINGS.items()}
    layers |= {**known.layers, **_QUESTIONS, **(_TAGS if end == TOKENS else _CLASSIFIER)}
    for group in range(config.num_groups("attention")):
        for inner in range(config.inner_group_num):
            ours, theirs = weight_names.BLOCK.format(group, inner), known.block.format(group, inner)
            layers |= {ours + a: theirs + b for a, b in known.block_layers.items()}
    names: dict[str, str] = {}
    for ours, theirs in layers.items():
        if theirs.endswith((".weight", ".bias")):
            names[ours] = theirs
            continue
        is_norm, is_head = "LayerNorm" in ours, ours.endswith("output_")
        weight, bias = ("/gamma", "/beta") if is_norm else ("/kernel", "/bias")
        weight, bias = ("weights", "bias") if is_head else (weight, bias)
        names |= {f"{ours}{weight}": f"{theirs}.weight", f"{ours}{bias}": f"{theirs}.bias"}
    return names
