import bz2
import functools
import gzip
import itertools
import lzma
import os
import random

import pytest
from refusals import one_line

from albert_tf.data_prep.corpus import corpus_files, documents
from albert_tf.data_prep.corpus.sources import Range, cut
from albert_tf.data_prep.pretraining_data import blocks
from albert_tf.data_prep.pretraining_data.data_config import DataConfig

OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def read(path, **options):
    """The lines of all documents or parts of documents."""
    return [part.lines for part in documents.read(path, **{"max_bytes": 1000, **options})]


@pytest.mark.parametrize("suffix", OPENERS)
def test_documents_of_a_file(tmp_path, suffix):
    path = str(tmp_path / f"a.txt{suffix}")
    text = "\ufeff\n\none \n two\r\n\n\n \t\nthree\u2028still\x0bthree\x85\n\nvier, fünf"
    with OPENERS[suffix](path, "wb") as file:
        file.write(text.encode())
    assert read(path) == [["one", "two"], ["three\u2028still\x0bthree"], ["vier, fünf"]]


@pytest.mark.parametrize(
    ("content", "warns"), [("a.\rb.\r\rc.\r", True), ("a\rb\n", False), ("a\r\nb\r\n", False)]
)
def test_carriage_returns_alone_end_no_line(tmp_path, capsys, content, warns):
    path = write(tmp_path / "a.txt", content)
    assert documents.expand_inputs([path]) == [path]
    message = "has carriage returns but no line feeds, so it is read as one line"
    assert (message in capsys.readouterr().err) is warns


COMPRESS = {".bz2": bz2.compress, ".xz": lzma.compress}
COMPRESS[".gz"] = functools.partial(gzip.compress, mtime=0)
TEXT = b"some text\n" * 999


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("blank.txt", b"\n \n\n\xe2\x80\xa8\n", r"blank\.txt has no text"),
        ("a.txt", "eins\n\nzwei\nfünf\n".encode("latin-1"), r"a\.txt, line 4: byte 2 is not UTF-8"),
        ("a.txt", b"one\n\nt\0wo\n", r"line 3: there is a NUL byte, which text never has"),
        ("a.txt", "one\n".encode("utf-16-le"), r"line 1: there is a NUL byte.*iconv"),
        *((f"a{x}", y(TEXT)[:-9], "is damaged or not") for x, y in COMPRESS.items()),
        *((f"a{x}", TEXT, "is damaged or not") for x in COMPRESS),
    ],
)
def test_what_is_no_text_is_named_with_its_line(tmp_path, monkeypatch, name, content, message):
    monkeypatch.setattr(corpus_files, "_CHUNK_BYTES", 3)
    with one_line(message):
        read(write(tmp_path / name, content))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", r"empty\.txt has no text"),
        ("a.csv", b"id", r"\.csv files cannot be read here. Save it as"),
        ("b.TSV.gz", b"id", r"compressed \.tsv files cannot be read here"),
        ("b.tfrecord", b"x", r"\.tfrecord files cannot be read here"),
        ("c.txt", b"x", "no file matches"),
    ],
)
def test_inputs_that_cannot_be_read_are_named(tmp_path, name, content, message):
    path = write(tmp_path / "full.txt", "x")
    assert documents.expand_inputs([str(tmp_path / "f*.txt"), path]) == [path]
    write(tmp_path / name, content)
    with one_line(message):
        documents.expand_inputs([path, str(tmp_path / name.replace("c.txt", "none*"))])


def test_progress_counts_every_byte(tmp_path):
    path = write(tmp_path / "a.txt", "a longer line\n" * 250_000)
    progress = []
    assert len(read(path, max_bytes=10**9, on_progress=progress.append)[0]) == 250_000
    assert sum(progress) == 3_500_000
    assert len(progress) > 3


@pytest.mark.parametrize("space", [" ", ""])
def test_long_lines_are_split(tmp_path, space, monkeypatch):
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(corpus_files, "_CHUNK_BYTES", 70)
    line = space.join(["wörter"] * 200)
    parts = [part for document in read(write(tmp_path / "a.txt", line)) for part in document]
    assert space.join(parts) == line
    assert max(len(part.encode()) for part in parts) <= 100
    assert len(parts) < 30


def test_parts_of_a_document_differ_from_new_documents(tmp_path):
    path = write(tmp_path / "a.txt", "aaa\nbbb\nccc\n\n\nddd\n\neee\nfff")
    starts = {"aaa": True, "bbb": False, "ccc": False, "ddd": True, "eee": True, "fff": False}
    parts = [([line], is_new) for line, is_new in starts.items()]
    assert list(documents.read(path, max_bytes=3)) == parts


def test_identity_is_of_the_content(tmp_path):
    content = b"x" * 200_000
    before = documents.identify_inputs([write(tmp_path / "a.txt", content)])
    assert before[0][:2] == ["a.txt", 200_000]
    (tmp_path / "elsewhere").mkdir()
    assert documents.identify_inputs([write(tmp_path / "elsewhere" / "a.txt", content)]) == before
    for edited in (b"y" + content[1:], content[1:] + b"y", content + b"x"):
        assert documents.identify_inputs([write(tmp_path / "a.txt", edited)]) != before


