"""bin/create_pretraining_data: from a folder of text to a folder of records."""

import dataclasses
import math
import os

import numpy as np
import pytest
import tensorflow as tf
import tiny_records
from tiny_records import CORPUS, SMALL, TESTS, P, S, contents

from albert_tf.data_prep.pretraining_data import blocks, dataset
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.errors import UserError
from albert_tf.records import features, manifest
from albert_tf.tokenizers import tokenization

GOLDEN = TESTS / "goldens" / "pretraining_records.txt"


def read(path, compression="", lengths=(S, P)):
    dataset = tf.data.TFRecordDataset([str(path)], compression).batch(10_000)
    spec = features.pretraining(*lengths)
    spec["token_boundary"] = spec["segment_ids"]
    batch = features.parse(next(iter(dataset)), spec)
    return {name: value.numpy() for name, value in batch.items()}


def readable(batch, tokenizer):
    """A record a paragraph: label, what the model sees, what it has to say."""
    records = []
    for ids, length, positions, labels, weights, label in zip(
        batch["input_ids"],
        batch["input_mask"].sum(axis=1),
        batch["masked_lm_positions"],
        batch["masked_lm_ids"],
        batch["masked_lm_weights"],
        batch["next_sentence_labels"],
        strict=True,
    ):
        answers = [
            f"{position}={tokenizer.id_to_piece(piece)}"
            for position, piece, weight in zip(positions, labels, weights, strict=True)
            if weight
        ]
        seen = " ".join(tokenizer.id_to_piece(piece) for piece in ids[:length])
        records.append(f"label {label[0]}\n{seen}\n{' '.join(answers)}\n")
    return "\n".join(records)


def test_golden(create, vocabulary_dir):
    batch = read(create() / "train-00000-000-00.tfrecord")
    text = readable(
        {name: value[:6] for name, value in batch.items()}, tokenization.load(vocabulary_dir)
    )
    # To renew it, write `text` there.
    assert text == GOLDEN.read_text(encoding="utf-8")


def unmasked(batch):
    ids = batch["input_ids"].copy()
    for row, positions, labels, weights in zip(
        ids,
        batch["masked_lm_positions"],
        batch["masked_lm_ids"],
        batch["masked_lm_weights"].astype(bool),
        strict=True,
    ):
        row[positions[weights]] = labels[weights]
    return ids


def test_records_hold_the_text(create, vocabulary_dir):
    tokenizer = tokenization.load(vocabulary_dir)
    text = tokenizer.decode(tokenizer.encode(CORPUS.read_text()))
    directory = create()
    shards = [read(path) for path in sorted(directory.glob("train-*"))]
    assert len(shards) == 2
    assert shards[0]["input_ids"].tolist() != shards[1]["input_ids"].tolist()
    for batch in shards:
        for ids, mask, segments in zip(
            unmasked(batch), batch["input_mask"], batch["segment_ids"], strict=True
        ):
            length = mask.sum()
            assert ids[0] == tokenizer.cls_id
            assert np.flatnonzero(ids == tokenizer.sep_id).tolist() == [
                np.argmax(segments) - 1,
                length - 1,
            ]
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
    assert [os.path.basename(path) for path in paths] == [
        "eval-00000-000.tfrecord",
        "train-00000-000-00.tfrecord",
        "train-00000-000-01.tfrecord",
    ]
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
    assert train["masked_share"] + train["kept_share"] + train["replaced_share"] == pytest.approx(
        1, abs=1e-5
    )
    assert set(contents(directory)) >= {"manifest.json", "vocabulary/spiece.model"}


def test_a_share_of_the_tokens_that_is_not_that_of_the_documents_is_told(create, tmp_path, capsys):
    """Where a document falls depends on its text alone."""
    short = "\n\n".join(f"The ferry {n} leaves. It is late." for n in range(40))
    create("short", inputs=[CORPUS], eval_fraction=0.3)
    assert "of the tokens are held out" not in capsys.readouterr().err
    long = "\n".join(f"The museum {n} opens at nine." for n in range(200))
    texts = {}
    for number in range(99):
        text = f"Document {number}.\n{long}"
        texts.setdefault(blocks._choose_split(text.encode(), 0.1), text)
    for split, text in texts.items():
        path = tmp_path / f"{split}.txt"
        path.write_text(f"{short}\n\n{text}\n")
        folder = create(split, inputs=[path], eval_fraction=0.1)
        train, held_out = (
            manifest.read(str(folder))["statistics"][name]["tokens"] for name in ("train", "eval")
        )
        share = held_out / (train + held_out)
        assert share > 0.5 if split == "eval" else share < 0.05
        line = f"{share:.1%} of the tokens are held out, with --eval_fraction=0.1"
        assert line in capsys.readouterr().err


