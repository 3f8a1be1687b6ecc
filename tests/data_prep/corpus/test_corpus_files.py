"""Files with a document in each row, and compressed ones."""

import bz2
import gzip
import json
import lzma
import sys

import fsspec
import pytest
import stand_in_hub
from huggingface_hub import HfFileSystem
from refusals import one_line

from albert_tf.data_prep.corpus import corpus_files, documents, sources

TEXTS = ["Erste Zeile.\nZweite — Zeile.\n\nDritte.", "한국어 문서", "one\u2028line"]
LINES = [["Erste Zeile.", "Zweite — Zeile.", "Dritte."], ["한국어 문서"], ["one\u2028line"]]


def to_rows(texts, field="text"):
    return "".join(json.dumps({field: text, "id": 1}) + "\n" for text in texts).encode()


def write(path, content, kind=""):
    if kind == ".zst":
        zstandard = pytest.importorskip("zstandard")
        content = zstandard.compress(content[:7]) + zstandard.compress(content[7:])  # two frames
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(kind, bytes)
    path.write_bytes(compress(content))
    return str(path)


def write_arrow(path, columns):
    """What `save_to_disk` of Hugging Face's datasets writes."""
    pyarrow = pytest.importorskip("pyarrow")
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table(columns)
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    (path.parent / "state.json").write_text("{}")


def write_parquet(path, columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return str(path)


def read(path, **options):
    progress = []
    parts = documents.read(path, max_bytes=10**6, on_progress=progress.append, **options)
    return [part.lines for part in parts], sum(progress)


@pytest.mark.parametrize("kind", ["", ".gz", ".bz2", ".xz", ".zst", ".ZST"])
def test_each_row_of_a_jsonl_file_is_a_document(tmp_path, kind):
    content = to_rows(TEXTS) + b'\n{"text": "end", "headers": {"Vary": 1, "Vary": 2}}\n'
    path = write(tmp_path / f"a.jsonl{kind}", content, kind.lower())
    lines, progress = read(path)
    assert lines == [*LINES, ["end"]]
    assert progress == (tmp_path / f"a.jsonl{kind}").stat().st_size


def test_a_row_may_be_longer_than_a_line(tmp_path):
    words = "word " * 500_000
    [*parts, end] = read(write(tmp_path / "a.jsonl", to_rows([words, "end"])))[0]
    assert end == ["end"]
    assert sum(line.count("word") for part in parts for line in part) == 500_000
    assert max(len(line) for part in parts for line in part) <= documents.MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"text": "b"', "row 2 is not JSON"),
        (b'{"text": "a"}\n\xff\n', "row 2 is not UTF-8"),
        ('{"text": "a"}\n'.encode("utf-16-le"), "row 1 has a NUL byte"),
        (b'{"body": "a"}\n', "row 1 has no text 'text'. Set the field with --text_field"),
        (b'{"text": 3}\n', "row 1 has no text"),
        (b"[1]\n", "row 1 has no text"),
        (b"[" * 100_000 + b"\n", "row 1 is not JSON"),
        (b'{"text": "  "}\n', "has no text. Remove it from --input"),
    ],
)
def test_a_damaged_row_is_named(tmp_path, content, message):
    with one_line(message):
        read(write(tmp_path / "a.jsonl", content))


@pytest.mark.parametrize("kind", ["zst", "parquet", "arrow"])
def test_a_file_of_another_kind_or_cut_short_is_damaged(tmp_path, kind):
    pytest.importorskip({"zst": "zstandard"}.get(kind, "pyarrow"))
    path = tmp_path / f"a.{kind}"
    for content in (b"PAR1 and no more", write_kind(path, kind)[:-30]):
        path.write_bytes(content)
        with one_line(rf"a\.{kind} is damaged or not \.?{kind}"):
            read(str(path))


