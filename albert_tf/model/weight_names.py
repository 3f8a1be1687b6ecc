"""The published names and shapes of all weights, derived from a config."""

from collections.abc import Set

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig

Shapes = dict[str, tuple[int, ...]]


BLOCK = "bert/encoder/transformer/group_{}/inner_group_{}/"
MAPPING = "bert/encoder/embedding_hidden_mapping_in"
WORDS = "bert/embeddings/word_embeddings"
ANY = -1  # the number of classes: GLUE's; 1 for RACE and regression

# The parts of a model. A checkpoint has all weights of a part, or none.
ENCODER, POOLER = "encoder", "pooler"
MASKED_LM, SENTENCE_ORDER = "masked_lm", "sentence_order"
CLASSIFIER, SQUAD1, SQUAD2 = "classifier", "squad1", "squad2"
EXITS = "exits"  # classifier heads after all layers except the last
TOKEN_CLASSIFIER = "token_classifier"  # never published by Google
EMBEDDING, EMBEDDING_SCOPE = "embedding", "cls/embedding"  # a layer after the pooling
TASK_HEADS = (CLASSIFIER, SQUAD1, SQUAD2, TOKEN_CLASSIFIER, EMBEDDING)
WORDS_BEHIND, WORDS_SCOPE = "words_behind", "cls/words/"  # only used in pre-training
PRETRAINED = frozenset({ENCODER, POOLER, MASKED_LM, SENTENCE_ORDER})
# {part that may be left out: (the config of its run without it, a note)}
OPTIONAL = {EXITS: ({"early_exit": False, "exit_patience": None}, "; all layers run")}
# The parts of published models. A classifier with one output may also be RACE's.
_MODELS: tuple[Set[str], ...] = (
    {ENCODER, POOLER},
    {ENCODER, MASKED_LM},
    {ENCODER, POOLER, MASKED_LM},  # TF Hub's modules, and transformers folders
    PRETRAINED,
    {ENCODER, POOLER, MASKED_LM, WORDS_BEHIND},
    {ENCODER, POOLER, CLASSIFIER},
    {ENCODER, POOLER, CLASSIFIER, EXITS},
)
_BERTS: tuple[Set[str], ...] = ({ENCODER}, {ENCODER, POOLER, SENTENCE_ORDER})


def weights_by_name(model: keras.Model) -> dict[str, tf.Variable]:
    """The model's raw variables under their published names, sorted by name."""
    return {w.path: w.value for w in sorted(model.trainable_weights, key=lambda w: w.path)}


def expected_shapes(config: AlbertConfig, names: Set[str]) -> Shapes:
    """Returns what a checkpoint with these weight names must have: all parts of its model.

    With a sentence head, for example, it was pre-trained, so it must have the masked-LM head. An
    ALBERT for question answering may have a pooler (Google's) or none (transformers').
    """
    by_part = parts(config)
    present = {ENCODER} | {part for part, shapes in by_part.items() if shapes.keys() & names}
    models = (*_MODELS, *_BERTS) if config.is_bert else _MODELS
    model = min((model for model in models if present <= model), key=len, default=present)
    return list_shapes(config, *sorted(model))


def list_shapes(config: AlbertConfig, *chosen: str) -> Shapes:
    """Returns the shapes of the weights of some parts."""
    by_part = parts(config)
    return {name: shape for part in chosen for name, shape in by_part[part].items()}


def parts(config: AlbertConfig) -> dict[str, Shapes]:
    """{part: {published name: shape}} of everything that a checkpoint may have."""
    hidden, embedding = config.hidden_size, config.embedding_size
    return {
        ENCODER: _encoder(config),
        POOLER: _dense("bert/pooler/dense", hidden, hidden),
        MASKED_LM: {
            **_dense("cls/predictions/transform/dense", hidden, embedding),
            **_norm("cls/predictions/transform/LayerNorm", embedding),
            "cls/predictions/output_bias": (config.vocab_size,),
        },
        SENTENCE_ORDER: _class_weights("cls/seq_relationship/", 2, hidden),
        CLASSIFIER: _class_weights("", ANY, hidden),
        EXITS: _class_weights("exits/", ANY, hidden),
        SQUAD1: _class_weights("cls/squad/", 2, hidden),
        SQUAD2: {
            **_dense("start_logits/dense", hidden, 1),
            **_dense("end_logits/dense_0", 2 * hidden, hidden),
            **_norm("end_logits/LayerNorm", hidden),
            **_dense("end_logits/dense_1", hidden, 1),
            **_dense("answer_class/dense_0", 2 * hidden, hidden),
            "answer_class/dense_1/kernel": (hidden, 1),
        },
        WORDS_BEHIND: _class_weights(WORDS_SCOPE, ANY, hidden),
        TOKEN_CLASSIFIER: _class_weights("cls/token_classification/", ANY, hidden),
        EMBEDDING: _dense(EMBEDDING_SCOPE, hidden, ANY),
    }


def _encoder(config: AlbertConfig) -> Shapes:
    embedding, hidden = config.embedding_size, config.hidden_size
    shapes: Shapes = {
        WORDS: (config.vocab_size, embedding),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, embedding),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, embedding),
        **_norm("bert/embeddings/LayerNorm", embedding),
        **(_dense(MAPPING, embedding, hidden) if embedding != hidden else {}),
    }
    for inner in range(config.inner_group_num):
        for group in range(config.num_groups("attention")):
            block = BLOCK.format(group, inner)
            for name in ("self/query", "self/key", "self/value", "output/dense"):
                shapes |= _dense(f"{block}attention_1/{name}", hidden, hidden)
            shapes |= _norm(f"{block}LayerNorm", hidden)
        for group in range(config.num_groups("ffn")):
            block = BLOCK.format(group, inner)
            name, inner_size = f"{block}ffn_1/intermediate", config.intermediate_size
            shapes |= _dense(f"{name}/dense", hidden, inner_size)
            shapes |= _dense(f"{name}/output/dense", inner_size, hidden)
            shapes |= _norm(f"{block}LayerNorm_1", hidden)
    return shapes


def _dense(name: str, size_in: int, size_out: int) -> Shapes:
    return {f"{name}/kernel": (size_in, size_out), f"{name}/bias": (size_out,)}


def _norm(name: str, size: int) -> Shapes:
    return {f"{name}/gamma": (size,), f"{name}/beta": (size,)}


def _class_weights(scope: str, classes: int, hidden: int) -> Shapes:
    return {f"{scope}output_weights": (classes, hidden), f"{scope}output_bias": (classes,)}
