"""A new run may begin with an output bias and with positions that are not random."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_run

from albert_tf.errors import UserError
from albert_tf.objectives import initial_weights
from albert_tf.records import features
from albert_tf.tokenizers import tokenization

pytestmark = pytest.mark.usefixtures("eagerly")
BIAS, POSITIONS = "cls/predictions/output_bias", "bert/embeddings/position_embeddings"
STARTS = {"initial_output_bias": "log_frequencies", "initial_positions": "sinusoids"}


def first_weights(data, workdir, init_checkpoint=None, **changes):
    """Those of a run that does not move them: its first update has the learning rate 0."""
    config = tiny_run.settings(num_warmup_steps=2, stop_at_step=1, **changes)
    tiny_run.run(data, workdir, config, init_checkpoint=init_checkpoint)
    return read_weights(workdir)


def read_weights(workdir):
    return {
        name.removeprefix("weights/").split("/.ATTRIBUTES")[0].replace(".S", "/"): value
        for name, value in tiny_run.all_tensors(workdir).items()
        if name.startswith("weights")
    }


def count_pieces(data):
    counts = np.zeros(tiny_run.VOCAB)
    for name in tiny_run.TRAIN:
        for record in tf.data.TFRecordDataset(f"{data}/{name}"):
            example = tf.train.Example.FromString(record.numpy())
            ids = example.features.feature[features.INPUT_IDS].int64_list.value
            counts += np.bincount(ids, minlength=len(counts))
    return counts


def test_the_output_bias_predicts_the_frequencies(data):
    tokenizer = tokenization.load(f"{data}/vocabulary")
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    bias = initial_weights.compute_log_frequencies(paths, tokenizer)
    assert np.exp(bias).sum() == pytest.approx(1)
    counts = count_pieces(data)
    ids = tokenizer.replacement_ids
    assert counts[ids].min() > 0
    shares = np.exp(bias[ids]) / np.exp(bias[ids]).sum()
    np.testing.assert_allclose(shares, (counts[ids] + 1) / (counts[ids] + 1).sum(), rtol=1e-6)
    assert bias[tokenizer.mask_id] == bias.min()
    probabilities = np.exp(bias)
    loss = initial_weights.compute_frequency_loss(paths, tokenizer)
    assert loss == pytest.approx(-np.log(probabilities**probabilities).sum(), rel=1e-5)


def test_sinusoids_tell_all_positions_apart_and_are_as_large_as_other_weights():
    table = initial_weights.make_sinusoids(512, 64)
    assert table.shape == (512, 64)
    np.testing.assert_allclose(table[0], [0.0] * 32 + [1.0] * 32)
    np.testing.assert_allclose((table**2).mean(1), 0.5)
    products = table @ table.T  # depend on the distance alone, and fall with it
    np.testing.assert_allclose(products[10, 14], products[300, 304])
    assert np.argmax(products, 1).tolist() == list(range(512))
    assert initial_weights.make_sinusoids(5, 7).shape == (5, 7)


def test_a_run_begins_with_them_and_others_do_not(data, tmp_path):
    plain, changed = (
        first_weights(data, tmp_path / name, **changes)
        for name, changes in {"plain": {}, "changed": STARTS}.items()
    )
    tokenizer = tokenization.load(f"{data}/vocabulary")
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    expected = {
        BIAS: initial_weights.compute_log_frequencies(paths, tokenizer),
        POSITIONS: 0.02 * np.sqrt(2) * initial_weights.make_sinusoids(16, 6),
    }
    assert {BIAS, POSITIONS} < plain.keys() == changed.keys()
    for name, value in plain.items():
        target = expected.get(name, value)
        np.testing.assert_allclose(changed[name], target, atol=1e-6, err_msg=name)
    assert np.abs(plain[BIAS]).max() == 0


def test_imported_weights_are_not_changed(data, trained, tmp_path):
    imported = first_weights(data, tmp_path, init_checkpoint=trained, **STARTS)
    for name, value in read_weights(trained).items():
        np.testing.assert_array_equal(imported[name], value, err_msg=name)


def test_unknown_starts_are_refused():
    for name in STARTS:
        with pytest.raises(UserError, match=f"{name}: 'random' is not one of"):
            tiny_run.settings(**{name: "random"})
