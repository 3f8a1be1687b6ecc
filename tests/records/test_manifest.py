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


def read(folder, content):
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        file.write(content)
    manifest.read(folder)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: manifest.count_examples([f"{x}/train-2"]), "train-2 is none of the record fil"),
        (
            lambda x: manifest.read(f"{x}/no"),
            "unfinished or not made here: there is no file",
        ),
        (
            lambda x: read(x, json.dumps({**CONTENT, "format": 2})),
            r"Invalid enum value 2 - at `\$\.format`",
        ),
        (lambda x: read(x, '{"format": 1'), r"manifest\.json' is not JSON"),
        (
            lambda x: manifest.check_pretraining(x, {"settings": {"task": "mrpc"}}),
            "does not describe pre-training records",
        ),
        (
            lambda x: manifest.check(x, manifest.read(x), {"max_seq_length": 7, "vocab_size": 12}),
            "the records have vocab_size=11, the config has 12. Create the records anew or change",
        ),
        (
            lambda x: manifest.check(x, manifest.read(x), {"sentence_task": "nsp"}),
            "the records have sentence_task='sop', the config has 'nsp'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(folder, use, message):
    with pytest.raises(UserError, match=message):
        use(folder)


def test_settings_that_agree_pass(folder):
    expected = {**CONTENT["settings"], "vocab_size": 11}
    assert manifest.check(folder, manifest.read(folder), expected) is None


def test_a_record_file_of_another_size_is_refused(tmp_path):
    path = tmp_path / "train-0.tfrecord"
    path.write_bytes(bytes(60))
    manifest.write(str(tmp_path), {**CONTENT, "files": {"train-0.tfrecord": 3}})
    assert manifest.count_examples([str(path)]) == [3]
    path.write_bytes(bytes(61))
    with pytest.raises(UserError, match=r"has 61 bytes, .* 60 bytes\): it is cut short or damaged"):
        manifest.count_examples([str(path)])