def test_gzip_holds_the_same(create):
    plain, packed = create("plain"), create("packed", gzip=True)
    for path in plain.glob("train-*"):
        other = packed / f"{path.name}.gz"
        assert other.stat().st_size < path.stat().st_size / 2
        for name, value in read(path).items():
            np.testing.assert_array_equal(value, read(other, "GZIP")[name])


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


@pytest.mark.parametrize("task", ["nsp", "none"])
def test_other_tasks(create, task):
    batch = read(create(sentence_task=task) / "train-00000-000-01.tfrecord")
    assert set(batch["next_sentence_labels"].ravel()) == ({0, 1} if task == "nsp" else {0})


def test_random_segments_of_another_file_are_none_of_the_own(create, vocabulary_dir, tmp_path):
    documents = CORPUS.read_text().split("\n\n")
    paths = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for path, part in zip(paths, (documents[:3], documents[3:]), strict=True):
        path.write_text("\n\n".join(part))
    tokenizer = tokenization.load(vocabulary_dir)
    texts = [tokenizer.decode(tokenizer.encode(path.read_text())) for path in paths]

    def count(directory):
        """Returns {(label, whether both segments are of one file)} of all records."""
        batch = read(directory / "train-00000-000-00.tfrecord")
        found = set()
        for ids, segments, mask, [label] in zip(
            unmasked(batch),
            *(batch[name] for name in ("segment_ids", "input_mask", "next_sentence_labels")),
            strict=True,
        ):
            first, second = (
                tokenizer.decode(ids[(mask == 1) & (segments == n)]).strip() for n in (0, 1)
            )
            found.add((label, any(first in text and second in text for text in texts)))
        return found

    options = {"inputs": paths, "sentence_task": "nsp"}
    assert count(create("other", random_from="other_file", **options)) == {(0, True), (1, False)}
    assert count(create("same", random_from="same_file", **options)) == {(0, True), (1, True)}
    with pytest.raises(UserError, match="draws from another file: name more than one"):
        create("lone", sentence_task="nsp", random_from="other_file")


def test_any_language(create, tmp_path):
    path = tmp_path / "mixed.txt"
    path.write_text(
        "한국어 문장.\n中文句子。\u2028还有。\n\nΕλληνικά κείμενο.\nעברית טקסט.\n", encoding="utf-8"
    )
    batch = read(create(inputs=[path]) / "train-00000-000-00.tfrecord")
    assert batch["input_mask"].sum() > 10


def test_paragraphs(create, tmp_path):
    path = tmp_path / "paragraphs.txt"
    path.write_text(CORPUS.read_text().replace("\n", " ").replace("  ", "\n\n"), encoding="utf-8")
    statistics = create(inputs=[path], split_sentences=True)
    assert manifest.read(str(statistics))["statistics"]["train"]["sentences"] == 36


def test_warns_of_the_cap(create, capsys):
    create(max_predictions_per_seq=3)
    assert (
        "masks at most 6.2% of a full sequence; --max_predictions_per_seq=7"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 7}, "max_seq_length must be at least 8"),
        (
            {"max_predictions_per_seq": 49},
            "max_predictions_per_seq 49 is more than max_seq_length 48",
        ),
        ({"max_predictions_per_seq": 0}, "max_predictions_per_seq must be at least 1"),
        ({"masked_lm_prob": 1.0}, r"masked_lm_prob must be in \[0, 1\)"),
        ({"eval_fraction": -0.1}, "eval_fraction must be at least 0"),
        ({"sentence_task": "mlm"}, "sentence_task: 'mlm' is not one of sop, nsp, none"),
        ({"one_segment": "keep"}, "one_segment: 'keep' is not one of split, skip, random"),
        ({"sentence_task": "none", "one_segment": "random"}, "one_segment=random needs"),
        ({"random_from": "other_file"}, "random_from=other_file needs sentence_task=nsp"),
        ({"dupe_factor": 0}, "dupe_factor must be at least 1"),
        ({"language": "xx"}, "language: 'xx' is no two-letter code of a language"),
        ({"max_seq_length": 99999999999}, "max_seq_length must be at most 1000000"),
        ({"seed": 10**20}, "seed must be at most 9223372036854775807"),
        ({"ngram": 10**9}, "ngram must be at most 1000"),
        ({"masking": "dynamic"}, "masking: .dynamic. is not one of static, online"),
        ({"masking": "online", "ngram": 17}, "ngram must be at most 16"),
        ({"shard_megabytes": math.nan}, r"shard_megabytes must be at least 0\.001"),
        ({"shard_megabytes": math.inf}, r"shard_megabytes must be at most 1000000\.0"),
        ({"shard_megabytes": 0.0}, r"shard_megabytes must be at least 0\.001"),
    ],
)
def test_bad_settings(changes, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"", {}, "has no text"),
        (b"\n\n \n", {}, "has no text"),
        ("fünf".encode("latin-1"), {}, "line 1: byte 2 is not UTF-8"),
        (b"One.\nTwo.", {"eval_fraction": 0.0001}, "no document fell into the eval split"),
        (b"One.\nTwo.", {"sentence_task": "nsp"}, "the train split has a single document"),
        (b"One.\nTwo.", {"one_segment": "random"}, "the train split has a single document"),
    ],
)
def test_bad_text_leaves_nothing(create, tmp_path, content, changes, message):
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        create(inputs=[tmp_path / "bad.txt"], **changes)
    assert not list(tmp_path.rglob("*.tfrecord"))


