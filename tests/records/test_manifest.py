"""Tests that manifests are written, read and compared."""

import json
import os

import pytest
from refusals import one_line

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


def test_a_manifest_is_read_as_it_was_written(folder, monkeypatch):
    assert manifest.read(folder) == {"format": 1, **CONTENT}
    assert os.listdir(folder) == ["manifest.json"]
    expected = {**CONTENT["settings"], "vocab_size": 11}
    assert manifest.check(folder, manifest.read(folder), expected) is None
    monkeypatch.chdir(folder)  # a file has no folder in its name
    assert manifest.count_examples(["train-0.tfrecord"]) == [3]


def test_examples_of_files_in_their_order(folder, tmp_path):
    other = str(tmp_path / "other")
    os.mkdir(other)
    manifest.write(other, {**CONTENT, "files": {"train-0.tfrecord": 9}})
    paths = [f"{x}/train-{k}.tfrecord" for x, k in ((folder, 1), (other, 0), (folder, 0))]
    assert manifest.count_examples(paths) == [4, 9, 3]
    assert manifest.read_all(paths) == {x: manifest.read(x) for x in (folder, other)}


def read(folder, content):
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        file.write(content)
    manifest.read(folder)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda x: manifest.count_examples([f"{x}/train-2"]),
            "train-2 is not one of the record fil",
        ),
        (
            lambda x: manifest.read(f"{x}/no"),
            "there are no complete records in",
        ),
        (lambda x: read(x, json.dumps({**CONTENT, "format": 2})), r"value 2 - at `\$\.format`"),
        (lambda x: read(x, '{"format": 1'), r"manifest\.json' is not JSON"),
        (
            lambda x: manifest.check_pretraining(x, {"settings": {"task": "mrpc"}}),
            "does not describe pre-training records",
        ),
        (
            lambda x: manifest.check(x, manifest.read(x), {"max_seq_length": 7, "vocab_size": 12}),
            "the records have vocab_size=11, the config has 12. Create the records again or change",
        ),
        (
            lambda x: manifest.check(x, manifest.read(x), {"sentence_task": "nsp"}),
            "the records have sentence_task='sop', the config has 'nsp'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(folder, use, message):
    with one_line(message):
        use(folder)


def test_a_record_file_of_another_size_is_refused(tmp_path):
    path = tmp_path / "train-0.tfrecord"
    path.write_bytes(bytes(60))
    manifest.write(str(tmp_path), {**CONTENT, "files": {"train-0.tfrecord": 3}})
    assert manifest.count_examples([str(path)]) == [3]
    path.write_bytes(bytes(61))
    with one_line(r"has 61 bytes, .* 60 bytes\): it is cut short or damaged"):
        manifest.count_examples([str(path)])
