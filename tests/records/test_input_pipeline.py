"""Tests that the order of the data depends on the seed only, and that every record is used."""

import collections
import functools
from pathlib import Path

import numpy as np
import pytest
import replicas
import sealed_files
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf.kinds import task_table
from albert_tf.records import features, input_pipeline, manifest

SIZES = {"train-0.tfrecord": 7, "train-1.tfrecord": 5, "train-2.tfrecord": 11}
SPEC = features.pretraining(tiny_run.SEQUENCE, tiny_run.PREDICTIONS)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write(tmp_path_factory.mktemp("records"))


def write(folder, sizes=SIZES):
    """Writes files of so many records; returns their paths."""
    tiny_run.write_records(str(folder), sizes, vocabulary_sha256="x")
    return [f"{folder}/{name}" for name in sizes]


def first(paths, number, *, position=0, seed=3, batch_size=6):
    batches = input_pipeline.train_batches(
        paths, batch_size=batch_size, seed=seed, shuffle_buffer_size=4, position=position
    )
    return [batch.numpy().tolist() for batch in batches.take(number)]


def test_every_pass_has_every_record_once(paths):
    # 23 records, batches of 23: one pass each.
    one, two = first(paths, 2, batch_size=23)
    assert collections.Counter(one) == collections.Counter(two)
    assert len(set(one)) == 23
    assert one != two
    assert first(paths, 1, batch_size=23, seed=4)[0] != one
    # A position is reached by skipping.
    assert first(paths, 2, position=9) == first(paths, 11)[9:]


def test_groups_of_files_before_a_position_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(input_pipeline, "_CYCLE", 2)
    sizes = {f"train-{k}.tfrecord": 3 + k % 2 for k in range(6)}  # 21 records in three groups
    paths = write(tmp_path, sizes)
    two_passes = first(paths, 42, batch_size=1)
    for position in (7, 20):
        expected = two_passes[position : position + 22]
        assert first(paths, 22, position=position, batch_size=1) == expected
    whole_group = [content for [content] in two_passes[:21]]
    before = set(whole_group[:6])  # a group has at least as many
    for path in map(Path, paths):
        if before & {r.numpy() for r in tf.data.TFRecordDataset(str(path))}:
            path.write_bytes(b"\xff" * path.stat().st_size)
    assert first(paths, 13, position=8, batch_size=1) == [[x] for x in whole_group[8:]]
    with pytest.raises(tf.errors.DataLossError):
        first(paths, 1, batch_size=1)


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
    def batches():
        return input_pipeline.eval_batches(paths, batch_size=6, max_examples=0)

    workers = replicas.TwoWorkers()
    input_pipeline.distribute(workers, batches, SPEC)
    raw, _ = next(iter(batches()))
    [joined] = workers.join(1)
    for name, tensor in features.parse(raw, SPEC).items():
        np.testing.assert_array_equal(joined[name], tensor)


@pytest.mark.parametrize("limit", [0, 10])
def test_evaluation_has_every_record_once_and_marks_copies(paths, limit):
    batches = list(input_pipeline.eval_batches(paths, batch_size=5, max_examples=limit))
    assert all(raw.shape == [5] for raw, _ in batches)
    real = [r for raw, is_real in batches for r, i in zip(raw.numpy(), is_real, strict=True) if i]
    assert len(real) == len(set(real)) == (limit or 23)


def test_gzip_is_known_by_its_name(tmp_path, paths):
    packed = f"{tmp_path}/train-0.tfrecord.gz"
    with tf.io.TFRecordWriter(packed, options="GZIP") as writer:
        for record in tf.data.TFRecordDataset(paths[0]):
            writer.write(record.numpy())
    write_manifest(tmp_path, "train-0.tfrecord.gz", 7)
    read = functools.partial(input_pipeline.eval_batches, batch_size=7, max_examples=0)
    [[plain, _], [same, _]] = (next(iter(read([path]))) for path in (paths[0], packed))
    np.testing.assert_array_equal(plain, same)
    with one_line(r"with and without \.gz"):
        read([packed, paths[0]])


def write_manifest(folder, name, size):
    content = {"files": {name: size}, "settings": {}, "vocabulary": {"size": 61, "sha256": "x"}}
    manifest.write(str(folder), content)


def cut(folder):
    bad = folder / "train-1.tfrecord"
    bad.write_bytes(bad.read_bytes()[:-20])


def miscount(number):
    def change(folder):
        content = sealed_files.read(folder / "manifest.json")
        content["files"]["train-1.tfrecord"] = number
        sealed_files.write(folder / "manifest.json", content)

    return change


@pytest.mark.parametrize(
    ("damage", "is_training", "message"),
    [
        (cut, False, "is truncated or corrupt ("),
        (miscount(4), True, "is truncated or corrupt (5 examples where its manifest.json says 4)"),
        (miscount(6), False, "is truncated or corrupt (5 examples where its manifest.json says 6)"),
    ],
)
def test_a_damaged_file_is_found(tmp_path, monkeypatch, damage, is_training, message):
    paths = write(tmp_path)
    damage(tmp_path)
    monkeypatch.setattr(manifest, "check_size", lambda *_: None)  # as without sizes
    with pytest.raises(input_pipeline.DAMAGED) as caught:
        if is_training:
            first(paths, 5)
        else:
            list(input_pipeline.eval_batches(paths, batch_size=5, max_examples=0))
    error = input_pipeline.corrupt_error(paths, caught.value)
    assert str(error).startswith(f"{paths[1]} {message}")
    assert "\n" not in str(error)


