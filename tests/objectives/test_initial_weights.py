"""A new run may begin with an output bias and with positions that are not random."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_run

from albert_tf.model.albert_model import AlbertForPretraining
from albert_tf.model.weight_names import weights_by_name
from albert_tf.objectives import initial_weights
from albert_tf.records import features
from albert_tf.tokenizers import tokenization

BIAS, POSITIONS = "cls/predictions/output_bias", "bert/embeddings/position_embeddings"
STARTS = {"initial_output_bias": "log_frequencies", "initial_positions": "sinusoids"}


def list_paths(data):
    return [f"{data}/{name}" for name in tiny_run.TRAIN]


def test_the_output_bias_predicts_the_frequencies(data):
    tokenizer, paths = tokenization.load(f"{data}/vocabulary"), list_paths(data)
    bias = initial_weights.compute_log_frequencies(paths, tokenizer)
    assert np.exp(bias).sum() == pytest.approx(1)
    counts = np.zeros(tiny_run.VOCAB)
    for record in tf.data.TFRecordDataset(paths):
        example = tf.train.Example.FromString(record.numpy())
        ids = example.features.feature[features.INPUT_IDS].int64_list.value
        counts += np.bincount(ids, minlength=len(counts))
    ids = tokenizer.replacement_ids
    assert counts[ids].min() > 0
    shares = np.exp(bias[ids]) / np.exp(bias[ids]).sum()
    np.testing.assert_allclose(shares, (counts[ids] + 1) / (counts[ids] + 1).sum(), rtol=1e-6)
    assert bias[tokenizer.mask_id] == bias.min()
    loss = initial_weights.compute_frequency_loss(paths, tokenizer)
    assert loss == pytest.approx(-(np.exp(bias) * bias).sum(), rel=1e-5)


def test_sinusoids_tell_all_positions_apart_and_are_as_large_as_other_weights():
    table = initial_weights.make_sinusoids(512, 64)
    np.testing.assert_allclose(table[0], [0.0] * 32 + [1.0] * 32)
    np.testing.assert_allclose((table**2).mean(1), 0.5)
    products = table @ table.T  # depend on the distance alone, and fall with it
    np.testing.assert_allclose(products[10, 14], products[300, 304])
    assert np.argmax(products, 1).tolist() == list(range(512))
    assert initial_weights.make_sinusoids(5, 7).shape == (5, 7)


def test_a_model_begins_with_them_and_keeps_its_other_weights(data):
    tokenizer, paths = tokenization.load(f"{data}/vocabulary"), list_paths(data)
    model = AlbertForPretraining(tiny_run.albert())
    before = tiny.fill(model)
    initial_weights.assign(model, tiny_run.settings(), paths, tokenizer)
    for name, weight in weights_by_name(model).items():
        np.testing.assert_array_equal(weight, before[name], err_msg=name)
    initial_weights.assign(model, tiny_run.settings(**STARTS), paths, tokenizer)
    expected = {
        BIAS: initial_weights.compute_log_frequencies(paths, tokenizer),
        POSITIONS: 0.02 * np.sqrt(2) * initial_weights.make_sinusoids(16, 6),
    }
    for name, weight in weights_by_name(model).items():
        target = expected.get(name, before[name])
        np.testing.assert_allclose(weight, target, atol=1e-6, err_msg=name)
