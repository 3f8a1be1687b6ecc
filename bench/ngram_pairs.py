"""How often n-grams of words find the right one of two sentences likelier: what a model must beat.

    python bench/ngram_pairs.py --text='text/*.txt.xz' --minimal_pairs=blimp.jsonl.xz

Prints a line of JSON for each order, 1 (words alone) to 5. Words are lower-case; the score of one
is its share after those before it, or 0.4 of that after one word less (Brants et al. 2007). Only
the n-grams of the pairs are counted, so that it needs little memory.
"""

import collections
import glob
import json
import lzma
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
from absl import app, flags

from albert_tf.inference import minimal_pairs

TEXT = flags.DEFINE_list("text", None, "patterns of text files, which may be .xz", required=True)
PAIRS = flags.DEFINE_list("minimal_pairs", None, "patterns of pairs", required=True)
MAX_WORDS = flags.DEFINE_integer("max_words", None, "words of the text to read of each file")
LONGEST, BACKOFF = 5, 0.4
_WORDS = re.compile(r"\w+(?:'\w+)?|[^\w\s]")


def split(text: str) -> list[str]:
    return ["<s>", *_WORDS.findall(text.lower())]


def list_ngrams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for end in range(1, len(words) + 1):
        for size in range(1, min(LONGEST, end) + 1):
            yield tuple(words[end - size : end])


def read_lines(pattern: str) -> Iterator[str]:
    for path in sorted(glob.glob(pattern)):
        with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
            words = 0
            for line in file:
                words += line.count(" ") + 1
                if MAX_WORDS.value and words > MAX_WORDS.value:
                    break
                # An n-gram begins at a sentence, and paragraphs have several.
                yield from re.split(r"(?<=[.!?])\s+", line.strip())


def main(_):
    pairs = minimal_pairs.read(PAIRS.value)
    sentences = {text: split(text) for pair in pairs for text in (pair.good, pair.bad)}
    counts = {ngram: 0 for words in sentences.values() for ngram in list_ngrams(words)}
    total = 0
    for pattern in TEXT.value:
        for line in read_lines(pattern):
            words = split(line)
            total += len(words)
            for ngram in list_ngrams(words):
                if ngram in counts:
                    counts[ngram] += 1

    def score(words: Sequence[str], order: int) -> float:
        logs = 0.0
        for end in range(2, len(words) + 1):
            for size in range(min(order, end), 0, -1):
                ngram = tuple(words[end - size : end])
                # A word that the text lacks counts a half.
                count = counts[ngram] or (0.5 if size == 1 else 0)
                if count:
                    before = counts[ngram[:-1]] if size > 1 else total
                    logs += math.log(count / before) + (min(order, end) - size) * math.log(BACKOFF)
                    break
        return logs

    for order in range(1, LONGEST + 1):
        scores = {text: score(words, order) for text, words in sentences.items()}
        fields = collections.defaultdict(list)
        for pair in pairs:
            difference = scores[pair.good] - scores[pair.bad]
            win = 0.5 if abs(difference) < 1e-9 else float(difference > 0)
            for name in ("all", pair.groups[0]):
                fields[name].append(win)
        accuracies = {name: round(100 * float(np.mean(x)), 1) for name, x in fields.items()}
        print(json.dumps({"order": order, "words": total, **accuracies}))


if __name__ == "__main__":
    app.run(main)
