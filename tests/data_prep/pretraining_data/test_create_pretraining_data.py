"""bin/create_pretraining_data: from a folder of text to a folder of records."""

import dataclasses
import gzip
import hashlib
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from refusals import one_line
from tiny_records import CORPUS, SMALL, TESTS, P, S

from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.records import features, manifest
from albert_tf.tokenizers import tokenization

DIGESTS = TESTS / "goldens" / "pretraining_records.json"
# Of each choice in the settings at least one, and of two inputs.
SORTS: dict[str, dict] = {
    "sop": {"eval_fraction": 0.3},
    "sop, several sources": {"shard_megabytes": 0.001, "gzip": True},
    "sop, as published": {"one_segment": "random", "short_seq_prob": 0.5},
    "nsp": {"sentence_task": "nsp", "ngram": 1},
    "nsp, other file": {"sentence_task": "nsp", "random_from": "other_file"},
    "nsp, same file": {"sentence_task": "nsp", "random_from": "same_file", "masking": "online"},
    "none": {"sentence_task": "none", "one_segment": "skip", "masked_lm_prob": 0.4},
    "online": {"masking": "online"},
    "sentences": {"masking": "online", "split_sentences": True, "dupe_factor": 1},
}


def read(path, compression="", lengths=(S, P)):
    dataset = tf.data.TFRecordDataset([str(path)], compression).batch(10_000)
    spec = features.pretraining(*lengths)
    spec["token_boundary"] = spec["segment_ids"]
    batch = features.parse(next(iter(dataset)), spec)
    return {name: value.numpy() for name, value in batch.items()}


def test_every_sort_of_records_is_as_it_was(create, long_text):
    """The records of a seed stay the same from version to version."""
    digests = {}
    for name, settings in SORTS.items():
        folder = create(name, inputs=[CORPUS, long_text], **settings)
        digest = hashlib.sha256()
        for path in sorted(folder.glob("*.tfrecord*")):
            content = path.read_bytes()
            digest.update(gzip.decompress(content) if path.suffix == ".gz" else content)
        digests[name] = digest.hexdigest()
    # To renew them, write `digests` there.
    assert digests == json.loads(DIGESTS.read_text())


def unmasked(batch):
    ids, is_used = batch["input_ids"].copy(), batch["masked_lm_weights"] > 0
    rows = np.nonzero(is_used)[0]
    ids[rows, batch["masked_lm_positions"][is_used]] = batch["masked_lm_ids"][is_used]
    return ids


def test_records_hold_the_text(create, vocabulary_dir):
    tokenizer = tokenization.load(vocabulary_dir)
    text = tokenizer.decode(tokenizer.encode(CORPUS.read_text()))
    shards = [read(path) for path in sorted(create().glob("train-*"))]
    assert len(shards) == 2
    assert shards[0]["input_ids"].tolist() != shards[1]["input_ids"].tolist()
    for batch in shards:
        rows = zip(unmasked(batch), batch["input_mask"], batch["segment_ids"], strict=True)
        for ids, mask, segments in rows:
            length = mask.sum()
            assert ids[0] == tokenizer.cls_id
            ends = [np.argmax(segments) - 1, length - 1]
            assert np.flatnonzero(ids == tokenizer.sep_id).tolist() == ends
            for segment in (0, 1):
                part = tokenizer.decode(ids[:length][segments[:length] == segment])
                assert part in text or part.strip() in text


def test_manifest(create, vocabulary_dir):
    directory = create(eval_fraction=0.3)
    written = manifest.read(str(directory))
    assert written["settings"] == dataclasses.asdict(dataclasses.replace(SMALL, eval_fraction=0.3))
    tokenizer = tokenization.load(vocabulary_dir)
    assert written["vocabulary"] == {"size": 211, "sha256": tokenizer.sha256}
    assert tokenization.load(str(directory / "vocabulary")).sha256 == tokenizer.sha256
    paths = [str(path) for path in sorted(directory.glob("*.tfrecord"))]
    names = ("eval-00000-000", "train-00000-000-00", "train-00000-000-01")
    assert paths == [f"{directory}/{name}.tfrecord" for name in names]
    assert manifest.count_examples(paths) == [len(read(path)["input_ids"]) for path in paths]
    statistics = written["statistics"]
    assert statistics["predictions_are_capped"] is False
    train, held_out = statistics["train"], statistics["eval"]
    assert train["documents"] + held_out["documents"] == 10
    assert train["sentences"] + held_out["sentences"] == 36
    assert train["documents_by_tokens"] == {"up to 4": 1, "up to 64": 1, "up to 128": 4}
    assert train["examples"] == sum(manifest.count_examples(paths[1:]))
    batches = [read(path) for path in paths[1:]]
    tokens = sum(batch["input_mask"].sum() for batch in batches)
    weights = sum(batch["masked_lm_weights"].sum() for batch in batches)
    assert train["mask_rate"] == pytest.approx(weights / tokens, abs=1e-6)
    assert train["mean_length"] == pytest.approx(tokens / train["examples"], abs=1e-6)
    shares = [train[f"{name}_share"] for name in ("masked", "kept", "replaced")]
    assert sum(shares) == pytest.approx(1, abs=1e-5)