def test_text_too_short_for_a_pair(create, tmp_path):
    (tmp_path / "short.txt").write_text("a")
    with pytest.raises(UserError, match="the train documents are too short to form an example"):
        create(inputs=[tmp_path / "short.txt"])
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("changes", [{"sentence_task": "nsp"}, {"one_segment": "random"}])
def test_a_block_with_text_in_one_document_alone(create, tmp_path, changes):
    # Cleaning leaves nothing of the second document.
    (tmp_path / "lone.txt").write_text("One is here.\nTwo too.\n\n\u0301\n", encoding="utf-8")
    with pytest.raises(UserError, match="the train split has a single document"):
        create(inputs=[tmp_path / "lone.txt"], **changes)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_no_vocabulary(tmp_path):
    with pytest.raises(UserError, match=r"vocabulary: .* is no folder that holds"):
        dataset.create(
            SMALL,
            input_files=[str(CORPUS)],
            vocabulary=str(tmp_path),
            output_dir=str(tmp_path / "out"),
            driver=tiny_records.ALONE,
        )


def test_a_document_of_one_sentence(create, tmp_path):
    (tmp_path / "one.txt").write_text("The keeper of the lighthouse.\n\nBread.\n")
    directory = create(inputs=[tmp_path / "one.txt"], dupe_factor=1)
    assert manifest.count_examples([str(directory / "train-00000-000-00.tfrecord")]) == [2]


@pytest.mark.parametrize("task", ["sop", "none"])
def test_online_records_hold_the_text_once_and_no_masks(create, vocabulary_dir, capsys, task):
    online = create("online", masking="online", dupe_factor=1, sentence_task=task)
    assert "no masks" in capsys.readouterr().out
    static = create("static", dupe_factor=1, sentence_task=task)
    name = "train-00000-000-00.tfrecord"
    raw = tf.data.TFRecordDataset([str(online / name)]).batch(10_000).get_single_element()
    batch, masked = features.parse(raw, features.unmasked(S)), read(static / name)
    assert set(tf.train.Example.FromString(raw[0].numpy()).features.feature) == set(batch)
    # Pairs are drawn first, and so are those of the first records.
    own = [ids[ids >= 0].tolist() for ids in batch["input_ids"].numpy()]
    theirs = [
        ids[:n].tolist()
        for ids, n in zip(unmasked(masked), masked["input_mask"].sum(1), strict=True)
    ]
    assert own[:5] == theirs[:5]
    for feature in ("segment_ids", "token_boundary", "next_sentence_labels"):
        np.testing.assert_array_equal(batch[feature][:5], masked[feature][:5])
    written = manifest.read(str(online))
    assert manifest.is_online(written)
    assert not manifest.is_online(manifest.read(str(static)))
    assert "mask_rate" not in written["statistics"]["train"]
    assert (online / name).stat().st_size < 0.7 * (static / name).stat().st_size


def test_one_copy_is_the_default_of_online_records():
    assert DataConfig().dupe_factor == 40
    assert DataConfig(masking="online").dupe_factor == 1


def test_the_order_of_files_decides_on_pairs_and_not_on_what_is_held_out(create, long_text):
    """As docs/prepare_text.md has it; the manifest lists the files in their order."""
    one, other = (
        manifest.read(str(create(name, inputs, eval_fraction=0.3)))
        for name, inputs in (("a", (CORPUS, long_text)), ("b", (long_text, CORPUS)))
    )
    assert one["inputs"] == other["inputs"][::-1]
    for split in ("train", "eval"):
        first, second = one["statistics"][split], other["statistics"][split]
        assert first["tokens"] == second["tokens"]
        assert first["documents_by_tokens"] == second["documents_by_tokens"]
        assert first["examples"] != second["examples"]
