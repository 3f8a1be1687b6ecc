"""Files with a document in each row, compressed ones, and duplicates."""

import gzip
import json
import lzma
import os
import random
import sys

import pytest

from albert_tf.data_prep.pretraining_data import blocks, corpus_files, documents
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.sources import cut
from albert_tf.errors import UserError

TEXTS = ["Erste Zeile.\nZweite — Zeile.\n\nDritte.", "한국어 문서", "one\u2028line"]
LINES = [["Erste Zeile.", "Zweite — Zeile.", "Dritte."], ["한국어 문서"], ["one\u2028line"]]


def to_rows(texts, field="text"):
    return "".join(json.dumps({field: text, "id": 1}) + "\n" for text in texts).encode()


def write(path, content, kind=""):
    if kind == ".zst":
        zstandard = pytest.importorskip("zstandard")
        content = zstandard.compress(content[:7]) + zstandard.compress(content[7:])  # two frames
    compress = {".gz": gzip.compress, ".xz": lzma.compress}.get(kind, bytes)
    path.write_bytes(compress(content))
    return str(path)


def write_parquet(path, columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return str(path)


def read(path, **options):
    progress = []
    parts = documents.read(path, max_bytes=10**6, on_progress=progress.append, **options)
    return [part.lines for part in parts], sum(progress)


@pytest.mark.parametrize("kind", ["", ".gz", ".xz", ".zst"])
def test_each_row_of_a_jsonl_file_is_a_document(tmp_path, kind):
    path = write(tmp_path / f"a.jsonl{kind}", to_rows(TEXTS) + b"\n" + to_rows(["end"]), kind)
    lines, progress = read(path)
    assert lines == [*LINES, ["end"]]
    assert progress == (tmp_path / f"a.jsonl{kind}").stat().st_size


@pytest.mark.parametrize("kind", [".gz", ".xz", ".zst"])
def test_compressed_lines(tmp_path, kind):
    path = write(tmp_path / f"a.txt{kind}", b"eins\nzwei\n\ndrei", kind)
    assert read(path)[0] == [["eins", "zwei"], ["drei"]]


def test_each_row_of_a_parquet_file_is_a_document(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"body": TEXTS, "n": [1, 2, 3]})
    lines, progress = read(path, text_field="body")
    assert lines == LINES
    assert progress == (tmp_path / "a.parquet").stat().st_size


def test_a_row_may_be_longer_than_a_line(tmp_path):
    words = "word " * 500_000
    path = write(tmp_path / "a.jsonl", to_rows([words, "end"]))
    [*parts, end] = read(path)[0]
    assert end == ["end"]
    assert sum(line.count("word") for part in parts for line in part) == 500_000
    assert max(len(line) for part in parts for line in part) <= documents.MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"text": "b"', "row 2 is not JSON"),
        (b'{"text": "a"}\n\xff\n', "row 2 is not JSON"),
        (b'{"body": "a"}\n', "row 1: it has no text 'text'. Name the field with --text_field"),
        (b'{"text": 3}\n', "row 1: it has no text"),
        (b"[1]\n", "row 1: it has no text"),
        (b"[" * 100_000 + b"\n", "row 1 is not JSON"),
        (b'{"text": "  "}\n', "has no text. Remove it from --input_files"),
    ],
)
def test_a_damaged_row_is_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read(write(tmp_path / "a.jsonl", content))


def test_a_row_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "_LONGEST_ROW", 1000)
    monkeypatch.setattr(corpus_files, "_CHUNK_BYTES", 100)
    with pytest.raises(UserError, match="a row of more than 1,000 bytes"):
        read(write(tmp_path / "a.jsonl", to_rows(["x" * 2000])))


def test_other_tables_are_refused(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"body": TEXTS})
    with pytest.raises(UserError, match="row 1: it has no text 'text'"):
        read(path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"b\.parquet is damaged or not parquet"):
        read(str(tmp_path / "b.parquet"))


def test_a_truncated_zst_file_is_refused(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.zst").write_bytes(b"no zstandard at all")
    with pytest.raises(UserError, match=r"a\.zst is damaged or not \.zst"):
        read(str(tmp_path / "a.zst"))
    content = zstandard.compress(bytes(range(256)) * 9000)
    (tmp_path / "b.zst").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"b\.zst is damaged or not \.zst"):
        read(str(tmp_path / "b.zst"))


@pytest.mark.parametrize(("name", "package"), [("a.zst", "zstandard"), ("a.parquet", "pyarrow")])
def test_a_missing_package_is_one_line(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=f"needs {package}: pip install {package}"):
        read(str(tmp_path / name))


def gather(paths, **changes):
    config = DataConfig(shard_megabytes=0.001, **changes)
    sizes = [(path, os.path.getsize(path)) for path in paths]
    sources = dict(enumerate(cut(sizes, config.shard_megabytes)))
    cut_blocks = list(blocks.read_blocks(sources, config))
    texts = [text for block in cut_blocks for text in block.texts]
    return texts, [block.duplicates for block in cut_blocks]


def test_duplicates_are_left_out_and_counted(tmp_path):
    texts = [f"document {number} " + "word " * 90 for number in range(6)]
    again = [texts[2].replace("word word", "word   word", 1), texts[0], "new " * 100, "new " * 100]
    paths = [
        write(tmp_path / "a.txt", "\n\n".join(texts).encode()),
        write(tmp_path / "b.jsonl", to_rows(again)),
    ]
    expected = [text.strip() for text in [*texts, "new " * 100]]
    texts_left, duplicates = gather(paths, duplicates="exact")
    assert texts_left == expected
    assert sum(duplicates) == 3
    every, none = gather(paths)
    assert len(every) == 10
    assert sum(none) == 0


def test_near_duplicates_are_left_out_and_counted(tmp_path):
    pytest.importorskip("datasketch", reason="requirements-corpus.txt is not installed")
    rng = random.Random(0)
    words = [" ".join(f"w{rng.randrange(10**6)}" for _ in range(200)) for _ in range(4)]
    chinese = "".join(map(chr, rng.choices(range(0x4E00, 0x6000), k=300)))
    near = [words[1].replace(words[1][:8], "another"), words[0].upper(), chinese[1:] + "。"]
    half = " ".join([*words[2].split()[:100], *words[3].split()[100:]])
    texts = [*words, chinese, *near, half, words[3]]
    path = write(tmp_path / "a.jsonl", to_rows(texts))
    left, numbers = gather([path], duplicates="near")
    assert left == [*words, chinese, half]
    assert sum(numbers) == 4
    assert len(gather([path], duplicates="exact")[0]) == len(texts) - 1


def test_near_duplicates_without_the_library_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketch", None)
    path = write(tmp_path / "a.txt", b"a\n\nb")
    with pytest.raises(UserError, match=r"near needs datasketch: pip install -r requirements-corp"):
        gather([path], duplicates="near")


def test_all_parts_of_a_long_duplicate_are_left_out(tmp_path):
    text = "\n".join(f"line {number} of a long document" for number in range(100))
    path = write(tmp_path / "a.txt", f"{text}\n\n{text}\n\nend".encode())
    once = write(tmp_path / "b.txt", f"{text}\n\nend".encode())
    assert gather([path], duplicates="exact")[0] == gather([once])[0]