def test_held_out_documents_are_not_trained_on(create, vocabulary_dir):
    tokenizer = tokenization.load(vocabulary_dir)

    def words(path):
        return set(tokenizer.decode(unmasked(read(path)).ravel()).split())

    directory = create(eval_fraction=0.3, dupe_factor=1, short_seq_prob=0.0)
    (train,), (held_out,) = directory.glob("train-*"), directory.glob("eval-*")
    # Words that occur in one document alone.
    rare = {"lighthouse", "dough", "valley", "ferry", "bronze", "train", "bees", "baker", "sailor"}
    assert words(train) & rare
    assert words(held_out) & rare
    assert not words(train) & words(held_out) & rare
    other_seed = create("other", eval_fraction=0.3, dupe_factor=1, short_seq_prob=0.0, seed=8)
    assert words(next(other_seed.glob("eval-*"))) & rare == words(held_out) & rare


def test_warns_of_the_cap(create, capsys):
    create(max_predictions_per_seq=3)
    message = "masks at most 6.2% of a full sequence; --max_predictions_per_seq=7"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"\n\n \n", {}, "has no text"),
        (b"One.\nTwo.", {"eval_fraction": 0.0001}, "no document fell into the eval split"),
        (b"One.\nTwo.", {"sentence_task": "nsp"}, "the train split has a single document"),
        (b"One.\nTwo.", {"one_segment": "random"}, "the train split has a single document"),
        (b"a", {}, "the train documents are too short to form an example"),
        # Cleaning leaves nothing of the second document.
        (b"One.\nTwo.\n\n\xcc\x81", {"sentence_task": "nsp"}, "the train split has a single doc"),
        (b"One.", {"sentence_task": "nsp", "random_from": "other_file"}, "pass more than one"),
    ],
)
def test_bad_text_leaves_nothing(create, tmp_path, content, changes, message):
    (tmp_path / "bad.txt").write_bytes(content)
    with one_line(message):
        create(inputs=[tmp_path / "bad.txt"], **changes)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 7}, "max_seq_length must be at least 8"),
        ({"max_predictions_per_seq": 49}, "49 is more than max_seq_length 48"),
        ({"masked_lm_prob": 1.0}, "masked_lm_prob must be below 1"),
        ({"sentence_task": "mlm"}, "sentence_task: 'mlm' is not one of sop, nsp, none"),
        ({"sentence_task": "none", "one_segment": "random"}, "one_segment=random needs"),
        ({"random_from": "other_file"}, "random_from=other_file needs sentence_task=nsp"),
        ({"language": "xx"}, "language: 'xx' is not a two-letter language code"),
        ({"masking": "online", "ngram": 17}, "ngram must be at most 16"),
        ({"shard_megabytes": math.nan}, r"shard_megabytes must be at least 0\.001"),
    ],
)
def test_bad_settings(changes, message):
    with one_line(message):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.parametrize("task", ["sop", "none"])
def test_online_records_hold_the_text_once_and_no_masks(create, vocabulary_dir, capsys, task):
    online = create("online", masking="online", dupe_factor=1, sentence_task=task)
    assert "masked in training" in capsys.readouterr().out
    static = create("static", dupe_factor=1, sentence_task=task)
    name = "train-00000-000-00.tfrecord"
    raw = tf.data.TFRecordDataset([str(online / name)]).batch(10_000).get_single_element()
    batch, masked = features.parse(raw, features.unmasked(S)), read(static / name)
    assert set(tf.train.Example.FromString(raw[0].numpy()).features.feature) == set(batch)
    # Pairs are drawn first, and so are those of the first records.
    own = [ids[ids >= 0].tolist() for ids in batch["input_ids"].numpy()]
    rows = zip(unmasked(masked), masked["input_mask"].sum(1), strict=True)
    assert own[:5] == [ids[:n].tolist() for ids, n in rows][:5]
    for feature in ("segment_ids", "token_boundary", "next_sentence_labels"):
        np.testing.assert_array_equal(batch[feature][:5], masked[feature][:5])
    written = manifest.read(str(online))
    assert manifest.is_online(written)
    assert not manifest.is_online(manifest.read(str(static)))
    assert "mask_rate" not in written["statistics"]["train"]
    assert (DataConfig().dupe_factor, DataConfig(masking="online").dupe_factor) == (40, 1)
    assert (online / name).stat().st_size < 0.7 * (static / name).stat().st_size


def test_the_order_of_files_decides_on_pairs_and_not_on_what_is_held_out(create, long_text):
    """As docs/prepare_text.md has it; the manifest lists the files in their order."""
    one, other = (
        json.loads((create(name, inputs, eval_fraction=0.3) / manifest.NAME).read_text())
        for name, inputs in (("a", (CORPUS, long_text)), ("b", (long_text, CORPUS)))
    )
    assert one["inputs"] == other["inputs"][::-1]
    for split in ("train", "eval"):
        first, second = one["statistics"][split], other["statistics"][split]
        assert first["tokens"] == second["tokens"]
        assert first["documents_by_tokens"] == second["documents_by_tokens"]
        assert first["examples"] != second["examples"]
