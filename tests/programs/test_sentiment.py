"""examples/sentiment: what it says of itself."""

import csv
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "sentiment"


def rows(split):
    with open(FOLDER / f"{split}.tsv", encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_splits_are_balanced():
    for split, number in (("train", 240), ("dev", 40)):
        header, *examples = rows(split)
        assert header == ["sentence", "label"]
        counts = Counter(label for _, label in examples)
        assert counts == {"negative": number // 2, "positive": number // 2}


def test_the_test_split_has_no_labels():
    header, *examples = rows("test")
    assert header == ["sentence"]
    assert [len(example) for example in examples] == [1] * 20


def test_no_sentence_is_there_twice():
    sentences = [
        " ".join(example[0].lower().split())
        for split in ("train", "dev", "test")
        for example in rows(split)[1:]
    ]
    assert len(set(sentences)) == len(sentences) == 300
    assert all(sentences)
