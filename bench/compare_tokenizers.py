"""Our tokenizer against the one of transformers, line by line: every difference has a name.

    python bench/compare_tokenizers.py --text_files='text/*.txt' --vocabulary=vocabulary

Needs transformers. `tokenizer_rules.py` has the rules; the program fails if they leave a line over.
"""

import lzma
import operator
import time
from collections import Counter

import tensorflow as tf
import tokenizer_rules
import transformers
from absl import app, flags

from albert_tf import files
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import WordPieceConfig

TEXT_FILES = flags.DEFINE_list("text_files", None, "patterns of text; .xz too", required=True)
VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder of the vocabulary", required=True)
MAX_LINES = flags.DEFINE_integer("max_lines", 10_000, "lines of each file, evenly spread over it")


def read_lines(path: str, count: int) -> list[str]:
    content = files.read_bytes(path, "--text_files")
    text = (lzma.decompress(content) if path.endswith(".xz") else content).decode()
    lines = [line for line in text.split("\n") if line.strip()]
    return lines[:: max(1, -(-len(lines) // count))]


def compare(lines: list[str], vocabulary: str) -> tuple[Counter, list[str]]:
    """Returns how many lines each set of rules explains, and the lines that none explains."""
    tokenizer = tokenization.load(vocabulary)
    is_wordpiece = isinstance(tokenizer.config, WordPieceConfig)
    kind = transformers.BertTokenizer if is_wordpiece else transformers.AlbertTokenizer
    theirs = kind.from_pretrained(vocabulary, do_lower_case=tokenizer.config.lower_case)
    like_theirs = tokenization.load(vocabulary, compat="hf" if is_wordpiece else "hf_fast")
    known = tokenizer_rules.rules(tokenizer, like_theirs)
    tie = operator.eq if is_wordpiece else tokenizer_rules.ties(vocabulary)
    counts: Counter = Counter()
    unexplained = []
    for line in lines:
        ids = theirs.encode(line, add_special_tokens=False)
        names = tokenizer_rules.explain(line, ids, tokenizer.encode, known, tie)
        if names is None:
            unexplained.append(line)
        else:
            counts[tuple(names)] += 1
    return counts, unexplained


def main(_):
    left_over = 0
    for path in tf.io.gfile.glob(TEXT_FILES.value):
        start = time.perf_counter()
        lines = read_lines(path, MAX_LINES.value)
        counts, unexplained = compare(lines, VOCABULARY.value)
        print(f"{path}: {len(lines):,} lines, {time.perf_counter() - start:.0f} s")
        for names, count in counts.most_common():
            print(f"  {count:7,} {'; '.join(names) or 'agree'}")
        for line in unexplained[:5]:
            print(f"  unexplained: {line!r}")
        left_over += len(unexplained)
    if left_over:
        raise SystemExit(f"{left_over} lines differ for no known reason")


if __name__ == "__main__":
    app.run(main)
