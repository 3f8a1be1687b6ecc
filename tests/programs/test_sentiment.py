"""examples/sentiment: what it says of itself."""

import csv
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "sentiment"


def read(split):
    with open(FOLDER / f"{split}.tsv", encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_splits_are_balanced_and_share_no_sentence():
    sentences = []
    for split, labels in (("train", [120] * 2), ("dev", [20] * 2), ("test", [])):
        header, *rows = read(split)
        assert header == (["sentence", "label"] if labels else ["sentence"])
        counts = Counter(label for _, *more in rows for label in more)
        assert [counts[x] for x in ("negative", "positive") if labels] == labels
        sentences += [" ".join(row[0].lower().split()) for row in rows]
    assert len(set(sentences)) == len(sentences) == 300
    assert all(sentences)
