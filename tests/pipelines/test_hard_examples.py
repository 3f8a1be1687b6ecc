"""Masks that follow what the model predicts badly."""

import dataclasses

import numpy as np
import pytest
import replicas
import tensorflow as tf
import tiny_run

from albert_tf.errors import UserError
from albert_tf.objectives import adaptive_masking
from albert_tf.pipelines import pretraining_records
from albert_tf.records import features, input_pipeline, manifest
from albert_tf.tokenizers import tokenization

pytestmark = pytest.mark.usefixtures("eagerly")
ADAPTIVE = tiny_run.settings(adaptive_masking=2, num_train_steps=6)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_run.write_online_data(tmp_path_factory.mktemp("data"))


def read_difficulty(folder, prefix=None):
    tensors = tiny_run.all_tensors(folder, prefix)
    return tensors["difficulty/.ATTRIBUTES/VARIABLE_VALUE"]


def mask(data, difficulty, passes):
    """Masks all records to train on in several passes; returns the pieces and where masks are."""
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    tokenizer = tokenization.load(f"{data}/{manifest.VOCABULARY}")
    masking = pretraining_records.make_masking(tiny_run.settings(), paths, tokenizer)
    masking = dataclasses.replace(masking, difficulty=difficulty, ngram=1)
    raw = next(iter(input_pipeline.read(paths).batch(37)))
    batches = [masking.read(raw, tf.fill([37, 2], tf.constant(x, tf.int64))) for x in passes]
    return [{name: x.numpy() for name, x in batch.items()} for batch in batches]


def test_equal_chances_mask_as_no_chances_and_the_chance_follows_the_difficulty(data):
    number = tiny_run.VOCAB
    equal = mask(data, np.full(number, 1.0, np.float32), [0])[0]
    for name, value in mask(data, None, [0])[0].items():
        np.testing.assert_array_equal(equal[name], value, err_msg=name)
    is_hard = np.arange(number) % 2 == 1
    shares = []
    for difficulty in (np.ones(number), np.where(is_hard, 1.0, 0.2)):
        batches = mask(data, difficulty.astype(np.float32), range(40))
        labels = np.concatenate([x[features.MASKED_LM_IDS] for x in batches])
        weights = np.concatenate([x[features.MASKED_LM_WEIGHTS] for x in batches])
        shares.append((is_hard[labels] * weights).sum() / weights.sum())
        numbers = weights.sum()
    assert numbers == sum(x[features.MASKED_LM_WEIGHTS].sum() for x in mask(data, None, range(40)))
    odds = [share / (1 - share) for share in shares]
    assert 2.5 < odds[1] / odds[0] < 5.5  # 5 for the first mask of a text, less for the next


def test_the_mean_of_a_piece_follows_how_badly_it_is_predicted():
    logits = np.log(np.array([[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]], np.float32))
    batch = {
        features.INPUT_IDS: tf.zeros([1, 3], tf.int32),
        features.MASKED_LM_IDS: tf.constant([[0, 0, 2]]),
        features.MASKED_LM_WEIGHTS: tf.constant([[1.0, 1.0, 0.0]]),
    }
    observed = adaptive_masking.observe({"masked_lm_logits": tf.constant(logits)}, batch)
    np.testing.assert_allclose(observed, [[0.3 + 0.9, 0, 0], [2, 0, 0]], rtol=1e-6)
    before = tf.constant([[1.0, 0.5, 0.4], [0.1, 0.2, 0.3]])
    after = adaptive_masking.follow(before, observed)
    mean = 1 + (1 - 0.98**2) * (0.6 - 1)
    np.testing.assert_allclose(after, [[mean, 0.5, 0.4], [0.1, 0.2, 0.3]], rtol=1e-6)
    np.testing.assert_allclose(adaptive_masking.adapt(after), [[mean, 0.5, 0.4]] * 2, rtol=1e-6)


def test_a_run_with_adaptive_masks_resumes_to_the_bit(data, tmp_path):
    tiny_run.run(data, tmp_path / "unbroken", ADAPTIVE, evaluate=True)
    for stop in (3, 4, 0):  # within a period, and at the end of one
        part = dataclasses.replace(ADAPTIVE, stop_at_step=stop)
        tiny_run.run(data, tmp_path / "run", part)
    expected, actual = (tiny_run.all_tensors(tmp_path / x) for x in ("unbroken", "run"))
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    now, followed = read_difficulty(tmp_path / "run")
    np.testing.assert_array_equal(now, followed)  # 6 is the end of a period
    assert now.min() < 1 == now[0]
    plain = tmp_path / "plain"
    tiny_run.run(data, plain, tiny_run.settings(num_train_steps=1), evaluate=True)
    runs = (tmp_path / "unbroken", plain)
    numbers = [tiny_run.metrics(x)[-1]["eval_num_masked_lm"] for x in runs]
    assert numbers[0] == numbers[1]
    with pytest.raises(UserError, match=r"adaptive_masking=2, the config has 0"):
        tiny_run.run(
            data, tmp_path / "on", tiny_run.settings(), continue_from=str(tmp_path / "run")
        )


def test_replicas_adapt_the_same_masks(data, tmp_path, use_graphs):
    config = dataclasses.replace(ADAPTIVE, num_train_steps=4)
    tiny_run.run(data, tmp_path / "one", config)
    use_graphs()
    tiny_run.run(data, tmp_path / "two", config, strategy=replicas.two_replicas())
    expected, actual = (tiny_run.all_tensors(tmp_path / x) for x in ("one", "two"))
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, atol=1e-5, err_msg=name)


def test_mistakes(data, tmp_path):
    static = tiny_run.write_data(tmp_path / "static", like=data)
    with pytest.raises(UserError, match=r"adaptive_masking needs records that hold no masks"):
        tiny_run.run(static, tmp_path / "run", ADAPTIVE)
