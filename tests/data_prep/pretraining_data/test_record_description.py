"""Records of another program get a manifest, or a line that says why not."""

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.records import manifest

PROGRAM = Path(__file__).parents[3] / "bin" / "data describe_records"


@pytest.fixture
def foreign(create):
    """Records without their manifest and vocabulary; the manifest."""
    folder = create(eval_fraction=0.3)
    content = json.loads((folder / "manifest.json").read_text())
    shutil.rmtree(folder / "vocabulary")
    for path in folder.glob("*.json"):
        path.unlink()
    return folder, content


@pytest.fixture
def describe(run_program, vocabulary_dir):
    return lambda folder, vocabulary=vocabulary_dir: run_program(
        PROGRAM, f"--record_files={folder}/*.tfrecord", f"--vocabulary={vocabulary}"
    )


def test_the_manifest_is_that_of_our_own_records(foreign, describe):
    folder, content = foreign
    for path in folder.glob("*.tfrecord"):  # masks need no boundaries of words
        rewrite(path, lambda x: x.pop("token_boundary"), first=0)
    assert not describe(folder)
    actual = manifest.read(str(folder))
    for field in ("vocabulary", "files"):
        assert actual[field] == content[field]
    assert actual["settings"].items() <= content["settings"].items()
    assert not manifest.describe_oddities(actual)
    assert "sha256.json" in {path.name for path in (folder / "vocabulary").iterdir()}
    assert "manifest.json is there already" in describe(folder)


def test_records_without_masks_are_masked_as_in_the_paper(create, describe, capsys):
    folder = create(masking="online")
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").unlink()
    assert not describe(folder)
    assert "draws those of n-grams of up to 3 words, 15% of the tokens" in capsys.readouterr().err
    actual = manifest.read(str(folder))
    assert actual["files"] == content["files"]
    assert actual["settings"].items() <= content["settings"].items()
    assert manifest.is_online(actual)


def rewrite(path, change, first=-1):
    """Changes the features of the last example, or of all from `first` on."""
    examples = [
        tf.train.Example.FromString(raw.numpy()) for raw in tf.data.TFRecordDataset(str(path))
    ]
    for example in examples[first:]:
        change(example.features.feature)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            writer.write(example.SerializeToString())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.pop("segment_ids"), "segment_ids"),
        (lambda x: x["input_ids"].int64_list.value.append(1), "input_ids"),
        (lambda x: x["input_ids"].int64_list.value.__setitem__(3, 211), "from 0 to 210"),
    ],
)
def test_a_record_unlike_the_others_is_refused(foreign, describe, change, message):
    folder, _ = foreign
    rewrite(max(folder.glob("train-*")), change)
    error = describe(folder)
    assert message in error
    assert "\n" not in error
    assert not (folder / "manifest.json").exists()
    assert not (folder / "vocabulary").exists()


@pytest.mark.parametrize("content", [b"", b"no records at all"])
def test_a_file_without_records(tmp_path, describe, content):
    (tmp_path / "a.tfrecord").write_bytes(content)
    assert "a.tfrecord holds no records" in describe(tmp_path)


GARDEN = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@pytest.mark.parametrize(
    ("masking", "renamed", "message"),
    [
        ("static", GARDEN, "no input_ids, segment_ids, only input_mask, input_type_ids, "),
        ("online", {"token_boundary": "starts"}, "no token_boundary, only input_ids, "),
    ],
)
def test_a_missing_feature_is_named(create, describe, masking, renamed, message):
    folder = create(masking=masking, dupe_factor=1)
    (folder / "manifest.json").unlink()

    def rename(features):
        for old, new in renamed.items():
            features[new].CopyFrom(features.pop(old))

    for path in folder.glob("*.tfrecord"):
        rewrite(path, rename, first=0)
    error = describe(folder)
    assert f"its records have {message}" in error
    assert "\n" not in error
    assert not (folder / "manifest.json").exists()


def set_values(name, value):
    def change(feature):
        values = feature[name].int64_list.value
        values[:] = [value if x in (0, 1, 2, 3) else x for x in values]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_values("input_ids", 20), "{0} of {0} records lack [CLS] at the beginning, or [SEP]"),
        (set_values("segment_ids", 0), "{0} pairs have the segment id 0 alone"),
        (set_values("next_sentence_labels", 1), "all next_sentence_labels are 1: nothing is"),
    ],
)
def test_what_no_program_of_ours_writes_is_counted(foreign, describe, capsys, change, message):
    folder, content = foreign
    for path in folder.glob("*.tfrecord"):
        rewrite(path, change, first=0)
    assert not describe(folder)
    message = message.format(sum(content["files"].values()))
    assert message in manifest.describe_oddities(manifest.read(str(folder)))
    assert message in capsys.readouterr().err