def read_blocks(paths, **options):
    config = DataConfig(**{"shard_megabytes": 0.001, **options})  # blocks of 1000 bytes
    sources = cut(paths, 0.001)
    made = (
        blocks.read_blocks(number, source, config, is_corpus=len(sources) == 1)
        for number, source in enumerate(sources)
    )
    return [*itertools.chain(*made)]


@pytest.fixture
def corpus(tmp_path):
    texts = [f"document {i}\nhas {'so very many ' * (i % 13)}lines" for i in range(300)]
    return texts, write(tmp_path / "corpus.txt", "\n\n".join(texts))


def test_blocks_hold_every_document_once(corpus):
    texts, path = corpus
    stream = read_blocks([path], eval_fraction=0.2)
    assert sorted(text for block in stream for text in block.texts) == sorted(texts)
    for split in blocks.SPLITS:
        chosen = [block for block in stream if block.split == split]
        assert len(chosen) > 3
        for _, group in itertools.groupby(chosen, lambda block: block.source):
            numbers = [block.number for block in group]
            assert numbers == list(range(len(numbers)))
    assert min(len(block.texts) for block in stream) >= 2
    assert sum(block.num_bytes for block in stream) == len("\n\n".join(texts))


def test_held_out_documents_depend_on_the_text_alone(corpus, tmp_path):
    texts, path = corpus

    def held_out(blocks):
        return {text for block in blocks if block.split == "eval" for text in block.texts}

    backwards = write(tmp_path / "backwards.txt", "\n\n".join(reversed(texts)))
    small, large = (held_out(read_blocks([path], eval_fraction=share)) for share in (0.1, 0.3))
    assert small < large
    assert small == held_out(read_blocks([backwards], eval_fraction=0.1, shard_megabytes=0.0017))
    assert 10 < len(small) < 60 < len(large) < 130


def test_parts_of_a_document_are_held_out_together(tmp_path):
    texts = [[f"{i} {part} {'x' * 300}" for part in range(2 + i % 3)] for i in range(40)]
    path = write(tmp_path / "a.txt", "\n\n".join("\n".join(text) for text in texts))
    stream = read_blocks([path], eval_fraction=0.4)
    splits = {text.rsplit(" ", 1)[0]: block.split for block in stream for text in block.texts}
    assert len(splits) == sum(map(len, texts))  # each line is a part
    found = {tuple({splits[f"{i} {p}"] for p in range(len(x))}) for i, x in enumerate(texts)}
    assert found == {("train",), ("eval",)}


def test_a_last_lone_document_joins_the_block_before_and_sentences_are_split(tmp_path):
    texts = ["x" * 550, "y" * 550, "z"]
    stream = read_blocks([write(tmp_path / "a.txt", "\n\n".join(texts))])
    assert [block.texts for block in stream] == [texts]
    path = write(tmp_path / "a.txt", "Mr. Smith paid 3.5 million. Why?\n\nThree. Four.")
    [block] = read_blocks([path], split_sentences=True, eval_fraction=1.0)
    assert block.split == "eval"
    assert block.texts == ["Mr. Smith paid 3.5 million.\nWhy?", "Three.\nFour."]


def make_hostile_text(rng):
    """Documents, blank lines of all sorts, and lines of all lengths."""
    lines = ["", " ", "\t", "\u2003", "\r", "a", "wörter " * 5, "x" * 150, " " * 120]
    return "\n".join(rng.choices(lines, k=rng.randrange(1, 60)))


@pytest.mark.parametrize("seed", range(8))
def test_ranges_hold_every_document_once(tmp_path, seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(corpus_files, "_CHUNK_BYTES", rng.choice([1, 7, 1000]))
    monkeypatch.setattr(documents, "MAX_LINE_BYTES", rng.choice([50, 100, 10_000]))
    path = write(tmp_path / "a.txt", make_hostile_text(rng) + "\nend")
    size = os.path.getsize(path)
    bounds = sorted({0, size, *(rng.randrange(size) for _ in range(rng.randrange(9)))})
    parts, progress = [], []
    for begin, end in itertools.pairwise(bounds):
        part = Range(path, begin, end if end < size else None)
        parts += documents.read(part, max_bytes=80, on_progress=progress.append)
    assert parts == list(documents.read(path, max_bytes=80))
    assert sum(progress) == size


def test_a_range_names_the_line_of_the_file(tmp_path):
    path = write(tmp_path / "a.txt", b"one\n\ntwo\n\nthree\n\xff\n")
    for begin in range(10):
        with one_line("line 6: byte 1 is not UTF-8"):
            list(documents.read(Range(path, begin), max_bytes=100))


def test_sources_are_large_files_cut_and_small_ones_together(tmp_path):
    sizes = {"a.txt": 9_000, "b.txt": 3_000, "c.txt": 500, "d.gz": 50_000, "e.txt": 1}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(bytes(size))
    a, b, c, d, e = (str(tmp_path / name) for name in sizes)
    assert cut([a, b, c, d, e], shard_megabytes=0.001) == [
        (Range(a, 0, 3_000),),
        (Range(a, 3_000, 6_000),),
        (Range(a, 6_000, None),),
        (Range(b), Range(c), Range(d)),
        (Range(e),),
    ]