def write_kind(path, kind):
    """Returns the content of a file of many rows."""
    if kind == "zst":
        write(path, b"".join(b"%d\n" % number for number in range(9999)), ".zst")
    else:
        (write_parquet if kind == "parquet" else write_arrow)(path, {"text": TEXTS * 99})
    return path.read_bytes()


@pytest.mark.parametrize(("name", "package"), [("a.zst", "zstandard"), ("a.parquet", "pyarrow")])
def test_a_missing_package_is_one_line(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with one_line(f"needs {package}: pip install {package}"):
        read(write(tmp_path / name, b"x"))


def test_the_folder_of_a_dataset_is_its_arrow_files(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "_ROWS", 1)
    write_arrow(tmp_path / "d" / "train" / "data-0.arrow", {"n": [1, 2, 3], "text": TEXTS})
    paths = documents.expand_inputs([f"{tmp_path}/d/train"])
    assert paths == [f"{tmp_path}/d/train/data-0.arrow"]
    assert read(paths[0])[0] == LINES
    write_arrow(tmp_path / "d" / "test" / "cache-1.arrow", {"text": TEXTS})
    with one_line(f"Pass one or more of: {tmp_path}/d/test, {tmp_path}/d/tra"):
        documents.expand_inputs([f"{tmp_path}/d"])
    with one_line(r"no file matches '.*/d/test'"):
        documents.expand_inputs([f"{tmp_path}/d/test"])


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def test_files_of_another_file_system(tmp_path, memory):
    parquet = write_parquet(tmp_path / "a.parquet", {"text": TEXTS, "n": [1, 2, 3]})
    memory.put(parquet, "/corpus/a.parquet")
    memory.pipe("/corpus/b.txt.gz", gzip.compress(b"eins\nzwei\n\ndrei"))
    memory.pipe("/corpus/c.txt", b"vier\n\nf\xc3\xbcnf\n\nsechs")
    paths = documents.expand_inputs(["memory://corpus/*"])
    assert paths == [f"memory:///corpus/{name}" for name in ("a.parquet", "b.txt.gz", "c.txt")]
    expected = [LINES, [["eins", "zwei"], ["drei"]], [["vier"], ["fünf"], ["sechs"]]]
    assert [read(path)[0] for path in paths] == expected
    part = documents.read(sources.Range(paths[2], 5, 11), max_bytes=1000)
    assert [x.lines for x in part] == [["fünf"]]
    assert documents.identify_inputs(paths[:1]) == documents.identify_inputs([parquet])
    with one_line("row 1 has no text 'body'"):
        read(paths[0], text_field="body")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("memory://none/*", "no file matches 'memory://none/\\*'"),
        ("s3://bucket/*.txt", "needs a package: Install s3fs"),
        ("nosuch://x", "cannot be read \\(ValueError: Protocol not known: nosuch\\)"),
        ("hf://datasets/me/none/*.parquet", "cannot be read|no file matches"),
    ],
)
def test_what_another_file_system_lacks_is_one_line(memory, site, pattern, message):
    with one_line(message):
        documents.expand_inputs([pattern])


@pytest.fixture
def site(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    with stand_in_hub.serving(tmp_path / "site", monkeypatch) as served:
        monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": served.address})
        HfFileSystem.clear_instance_cache()
        yield served


def test_a_dataset_of_hugging_face(site):
    folder = site.folder / "me" / "texts" / "data"
    folder.mkdir(parents=True)
    write_parquet(folder / "train-0.parquet", {"text": TEXTS, "other": [1, 2, 3]})
    for pattern in ("*/*.parquet", "data/train-*"):
        [path] = documents.expand_inputs([f"hf://datasets/me/texts/{pattern}"])
        assert path == "hf://datasets/me/texts/data/train-0.parquet"
        assert read(path)[0] == LINES
    site.faults = {"/resolve/": lambda request: request.answer(403)}
    HfFileSystem.clear_instance_cache()
    with one_line(r"train-0\.parquet cannot be read .*your access rights"):
        read(path)
