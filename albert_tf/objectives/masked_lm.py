"""Masked language modelling, alone or with a sentence task."""

import keras
import tensorflow as tf

from albert_tf.model.albert_model import AlbertForPretraining
from albert_tf.model.losses import Loss, Tensors, classification_sums, example_weights
from albert_tf.objectives import initial_weights
from albert_tf.objectives.objective import Objective
from albert_tf.records import features
from albert_tf.records.features import Features
from albert_tf.train_config import PretrainConfig

MASKED_LM = "masked_lm"


def make_objective(sentence: str | None) -> Objective:
    """Returns the objective; `sentence` is the sentence task's name in metrics, None without."""

    def make_model(config: PretrainConfig) -> tuple[AlbertForPretraining, list[keras.Variable]]:
        model = AlbertForPretraining(
            config.albert,
            num_words=config.head_of_words,
            seed=config.seed,
            rematerialize=config.rematerialize,
            layer_loop=config.layer_loop,
            dtype=config.dtype,
        )
        return model, list_trained_weights(model, has_sentences=sentence is not None)

    return Objective(
        loss=_make_loss(sentence),
        best_by=f"{MASKED_LM}_accuracy",
        list_features=_list_features,
        make_model=make_model,
        initialize=initial_weights.assign,
    )


def _list_features(config: PretrainConfig) -> Features:
    return features.pretraining(config.max_seq_length, config.max_predictions_per_seq)


def list_trained_weights(
    model: AlbertForPretraining, *, has_sentences: bool
) -> list[keras.Variable]:
    """Returns the weights that a gradient reaches: only a sentence task reads the pooler."""
    others = [] if model.num_words else [model.second_head]
    layers = [] if has_sentences else [model.albert.pooler, *others]
    unreached = {id(weight) for layer in layers for weight in layer.trainable_weights}
    return [weight for weight in model.trainable_weights if id(weight) not in unreached]


def weigh_predictions(batch: Tensors) -> tf.Tensor:  # [B, P]
    return batch[features.MASKED_LM_WEIGHTS] * example_weights(batch)[:, tf.newaxis]


def _make_loss(sentence: str | None) -> Loss:
    """The sum of two means."""

    def counts(batch: Tensors) -> dict[str, tf.Tensor]:
        totals = {MASKED_LM: tf.reduce_sum(weigh_predictions(batch))}
        return totals | {sentence: tf.reduce_sum(example_weights(batch))} if sentence else totals

    def sums(outputs: Tensors, batch: Tensors) -> dict[str, tf.Tensor]:
        logits, labels = outputs["masked_lm_logits"], batch[features.MASKED_LM_IDS]
        totals = classification_sums(MASKED_LM, logits, labels, weigh_predictions(batch))
        if sentence:
            logits = outputs["sentence_order_logits"]
            labels = batch[features.NEXT_SENTENCE_LABELS][:, 0]
            totals |= classification_sums(sentence, logits, labels, example_weights(batch))
        return totals

    return Loss((MASKED_LM, sentence) if sentence else (MASKED_LM,), counts, sums)
