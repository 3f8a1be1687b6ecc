"""Runs on records that are masked while they are read."""

import dataclasses
import functools

import numpy as np
import pytest
import replicas
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf.pipelines import pretraining_evaluation, pretraining_records
from albert_tf.records import input_pipeline, manifest, online_masking
from albert_tf.tokenizers import tokenization
from albert_tf.train import run_data
from albert_tf.train.run_data import PhaseData
from albert_tf.train_config import Phase

pytestmark = pytest.mark.usefixtures("eagerly")
# 37 records, batches of 16: the third pass begins at step 5.
SETTINGS = tiny_run.settings(
    masked_lm_prob=0.2, final_masked_lm_prob=0.07, train_batch_size=16, num_train_steps=6
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_run.write_online_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def unbroken(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    tiny_run.run(data, folder, SETTINGS, evaluate=True)
    return folder


@functools.cache
def read_batches(data, number=10, strategy=None, position=0, **changes):
    """The first batches to train on, of all replicas."""
    strategy = strategy or tf.distribute.get_strategy()
    config = tiny_run.settings(**changes)
    state = tiny_run.train_state(strategy, **{"seed": 5, "num_train_steps": 12, **changes})
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    tokenizer = tokenization.load(f"{data}/{manifest.VOCABULARY}")
    masking = pretraining_records.make_masking(config, paths, tokenizer)
    phase = PhaseData(config, paths, masking=masking)
    batches = iter(run_data.distribute_batches(state, phase, position))
    taken = [next(batches) for _ in range(number)]
    local = strategy.experimental_local_results
    return [{name: np.concatenate(local(x)) for name, x in batch.items()} for batch in taken]


def assert_same(one, other):
    for expected, actual in zip(one, other, strict=True):
        for name, value in expected.items():
            np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_batches_are_those_of_the_config_on_any_number_of_replicas(data):
    whole = read_batches(data)[:5]
    assert whole[0]["input_ids"].shape == (8, tiny_run.SEQUENCE)
    assert whole[0]["masked_lm_ids"].shape == (8, tiny_run.PREDICTIONS)
    assert_same(whole, read_batches(data, 5, replicas.two_replicas()))
    assert_same(whole[3:], read_batches(data, 2, position=3))


def test_each_worker_masks_its_own_rows(data):
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    tokenizer = tokenization.load(f"{data}/{manifest.VOCABULARY}")
    masking = pretraining_records.make_masking(tiny_run.settings(), paths, tokenizer)

    def batches():
        return input_pipeline.train_batches(
            paths, batch_size=8, seed=5, shuffle_buffer_size=10, position=0
        )

    numbered = functools.partial(
        online_masking.number_rows, batches, position=0, step=0, num_records=37
    )
    workers = replicas.TwoWorkers()
    input_pipeline.distribute(workers, numbered, {}, masking=masking)
    assert_same(read_batches(data), workers.join(10))


def test_masks_do_not_depend_on_the_batch_and_change_with_the_pass(data):
    eights, ones = read_batches(data), read_batches(data, 80, train_batch_size=1)
    joined = [
        {name: np.concatenate([x[name] for x in batches]) for name in eights[0]}
        for batches in (eights, ones)
    ]
    assert_same(joined[:1], joined[1:])
    first, second = np.split(joined[0]["masked_lm_positions"][:74], 2)
    assert sorted(first.tolist()) != sorted(second.tolist())


def test_a_run_that_stops_goes_on_with_the_same_masks(data, unbroken, tmp_path):
    for stop in (4, 0):
        config = dataclasses.replace(SETTINGS, stop_at_step=stop)
        tiny_run.run(data, tmp_path / "run", config, evaluate=stop == 0)
    tiny_run.assert_same_end(unbroken, tmp_path / "run")


def test_evaluation_has_the_masks_of_the_records_whatever_the_run(data, unbroken):
    last = tiny_run.metrics(unbroken)[-1]
    result = pretraining_evaluation.evaluate(str(unbroken), [f"{data}/eval-*"])["sop"]
    for name in ("masked_lm_loss", "num_masked_lm"):
        assert result[name] == pytest.approx(last[f"eval_{name}"], rel=1e-6), name


def test_the_share_to_mask_falls_as_the_learning_rate_does(data):
    changes = {"max_predictions_per_seq": 7, "masked_lm_prob": 0.5, "final_masked_lm_prob": 0.1}
    batches = read_batches(data, 14, **changes)
    shares = [x["masked_lm_weights"].sum() / x["input_mask"].sum() for x in batches]
    assert shares[0] > 0.4
    assert shares[6] == pytest.approx(0.3, abs=0.05)
    assert shares[12] < 0.15
    assert all(x["masked_lm_weights"].shape == (8, 7) for x in batches)


def test_phases_may_mask_other_shares(data):
    config = tiny_run.settings(phases=(Phase(last_step=4, masked_lm_prob=0.2), Phase(last_step=12)))
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    one, other = pretraining_records.plan_phases(config, paths, None)
    assert (one.masking.masked_lm_prob, one.masking.final_masked_lm_prob) == (0.2, 0.2)
    assert (other.masking.masked_lm_prob, other.offset) == (0.15, 0)


def test_records_with_masks_may_be_evaluated_but_not_trained_on_in_other_shares(data, tmp_path):
    static = tiny_run.write_data(tmp_path / "static", like=data)
    files = [f"{folder}/train-*" for folder in (data, static)]
    with one_line(r"static hold masks already\. Unset it, or create records"):
        pretraining_records.read(SETTINGS, files[1:], [])
    with one_line(r"static differ in masking, ngram, .*same flags"):
        pretraining_records.read(tiny_run.settings(), files, [])
    config = tiny_run.settings(num_train_steps=2)
    tiny_run.run_files(files[:1], [f"{static}/eval-*"], tmp_path / "run", config)
    assert "eval_masked_lm_loss" in tiny_run.metrics(tmp_path / "run")[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"masked_lm_prob": 0.0}, "masked_lm_prob must be more than 0"),
        ({"final_masked_lm_prob": 0.1}, "final_masked_lm_prob needs masked_lm_prob"),
        ({"masked_lm_prob": 0.5}, "0.5 of 14 tokens are 7, more than max_predictions_per_seq 3"),
    ],
)
def test_shares_that_do_not_fit_are_refused(changes, message):
    with one_line(message):
        tiny_run.settings(**changes)
