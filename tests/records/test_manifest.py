"""Tests that manifests are written, read and compared."""

import json
import os

import pytest

from albert_tf.errors import UserError
from albert_tf.records import manifest

CONTENT = {
    "settings": {"sentence_task": "sop", "max_seq_length": 7, "max_predictions_per_seq": 5},
    "vocabulary": {"size": 11, "sha256": "ab"},
    "files": {"train-0.tfrecord": 3, "train-1.tfrecord": 4},
    "statistics": {"documents": 2},
}


@pytest.fixture
def folder(tmp_path):
    manifest.write(str(tmp_path), CONTENT)
    return str(tmp_path)


def in_folder(folder, *names):
    return [os.path.join(folder, name) for name in names]


def test_a_manifest_is_read_as_it_was_written(folder):
    assert manifest.read(folder) == {"format": 1, **CONTENT}
    assert os.listdir(folder) == ["manifest.json"]


def test_examples_of_files_in_their_order(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    manifest.write(str(other), {**CONTENT, "files": {"train-0.tfrecord": 9}})
    first, second = in_folder(folder, "train-1.tfrecord", "train-0.tfrecord")
    [third] = in_folder(str(other), "train-0.tfrecord")
    assert manifest.count_examples([first, third, second]) == [4, 9, 3]
    assert manifest.read_all([first, third, second]) == {
        folder: manifest.read(folder),
        str(other): manifest.read(str(other)),
    }


def test_records_in_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert manifest.count_examples(["train-0.tfrecord"]) == [3]


def test_a_file_that_is_not_listed_is_refused(folder):
    [stray] = in_folder(folder, "train-2.tfrecord")
    with pytest.raises(UserError, match=r"train-2\.tfrecord is none of the record files"):
        manifest.count_examples([*in_folder(folder, "train-0.tfrecord"), stray])


def test_a_missing_manifest_means_unfinished_data(tmp_path):
    with pytest.raises(
        UserError, match=r"unfinished or not made here: there is no file '.*/manifest\.json'"
    ):
        manifest.read(str(tmp_path))


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_is_refused(tmp_path, version):
    (tmp_path / "manifest.json").write_text(json.dumps({**CONTENT, "format": version}))
    with pytest.raises(UserError, match="is not a manifest of format 1"):
        manifest.read(str(tmp_path))


def test_a_damaged_manifest_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": 1')
    with pytest.raises(UserError, match=r"manifest\.json' is not JSON"):
        manifest.read(str(tmp_path))


def test_settings_that_agree_pass(folder):
    expected = {**CONTENT["settings"], "vocab_size": 11}
    assert manifest.check(folder, manifest.read(folder), expected) is None
    assert manifest.check(folder, manifest.read(folder), {"max_seq_length": 7}) is None


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        ("sentence_task", "nsp", "sop"),
        ("max_seq_length", 8, 7),
        ("vocab_size", 12, 11),
        ("favorite", 1, None),
    ],
)
def test_settings_that_disagree_are_named_with_a_remedy(folder, field, value, stored):
    with pytest.raises(UserError) as error:
        manifest.check(folder, manifest.read(folder), {"max_predictions_per_seq": 5, field: value})
    assert str(error.value) == (
        f"{os.path.join(folder, 'manifest.json')}: the records have {field}={stored!r}, "
        f"the config has {value!r}. Create the records anew or change the config (--set)."
    )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"files": {"train-0.tfrecord": -3}}, "files"),
        ({"files": {"train-0.tfrecord": 2.5}}, "files"),
        ({"files": ["train-0.tfrecord"]}, "files"),
        ({"bytes": {"train-0.tfrecord": "9"}}, "bytes"),
        ({"settings": []}, "settings"),
        ({"files": None}, "files"),
        ({"vocabulary": None}, "vocabulary"),
        ({"vocabulary": "ab"}, "vocabulary"),
        ({"vocabulary": {"size": "11", "sha256": "ab"}}, "vocabulary"),
        ({"vocabulary": {"size": 11, "sha256": None}}, "vocabulary"),
    ],
)
def test_values_of_wrong_types_are_refused(folder, changes, key):
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        json.dump({"format": 1, **CONTENT, **changes}, file)
    with pytest.raises(UserError, match=f"manifest.json is damaged: '{key}' is wrong. Create"):
        manifest.read(folder)


@pytest.mark.parametrize("has_sizes", [True, False])
@pytest.mark.parametrize("length", [0, 47, 61])
def test_a_record_file_of_another_size_is_refused(tmp_path, length, has_sizes):
    path = tmp_path / "train-0.tfrecord"
    path.write_bytes(bytes(60))
    content = {**CONTENT, "files": {"train-0.tfrecord": 3}}
    if has_sizes:
        manifest.write(str(tmp_path), content)
    else:  # as others write it
        (tmp_path / "manifest.json").write_text(json.dumps({"format": 1, **content}))
    assert manifest.count_examples([str(path)]) == [3]
    path.write_bytes(bytes(length))
    if length < 48 or has_sizes:
        with pytest.raises(UserError, match=rf"has {length} bytes, .* cut short or damaged"):
            manifest.count_examples([str(path)])