def test_other_errors_of_records(paths, tmp_path):
    error = tf.errors.FailedPreconditionError(None, None, "run/best is a folder")
    assert input_pipeline.corrupt_error(paths, error) is error
    unsound = tf.errors.InvalidArgumentError(None, None, f"{features.UNSOUND} padding first\nat x")
    assert str(input_pipeline.corrupt_error(paths, unsound)).startswith(
        f"a record file is truncated or corrupt ({features.UNSOUND} padding first)"
    )
    with one_line("are empty"):
        first(write(tmp_path, {"a": 0}), 1)


TOKENS = task_table.KINDS["classification"].data.make_features(20)
LENGTHS = [3, 20, 7, 9, 16, 4, 4, 12, 20, 5, 11, 2, 8]


def write_texts(folder, lengths=LENGTHS):
    """A record for each length, in which the ids tell its place; every other one is padded."""
    with tf.io.TFRecordWriter(f"{folder}/texts") as writer:
        for place, length in enumerate(lengths):
            width = 20 if place % 2 else length
            mask = [int(i < length) for i in range(width)]
            values = {"input_ids": [place] * width, "input_mask": mask, "segment_ids": [0] * width}
            writer.write(features.to_example({**values, "label_ids": [1]}))
    write_manifest(folder, "texts", len(lengths))
    return f"{folder}/texts"


def grouped(path, number, *, position=0, batch_size=2):
    options = {"seed": 3, "shuffle_buffer_size": 100, "group_by_length": TOKENS}
    batches = input_pipeline.train_batches(
        [path], batch_size=batch_size, position=position, **options
    )
    return [features.parse(raw, TOKENS) for raw in batches.take(number)]


def test_batches_are_of_like_lengths_and_a_pass_has_every_record_once(tmp_path):
    path = write_texts(tmp_path)
    batches = grouped(path, 13)  # two passes of 13 records
    counts = collections.Counter(int(place) for x in batches for place in x["input_ids"][:, 0])
    assert counts == dict.fromkeys(range(13), 2)
    lengths = [x["input_mask"].numpy().sum(axis=1) for x in batches]
    spread = sum(np.ptp(LENGTHS[i : i + 2]) for i in range(0, 12, 2))
    assert sum(np.ptp(pair) for pair in lengths) < spread
    # The batches of a window are not in the order of their lengths.
    firsts = [pair[0] for pair in lengths[:6]]
    assert firsts != sorted(firsts)


def test_a_set_smaller_than_a_batch_fills_it_with_the_next_pass(tmp_path):
    for batch in grouped(write_texts(tmp_path), 2, batch_size=26):
        counts = collections.Counter(batch["input_ids"][:, 0].numpy().tolist())
        assert counts == dict.fromkeys(range(13), 2)


def test_a_position_among_grouped_batches_is_reached_by_skipping(tmp_path, position=8):
    path = write_texts(tmp_path)
    expected = grouped(path, position + 3)[position:]
    for batch, same in zip(grouped(path, 3, position=position), expected, strict=True):
        np.testing.assert_array_equal(batch["input_ids"], same["input_ids"])


def evaluate_sorted(path, *, divisor=2, fills=False, strategy=None, static_shapes=False):
    buckets = [8, 16, 20]
    batches, order = input_pipeline.sorted_eval_batches(
        path, TOKENS, max_tokens=48, buckets=buckets, divisor=divisor, fills=fills
    )
    strategy = strategy or tf.distribute.get_strategy()
    distributed = input_pipeline.distribute(
        strategy, lambda: batches, TOKENS, buckets=buckets, static_shapes=static_shapes
    )
    return list(distributed), order


@pytest.mark.parametrize("fills", [True, False])
def test_an_evaluation_has_every_record_once_by_length(tmp_path, fills):
    batches, order = evaluate_sorted(write_texts(tmp_path), fills=fills)
    shapes = [batch["input_ids"].shape.as_list() for batch in batches]
    last = [6, 8] if fills else [2, 8]
    assert shapes == [[2, 20], [2, 16], [2, 16], [6, 8], last]
    real = [x["input_ids"][:, 0][x["is_real_example"] > 0].numpy() for x in batches]
    expected = sorted(range(13), key=lambda place: -LENGTHS[place])
    assert np.concatenate(real).tolist() == order.tolist() == expected
    for batch in batches:
        longest = batch["input_mask"].numpy().sum(axis=1)
        np.testing.assert_array_equal(longest, [LENGTHS[x] for x in batch["input_ids"][:, 0]])


def test_static_shapes_name_the_length_and_are_shortened_to_it(tmp_path):
    path = write_texts(tmp_path)
    static, _ = evaluate_sorted(path, static_shapes=True)
    for batch, expected in zip(static, evaluate_sorted(path)[0], strict=True):
        assert batch["input_ids"].shape[1] == 20
        shortened = features.shorten(batch, TOKENS, int(batch.pop("batch_length")))
        for name, value in expected.items():
            np.testing.assert_array_equal(shortened[name], value)
