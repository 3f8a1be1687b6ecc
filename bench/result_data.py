"""Makes the data of three results in docs/results.md: sentence vectors, tags, several labels.

    python bench/result_data.py --glue=glue --squad=squad --output_dir=vectors
    python bench/result_data.py --text=news-reuters.txt.xz --output_dir=news

The first writes tables of STS-B and of SQuAD 1.1. The second labels a text by rules, documents with
a blank line between them, of which every tenth is held out:

    tags/     of words, in lines of 3 to 40 words that are no headlines. NAME: capitalized words, at
              the beginning of a line only those that are nowhere in lower case; AMOUNT: words that
              begin with a digit, with their units; DATE: days of the week and months, with a number
              after them
    topics/   the topics of which a document has three words or more; the text is its first line
"""

import json
import lzma
import os
import re
from collections.abc import Iterator

from absl import app, flags

from albert_tf.data_prep.task_data import glue, squad
from albert_tf.data_prep.task_data.task_source import TaskSplit
from albert_tf.errors import require
from albert_tf.kinds import task_table
from albert_tf.tokenizers import text_words

GLUE = flags.DEFINE_string("glue", None, "folder with STS-B")
SQUAD = flags.DEFINE_string("squad", None, "folder with train-v1.1*.json and dev-v1.1.json")
TEXT = flags.DEFINE_string("text", None, "documents, .txt.xz")
OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "folder to write", required=True)

MOST = {"train": 6000, "dev": 1000}  # lines, or documents
DATES = re.compile(
    "(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|June|July|August"
    "|September|October|November|December"
)
UNITS = {"mln", "bln", "billion", "million", "pct", "dlrs", "dlr", "cts", "tonnes", "shares"}
TOPICS = {
    "oil": "oil crude barrel barrels opec petroleum",
    "grain": "wheat corn grain grains maize soybean soybeans barley",
    "metal": "gold silver copper steel aluminium aluminum zinc",
    "money": "bank banks currency currencies dollar yen sterling mark",
    "trade": "trade tariff tariffs import imports export exports deficit surplus",
    "shares": "shares share dividend dividends shareholders stock",
}


def write_lines(name: str, rows: list[dict]) -> None:
    path = os.path.join(OUTPUT_DIR.value, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    print(f"{len(rows):,} rows -> {path}")


def write_sentences(folder: str) -> None:
    """The sentences of STS-B's train, its pairs with a score of 4 or more, and its dev set."""

    def read(name: str) -> list:
        split = TaskSplit(task=task_table.get("sts-b"), name=name)
        return glue.read(split, os.path.join(folder, "STS-B", f"{name}.tsv"))[0]

    names = ("sentence1", "sentence2")
    train = read("train")
    sentences = dict.fromkeys(text for example in train for text in example.texts)
    alike = [x for x in train if x.label >= 4 and x.texts[0].strip() != x.texts[1].strip()]
    write_lines("sentences.jsonl", [{"sentence1": text} for text in sentences])
    write_lines("pairs.jsonl", [dict(zip(names, x.texts, strict=True)) for x in alike])
    dev = [dict(zip(names, x.texts, strict=True)) | {"score": x.label} for x in read("dev")]
    write_lines("dev.jsonl", dev)


def write_questions(folder: str) -> None:
    """The questions of SQuAD with their passages."""
    for split in ("train", "dev"):
        [name] = [x for x in os.listdir(folder) if x.startswith(f"{split}-v1.1")]
        questions = squad.read(os.path.join(folder, name), kind=task_table.SPAN)
        rows = [{"id": x.id, "question": x.question, "passage": x.context} for x in questions]
        write_lines(f"squad-{split}.jsonl", rows)


def read_documents(path: str) -> Iterator[list[str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for document in file.read().split("\n\n"):
            if lines := [line for line in document.split("\n") if line.strip()]:
                yield lines


def tag(words: list[str], common: set[str]) -> list[str]:
    """The tags of the words of a line; `common` words occur in lower case."""
    kinds: list[str] = []
    for index, word in enumerate(words):
        before = kinds[-1] if kinds else "O"
        if DATES.fullmatch(word) or (word.isdigit() and before == "DATE"):
            kinds.append("DATE")
        elif word[0].isdigit() or (word in UNITS and before == "AMOUNT"):
            kinds.append("AMOUNT")
        elif word[0].isupper() and (index or word.lower() not in common):
            kinds.append("NAME")
        else:
            kinds.append("O")
    pairs = zip(kinds, ["O", *kinds], strict=False)
    return ["O" if x == "O" else f"{'I' if x == before else 'B'}-{x}" for x, before in pairs]


def write_news(path: str) -> None:
    splits: dict[str, list[list[str]]] = {"train": [], "dev": []}
    for number, document in enumerate(read_documents(path)):
        splits["train" if number % 10 else "dev"].append(document)
    common = set(re.findall(r"\b[a-z]+\b", "\n".join(x for d in splits["train"] for x in d)))
    for split, documents in splits.items():
        lines = []
        for line in (line for document in documents for line in document):
            words = [line[begin:end] for begin, end in text_words.find_words(line)]
            if 3 <= len(words) <= 40 and not line.isupper():
                lines.append({"words": words, "tags": tag(words, common)})
        # From all over the text, and not from its beginning.
        write_lines(f"tags/{split}.jsonl", lines[:: max(1, len(lines) // MOST[split])])
        rows = []
        for document in documents:
            words = re.findall(r"\w+", "\n".join(document).lower())
            topics = [x for x, keys in TOPICS.items() if sum(map(words.count, keys.split())) >= 3]
            rows.append({"text": document[0], "label": topics})
        write_lines(f"topics/{split}.jsonl", rows[:: max(1, len(rows) // MOST[split])])


def main(_: list[str]) -> None:
    require(any((GLUE.value, SQUAD.value, TEXT.value)), "give --glue, --squad or --text.")
    if GLUE.value:
        write_sentences(GLUE.value)
    if SQUAD.value:
        write_questions(SQUAD.value)
    if TEXT.value:
        write_news(TEXT.value)


if __name__ == "__main__":
    app.run(main)
