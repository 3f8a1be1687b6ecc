"""Text in a graph against the tokenizer in Python: every line has to give the same; and the rates.

    python bench/graph_text.py --text_files='text/*.txt' --vocabulary=vocabulary

Compares ids, spans, and ids with masks, of lines of the files and of random byte strings, and fails
if one differs. Then prints the rates, and what 32 texts of 128 tokens cost before the model.
"""

import functools
import lzma
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from absl import app, flags

from albert_tf import files
from albert_tf.export.graph_tokenizer import graph_tokenizer
from albert_tf.export.graph_tokenizer.graph_tokenizer import GraphTokenizer
from albert_tf.export.requests import packing
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer

TEXT_FILES = flags.DEFINE_list("text_files", None, "patterns of text; .xz too", required=True)
VOCABULARY = flags.DEFINE_string("vocabulary", None, "folder of the vocabulary", required=True)
MAX_LINES = flags.DEFINE_integer("max_lines", 2000, "lines of each file, evenly spread over it")
NUM_RANDOM = flags.DEFINE_integer("num_random", 20_000, "random byte strings")

BATCH, LENGTH, REPEATS = 32, 128, 50
# Of a random string: bytes of any value, or of letters and marks that cleaning changes.
OFTEN = "aA Σς1,2 ▁[MASK]#é\u0301\u0308\u0323가각\u1100\u1161\u11a8ｶﾞﬃ½漢😀İß\0\t\u3000\ufeff"
ALPHABETS = ([bytes([i]) for i in range(256)], [c.encode() for c in OFTEN])


def read_lines(pattern: str) -> Iterator[bytes]:
    for path in tf.io.gfile.glob(pattern):
        content = files.read_bytes(path, "--text_files")
        content = lzma.decompress(content) if path.endswith(".xz") else content
        lines = [line for line in content.split(b"\n") if line.strip()]
        yield from lines[:: max(1, -(-len(lines) // MAX_LINES.value))]


def random_lines(count: int) -> Iterator[bytes]:
    rng = random.Random(0)
    for _ in range(count):
        alphabet = rng.choice(ALPHABETS)
        yield b"".join(rng.choices(alphabet, k=rng.randint(0, 60)))


def count_differences(graph: GraphTokenizer, tokenizer: Tokenizer, lines: Sequence[bytes]) -> int:
    """Also prints the first ones."""
    count = 0
    for i in range(0, len(lines), 512):
        part = lines[i : i + 512]
        decoded = [line.decode(errors="replace") for line in part]
        plain = graph.tokenize(part).to_list()
        ids, begins, ends = (rows.to_list() for rows in graph.tokenize_with_offsets(part))
        spans = [list(zip(*row, strict=True)) for row in zip(begins, ends, strict=True)]
        masked = graph.tokenize_with_masks(part).to_list()
        expected = tokenizer.encode_batch_with_offsets(decoded)
        for j, line in enumerate(decoded):
            wanted = (expected[j][0], *expected[j], tokenizer.encode_with_masks(line))
            if (plain[j], ids[j], spans[j], masked[j]) != wanted:
                count += 1
                if count <= 5:
                    print(f"  differs: {part[j]!r}")
    return count


def measure(name: str, function: Callable[[], object], lines: int) -> None:
    function()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(REPEATS):
        function()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name}: {lines * REPEATS / wall:,.0f} lines/s, {wall / REPEATS * 1e3:.2f} ms "
        f"({cpu / REPEATS * 1e3:.2f} CPU ms) a batch of {lines}"
    )


def main(_: list[str]) -> None:
    begin = time.perf_counter()
    tokenizer = tokenization.load(VOCABULARY.value)
    graph = graph_tokenizer.make_tokenizer(tokenizer)
    print(f"made in {time.perf_counter() - begin:.2f} s")
    lines = [line for pattern in TEXT_FILES.value for line in read_lines(pattern)]
    differences = 0
    for name, some in (("lines", lines), ("random strings", [*random_lines(NUM_RANDOM.value)])):
        num_different = count_differences(graph, tokenizer, some)
        print(f"{name}: {num_different} of {len(some):,} differ")
        differences += num_different
    ids = tokenizer.encode_batch
    thousand = tf.constant(lines[:1000])
    decoded = [line.decode() for line in lines[:1000]]
    measure("Python, ids", lambda: ids(decoded), len(decoded))
    measure("graph, ids", lambda: graph.tokenize(thousand), len(decoded))
    measure("graph, spans", lambda: graph.tokenize_with_offsets(thousand), len(decoded))
    long = b" ".join(line for line in lines if line.isascii())
    texts = [long[i * 700 :][:700] for i in range(BATCH)]
    pack = tf.function(lambda texts: packing.pack(graph.tokenize(texts), None, tokenizer, LENGTH))
    for size in (BATCH, 1):
        measure(
            f"packed, {LENGTH} tokens", functools.partial(pack, tf.constant(texts[:size])), size
        )
    if differences:
        sys.exit(f"{differences} lines differ")


if __name__ == "__main__":
    app.run(main)
