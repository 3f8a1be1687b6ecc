"""Records of another program get a manifest, or a line that says why not."""

import json
import shutil

import pytest
import tensorflow as tf
from refusals import one_line
from repository import ROOT

from albert_tf.data_prep.pretraining_data import record_description
from albert_tf.records import manifest

PROGRAM = ROOT / "bin/data describe_records"


@pytest.fixture
def foreign(create):
    def foreign(**settings):
        """Returns the folder of records without their manifest and vocabulary; the manifest."""
        folder = create(eval_fraction=0.3, **settings)
        content = json.loads((folder / "manifest.json").read_text())
        shutil.rmtree(folder / "vocabulary")
        for path in folder.glob("*.json"):
            path.unlink()
        return folder, content

    return foreign


def describe(folder, vocabulary_dir):
    return record_description.describe([f"{folder}/*.tfrecord"], vocabulary_dir, "sop")


def test_the_manifest_is_that_of_our_own_records(foreign, run_program, vocabulary_dir):
    folder, content = foreign()
    for path in folder.glob("*.tfrecord"):  # masks need no boundaries of words
        rewrite(path, lambda x: x.pop("token_boundary"), first=0)
    flags = f"--record_files={folder}/*.tfrecord", f"--vocabulary={vocabulary_dir}"
    assert not run_program(PROGRAM, *flags)
    actual = manifest.read(str(folder))
    for field in ("vocabulary", "files"):
        assert actual[field] == content[field]
    assert actual["settings"].items() <= content["settings"].items()
    assert not manifest.describe_oddities(actual)
    assert "sha256.json" in {path.name for path in (folder / "vocabulary").iterdir()}
    assert "manifest.json already exists" in run_program(PROGRAM, *flags)


def test_records_without_masks_are_masked_as_in_the_paper(foreign, vocabulary_dir, capsys):
    folder, content = foreign(masking="online")
    describe(folder, vocabulary_dir)
    assert "masks n-grams of up to 3 words, 15% of the tokens" in capsys.readouterr().err
    actual = manifest.read(str(folder))
    assert actual["files"] == content["files"]
    assert actual["settings"].items() <= content["settings"].items()
    assert manifest.is_online(actual)


def rewrite(path, change, first=-1):
    """Changes the features of the last example, or of all from `first` on."""
    content = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    examples = [*map(tf.train.Example.FromString, content)]
    for example in examples[first:]:
        change(example.features.feature)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            writer.write(example.SerializeToString())


def rename(names):
    def change(features):
        for old, new in names.items():
            features[new].CopyFrom(features.pop(old))

    return change


GARDEN = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
STARTS = {"token_boundary": "starts"}


@pytest.mark.parametrize(
    ("masking", "change", "first", "message"),
    [
        ("static", lambda x: x.pop("segment_ids"), -1, "segment_ids"),
        ("static", lambda x: x["input_ids"].int64_list.value.append(1), -1, "input_ids"),
        ("static", lambda x: x["input_ids"].int64_list.value.__setitem__(3, 211), -1, "0 to 210"),
        ("static", rename(GARDEN), 0, "no input_ids, segment_ids, only input_mask, input_type_ids"),
        ("online", rename(STARTS), 0, "no token_boundary, only input_ids, "),
    ],
)
def test_records_of_another_kind_are_refused(
    foreign, vocabulary_dir, masking, change, first, message
):
    folder, _ = foreign(masking=masking)
    paths = sorted(folder.glob("*.tfrecord"))
    for path in paths[first:]:
        rewrite(path, change, first)
    with one_line(message):
        describe(folder, vocabulary_dir)
    assert not list(folder.glob("*.json")) and not (folder / "vocabulary").exists()


@pytest.mark.parametrize("content", [b"", b"no records at all"])
def test_a_file_without_records(tmp_path, vocabulary_dir, content):
    (tmp_path / "a.tfrecord").write_bytes(content)
    with one_line(r"a.tfrecord holds no records"):
        describe(tmp_path, vocabulary_dir)


def set_values(name, value):
    def change(feature):
        values = feature[name].int64_list.value
        values[:] = [value if x in (0, 1, 2, 3) else x for x in values]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_values("input_ids", 20), "{0} of {0} records lack [CLS] at the start, or [SEP]"),
        (set_values("segment_ids", 0), "{0} pairs have only the segment id 0"),
        (
            set_values("next_sentence_labels", 1),
            "all next_sentence_labels are 1: a model learns nothing",
        ),
    ],
)
def test_what_no_program_of_ours_writes_is_counted(
    foreign, vocabulary_dir, capsys, change, message
):
    folder, content = foreign()
    for path in folder.glob("*.tfrecord"):
        rewrite(path, change, first=0)
    describe(folder, vocabulary_dir)
    message = message.format(sum(content["files"].values()))
    assert message in manifest.describe_oddities(manifest.read(str(folder)))
    assert message in capsys.readouterr().err
