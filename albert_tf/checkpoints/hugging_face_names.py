"""What the weights of an ALBERT are called in `transformers`."""

from collections.abc import Set

from albert_tf.config import AlbertConfig
from albert_tf.model import weight_names
from albert_tf.model.weight_names import CLASSIFIER, ENCODER, MASKED_LM, POOLER, PRETRAINED, SQUAD1

# Their classes, by the parts of the model that each has; what was trained last comes first.
_CLASSES: dict[str, Set[str]] = {
    "AlbertForQuestionAnswering": {ENCODER, SQUAD1},
    "AlbertForSequenceClassification": {ENCODER, POOLER, CLASSIFIER},
    "AlbertForPreTraining": PRETRAINED,
    "AlbertForMaskedLM": {ENCODER, MASKED_LM},
    "AlbertModel": {ENCODER, POOLER},
}

# Layers: published name -> theirs. A dense kernel is transposed.
_DENSE = {
    weight_names.MAPPING: "albert.encoder.embedding_hidden_mapping_in",
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
}
_NORMS = {
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}
_BLOCK = "albert.encoder.albert_layer_groups.{}.albert_layers.{}."
_BLOCK_DENSE = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
}
_BLOCK_NORMS = {"LayerNorm": "attention.LayerNorm", "LayerNorm_1": "full_layer_layer_norm"}
_AS_THEY_ARE = {
    weight_names.WORDS: "albert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}


def from_published(config: AlbertConfig) -> dict[str, str]:
    """{published name: theirs} for a model of that config, with all heads that both sides have."""
    dense, norms = dict(_DENSE), dict(_NORMS)
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            ours, theirs = weight_names.BLOCK.format(group, inner), _BLOCK.format(group, inner)
            dense |= {ours + a: theirs + b for a, b in _BLOCK_DENSE.items()}
            norms |= {ours + a: theirs + b for a, b in _BLOCK_NORMS.items()}
    return {
        **_AS_THEY_ARE,
        **{f"{a}/kernel": f"{b}.weight" for a, b in dense.items()},
        **{f"{a}/bias": f"{b}.bias" for a, b in dense.items()},
        **{f"{a}/gamma": f"{b}.weight" for a, b in norms.items()},
        **{f"{a}/beta": f"{b}.bias" for a, b in norms.items()},
    }


def class_of(config: AlbertConfig, names: Set[str]) -> tuple[str, Set[str]] | None:
    """Their first class that lacks none of its weights among `names` (published), and which it has.

    None: there is no such class.
    """
    parts = weight_names.parts(config)
    for kind, needed in _CLASSES.items():
        if (own := {name for part in needed for name in parts[part]}) <= names:
            return kind, own
    return None
