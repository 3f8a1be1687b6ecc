"""Tests that the order of the data depends on the seed only, and that every record is used."""

import collections
import json

import numpy as np
import pytest
import replicas
import tensorflow as tf
import tiny_run

from albert_tf.errors import UserError
from albert_tf.records import features, input_pipeline, manifest

SIZES = {"train-0.tfrecord": 7, "train-1.tfrecord": 5, "train-2.tfrecord": 11}
VOCABULARY = {"size": 61, "sha256": "x"}
SPEC = features.pretraining(tiny_run.SEQUENCE, tiny_run.PREDICTIONS)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tiny_run.write_records(
        str(tmp_path_factory.mktemp("records")), SIZES, vocabulary_sha256="x"
    )
    return [f"{folder}/{name}" for name in SIZES]


def first(paths, number, *, position=0, seed=3, batch_size=6):
    batches = input_pipeline.train_batches(
        paths, batch_size=batch_size, seed=seed, shuffle_buffer_size=4, position=position
    )
    return [batch.numpy().tolist() for batch in batches.take(number)]


def test_every_pass_has_every_record_once(paths):
    # 23 records, batches of 23: one pass each.
    one, two, three = (collections.Counter(b) for b in first(paths, 3, batch_size=23))
    assert one == two == three
    assert len(one) == 23


def test_passes_and_seeds_have_other_orders(paths):
    one, two = first(paths, 2, batch_size=23)
    assert one != two
    assert first(paths, 1, batch_size=23, seed=4)[0] != one


@pytest.mark.parametrize("position", [1, 3, 4, 9])
def test_a_position_is_reached_by_skipping(paths, position):
    assert first(paths, 2, position=position) == first(paths, position + 2)[position:]


def test_replicas_share_a_batch_in_order(paths):
    def batches():
        return input_pipeline.train_batches(
            paths, batch_size=6, seed=3, shuffle_buffer_size=4, position=0
        )

    one = next(iter(input_pipeline.distribute(tf.distribute.get_strategy(), batches, SPEC)))
    two_replicas = replicas.two_replicas()
    shared = next(iter(input_pipeline.distribute(two_replicas, batches, SPEC)))
    for name, whole in one.items():
        parts = two_replicas.experimental_local_results(shared[name])
        assert [part.shape[0] for part in parts] == [3, 3]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        assert whole.dtype in (tf.int32, tf.float32)


def test_each_worker_parses_its_own_rows(paths):
    seen = {}

    class TwoWorkers:
        num_replicas_in_sync = 2

        def distribute_datasets_from_function(self, make_batches):
            for worker in (0, 1):
                context = tf.distribute.InputContext(2, worker, 2)
                seen[worker] = next(iter(make_batches(context)))

    def batches():
        return input_pipeline.eval_batches(paths, batch_size=6, max_examples=0)

    input_pipeline.distribute(TwoWorkers(), batches, SPEC)
    raw, _ = next(iter(batches()))
    whole = features.parse(raw, SPEC)
    for name, tensor in whole.items():
        np.testing.assert_array_equal(np.concatenate([seen[0][name], seen[1][name]]), tensor)


@pytest.mark.parametrize("limit", [0, 10])
def test_evaluation_has_every_record_once_and_marks_copies(paths, limit):
    batches = list(input_pipeline.eval_batches(paths, batch_size=5, max_examples=limit))
    assert all(raw.shape == [5] for raw, _ in batches)
    real = [r for raw, is_real in batches for r, i in zip(raw.numpy(), is_real, strict=True) if i]
    assert len(real) == len(set(real)) == (limit or 23)


def test_gzip_is_known_by_its_name(tmp_path, paths):
    folder = str(tmp_path)
    packed = f"{folder}/train-0.tfrecord.gz"
    with tf.io.TFRecordWriter(packed, options="GZIP") as writer:
        for record in tf.data.TFRecordDataset(paths[0]):
            writer.write(record.numpy())
    manifest.write(
        folder, {"files": {"train-0.tfrecord.gz": 7}, "settings": {}, "vocabulary": VOCABULARY}
    )
    plain, _ = next(iter(input_pipeline.eval_batches(paths[:1], batch_size=7, max_examples=0)))
    same, _ = next(iter(input_pipeline.eval_batches([packed], batch_size=7, max_examples=0)))
    np.testing.assert_array_equal(plain, same)
    with pytest.raises(UserError, match=r"with and without \.gz"):
        input_pipeline.eval_batches([packed, paths[0]], batch_size=7, max_examples=0)


def test_empty_files_are_refused(paths, tmp_path):
    tiny_run.write_records(str(tmp_path), {"a": 0}, vocabulary_sha256="x")
    with pytest.raises(UserError, match="are empty"):
        first([f"{tmp_path}/a"], 1)


def test_the_corrupt_file_is_found(tmp_path):
    folder = tiny_run.write_records(str(tmp_path), SIZES, vocabulary_sha256="x")
    bad = tmp_path / "train-1.tfrecord"
    bad.write_bytes(bad.read_bytes()[:-20])
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "bytes": {}}))
    paths = [f"{folder}/{name}" for name in SIZES]
    with pytest.raises(tf.errors.DataLossError) as caught:
        list(input_pipeline.eval_batches(paths, batch_size=5, max_examples=0))
    error = input_pipeline.corrupt_error(paths, caught.value)
    assert str(bad) in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("counted", [4, 6])
@pytest.mark.parametrize("is_training", [True, False])
def test_a_wrong_count_is_noticed_at_the_end_of_a_pass(tmp_path, counted, is_training):
    folder = tiny_run.write_records(str(tmp_path), SIZES, vocabulary_sha256="x")
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text())
    content["files"]["train-1.tfrecord"] = counted
    path.write_text(json.dumps(content))
    paths = [f"{folder}/{name}" for name in SIZES]
    with pytest.raises(input_pipeline.DAMAGED) as caught:
        if is_training:
            first(paths, 5)
        list(input_pipeline.eval_batches(paths, batch_size=5, max_examples=0))
    assert str(input_pipeline.corrupt_error(paths, caught.value)).startswith(
        f"{paths[1]} is truncated or corrupt (5 examples where its manifest.json says {counted}). "
    )


def test_an_error_that_is_not_of_records_stays_itself(paths):
    error = tf.errors.FailedPreconditionError(None, None, "run/best is a folder")
    assert input_pipeline.corrupt_error(paths, error) is error
