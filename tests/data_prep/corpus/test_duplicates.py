"""Duplicates of a corpus: which are found, by one process and by several tasks."""

import json
import random
import sys

import pytest
from input_files import write_rows
from refusals import one_line

from albert_tf.data_prep.corpus import duplicates
from albert_tf.data_prep.corpus.duplicates import DuplicatesConfig

WORD = "word " * 90


@pytest.fixture
def find(tmp_path):
    def find(documents, name="duplicates", **settings):
        """Returns the documents that are kept, and the folder; each document is a file's line."""
        path = write_rows(tmp_path / "corpus.jsonl", ({"text": text} for text in documents))
        config = DuplicatesConfig(**settings)
        folder = str(tmp_path / name)
        duplicates.find(config, input_files=[path], output_dir=folder)
        left_out = duplicates.read_left_out(folder, 0)
        return [text for k, text in enumerate(documents) if k not in left_out], tmp_path / name

    return find


def test_the_first_of_equal_documents_is_kept(find, capsys):
    texts = [f"document {number} {WORD}" for number in range(6)]
    again = [texts[2].replace("word word", "word   word", 1), texts[0], "new", "new"]
    kept, _ = find([*texts, *again])
    assert kept == [*texts, "new"]
    assert capsys.readouterr().out == "10 documents, 3 of them duplicates\n"


def test_near_duplicates(find):
    pytest.importorskip("datasketch", reason="the extra corpus is not installed")
    rng = random.Random(0)
    words = [" ".join(f"w{rng.randrange(10**6)}" for _ in range(200)) for _ in range(4)]
    chinese = "".join(map(chr, rng.choices(range(0x4E00, 0x6000), k=300)))
    near = [words[1].replace(words[1][:8], "another"), words[0].upper(), chinese[1:] + "。"]
    half = " ".join([*words[2].split()[:100], *words[3].split()[100:]])
    texts = [*words, chinese, *near, half, words[3]]
    assert find(texts, "near", kind="near")[0] == [*words, chinese, half]
    assert len(find(texts, "exact")[0]) == len(texts) - 1


def test_records_leave_them_out_and_say_so(tmp_path, create, long_text, capsys):
    folder, config = tmp_path / "found", DuplicatesConfig(shard_megabytes=0.002)
    duplicates.find(config, input_files=[str(long_text)], output_dir=str(folder))
    records = create("records", [long_text], shard_megabytes=0.002, duplicates=str(folder))
    summary = json.loads((folder / "duplicates.json").read_text())
    assert summary["duplicates"] > summary["documents"] / 2
    statistics = json.loads((records / "manifest.json").read_text())["statistics"]
    assert statistics["duplicates"] == summary["duplicates"]
    assert statistics["train"]["documents"] == summary["documents"] - summary["duplicates"]
    assert f"{summary['duplicates']} duplicates left out." in capsys.readouterr().out


def test_all_parts_of_a_long_duplicate_are_left_out(tmp_path, create):
    text = "\n".join(f"line {number} of a long document" for number in range(100))
    (tmp_path / "a.txt").write_text(f"{text}\n\n{text}\n\nthe end\n")
    (tmp_path / "b.txt").write_text(f"{text}\n\nthe end\n")
    output, config = str(tmp_path / "found"), DuplicatesConfig(shard_megabytes=0.002)
    duplicates.find(config, input_files=[str(tmp_path / "a.txt")], output_dir=output)
    counts = []
    for name, found in (("a", output), ("b", None)):
        folder = create(name, [tmp_path / f"{name}.txt"], shard_megabytes=0.002, duplicates=found)
        counts.append(json.loads((folder / "manifest.json").read_text())["statistics"]["train"])
    assert counts[0]["tokens"] == counts[1]["tokens"]


def test_mistakes_are_one_line(find, tmp_path, create, monkeypatch):
    _, folder = find(["a", "b"])
    with one_line("holds work with inputs="):
        find(["a", "c"])
    for found, changes, message in [
        (folder, {"shard_megabytes": 1.0}, r"was created with shard_megabytes=16\.0, not 1\.0"),
        (folder, {}, "was created from other --input"),
        (tmp_path, {}, r"has no duplicates.json: finish bin/data find_duplicates"),
    ]:
        with one_line(message):
            create(duplicates=str(found), **changes)
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with one_line(r"near needs datasketch: pip install datasketch"):
        find(["a"], "near", kind="near")
