"""Strategies of hostile inputs, and what reads them, for `random_inputs`."""

import dataclasses
import functools
import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hostile_bytes
import tiny_checkpoints
import tiny_texts
from hostile_json import JSON, SCALAR, TEXT, damaged, dump, objects
from hypothesis import strategies as st

from albert_tf import config_io
from albert_tf.checkpoints import archives, formats, native
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.corpus import documents
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.task_data import glue, task_cache
from albert_tf.kinds import base, task_dataset, task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.records import manifest
from albert_tf.tasks import finetuned_model, predictions, recipes
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.normalization import TokenizerConfig
from albert_tf.train import run_folder
from albert_tf.train_config import FinetuneConfig, PretrainConfig


class Target(NamedTuple):
    """What is given random input.

    Attributes:
        cases: strategy.
        read: (case, empty folder).
        weight: its share of the cases.
    """

    cases: st.SearchStrategy
    read: Callable[[Any, Path], Any]
    weight: float = 1.0


CONFIGS = (PretrainConfig, FinetuneConfig, AlbertConfig, DataConfig, TokenizerConfig)
CONFIGS += (tokenization.WordPieceConfig, vocabulary.VocabularyConfig)


def _fields(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _defaults(cls: type) -> dict[str, Any]:
    return json.loads(json.dumps(config_io.to_dict(cls())))


@st.composite
def config_files(draw: Any) -> tuple[type, bytes]:
    cls = draw(st.sampled_from(CONFIGS))
    values = draw(damaged(_defaults(cls)) | objects(_fields(cls)))
    return cls, draw(hostile_bytes.mutated(dump(values)))


def read_config(case: tuple[type, bytes], folder: Path) -> None:
    cls, content = case
    (folder / "config.json").write_bytes(content)
    config_io.load(cls, str(folder / "config.json"))


@st.composite
def overrides(draw: Any) -> tuple[type, list[str]]:
    cls = draw(st.sampled_from((PretrainConfig, FinetuneConfig)))
    names = [*_fields(cls), *(f"albert.{name}" for name in _fields(AlbertConfig)), "albert.a.b"]
    defaults = run_folder.flatten(_defaults(cls))
    kept = st.sampled_from(sorted(defaults)).map(lambda x: f"{x}={json.dumps(defaults[x])}")
    name = st.sampled_from(names) | TEXT
    value = TEXT | JSON.map(json.dumps) | st.sampled_from(["albert_base_v1", "1e999", "[" * 10**5])
    sets = kept | kept | st.builds("{}={}".format, name, value) | TEXT
    return cls, draw(st.lists(sets, min_size=1, max_size=3))


def read_overrides(case: tuple[type, list[str]], folder: Path) -> None:
    cls, values = case
    config_io.load(cls, None, values)
    changes = recipes.ConfigOverrides("none", overrides=tuple(values))
    recipes.resolve_config(task_table.get("sst-2"), None, changes)


COLUMNS = {
    "classification": Columns(),
    "multi_label": Columns(),
    "regression": Columns(),
    "multiple_choice": Columns(second_text="second", choices=("x", "y", "z")),
}
LABELS = {
    "classification": ["no", "yes"],
    "multi_label": ["no", "yes"],
    "multiple_choice": ["A", "B", "C"],
}
CELLS = ["text", "label", "second", "x", "y", "z", "no", "yes", "A", "1.5", "nan", "", "\ufeff"]


@st.composite
def tables(draw: Any) -> tuple[str, str, bytes]:
    kind, suffix = draw(st.sampled_from([*COLUMNS])), draw(st.sampled_from([".tsv", ".csv"]))
    header = ["text", "label", *(["second", "x", "y", "z"] if kind == "multiple_choice" else [])]
    if draw(st.booleans()):
        rows = draw(st.lists(objects(header, SCALAR), max_size=4))
        whole = [dict.fromkeys(header, "yes") | row for row in rows]
        return kind, ".jsonl", draw(hostile_bytes.mutated(b"\n".join(map(dump, whole))))
    cells = st.lists(st.sampled_from(CELLS) | TEXT, min_size=len(header), max_size=len(header) + 1)
    rows = [header, *draw(st.lists(cells, max_size=4))]
    content = "\n".join(("\t" if suffix == ".tsv" else ",").join(row) for row in rows)
    return kind, suffix, draw(hostile_bytes.mutated(content.encode(errors="surrogatepass")))


def read_table(case: tuple[str, str, bytes], folder: Path) -> None:
    kind, suffix, content = case
    path = folder / f"train{suffix}"
    path.write_bytes(content)
    task = task_table.make_own(kind, LABELS.get(kind, ()))
    source = DataSource(columns=COLUMNS[kind])
    task.kind.read(TaskSplit(task=task, name="train", source=source), str(path))


TAGS = ["O", "B-x", "I-x"]


@st.composite
def tagged(draw: Any) -> tuple[str, bytes]:
    suffix = draw(st.sampled_from([".conll", ".conllu", ".tsv", ".jsonl"]))
    if suffix == ".jsonl":
        spans = [{"start": 0, "end": 3, "type": "x"}]
        rows = [
            {"words": ["the", "cat"], "tags": ["O", "B-x"]},
            {"text": "the cat", "spans": spans},
        ]
        lines = draw(st.lists(st.sampled_from(rows).flatmap(damaged), max_size=3))
        return suffix, draw(hostile_bytes.mutated(b"\n".join(map(dump, lines))))
    words = st.sampled_from(["the", "cat", "1", "# text", "-DOCSTART-", "1-2", ""]) | TEXT
    rows = st.tuples(words, st.sampled_from([*TAGS, "O", "I-y", "", "_"])).map("\t".join)
    lines = draw(st.lists(rows | st.just(""), max_size=6))
    content = "\n".join(lines).encode(errors="surrogatepass")
    return suffix, draw(hostile_bytes.mutated(content))


def read_tagged(case: tuple[str, bytes], folder: Path) -> None:
    suffix, content = case
    path = folder / f"train{suffix}"
    path.write_bytes(content)
    task = task_table.make_own("token_classification", TAGS)
    task.kind.read(TaskSplit(task=task, name="train", source=DataSource()), str(path))


QUESTION = {"id": "q", "question": "Who sat?", "is_impossible": False}
QUESTION |= {"answers": [{"text": "cats", "answer_start": 4}, {"text": "sat", "answer_start": 9}]}
PARAGRAPH = {"context": "The cats sat.", "qas": [QUESTION, {**QUESTION, "id": "r"}]}
SQUAD = damaged({"version": "v2.0", "data": [{"title": "x", "paragraphs": [PARAGRAPH]}]})
RACE = damaged(
    {
        "answers": ["A", "D"],
        "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
        "questions": ["What is _ ?", "Who?"],
        "article": "An article.",
        "id": "high1.txt",
    }
)


def read_official(name: str, content: bytes, folder: Path) -> None:
    (folder / "high").mkdir()
    path = folder / "high" / "1.txt"
    path.write_bytes(content)
    split = TaskSplit(task=task_table.get(name), name="dev", input_file=str(path))
    task_cache.read_examples(split)


@st.composite
def glue_files(draw: Any) -> tuple[str, bytes]:
    name = draw(st.sampled_from(sorted(glue.LAYOUTS.keys() - {"ax"})))
    layout, labels = glue.LAYOUTS[name], task_table.get(name).labels or ("2.5",)
    rows = [["a text"] * len(layout.texts) + [draw(st.sampled_from(labels))] for _ in range(3)]
    value = draw(damaged([[*layout.texts, layout.label], *rows]))
    rows = value if isinstance(value, list) else [value]
    lines = ("\t".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows)
    content = "\n".join(lines).encode(errors="surrogatepass")
    return name, draw(hostile_bytes.mutated(content))


@functools.cache
def _checkpoint(name: str) -> dict[str, bytes]:
    """The files of a tiny checkpoint of a format."""
    with tempfile.TemporaryDirectory() as folder:
        formats.get_writer(name)(tiny_checkpoints.make(), folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@st.composite
def checkpoints(draw: Any, name: str, damaged: str) -> dict[str, bytes]:
    contents = dict(_checkpoint(name))
    (file,) = [x for x in contents if x.endswith(damaged)]
    is_binary = damaged == ".safetensors"
    mutate = hostile_bytes.mutated_safetensors if is_binary else hostile_bytes.mutated
    return contents | {file: draw(mutate(contents[file]))}


def read_checkpoint(contents: dict[str, bytes], folder: Path) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    formats.read(str(folder))


@functools.cache
def _archive() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("a/b", "a/c"):
            member = tarfile.TarInfo(name)
            member.size = 600
            archive.addfile(member, io.BytesIO(bytes(600)))
    return content.getvalue()


@st.composite
def archived(draw: Any) -> bytes:
    content = draw(hostile_bytes.mutated(_archive()))
    is_zipped = draw(st.booleans())
    return draw(hostile_bytes.mutated(gzip.compress(content, 1))) if is_zipped else content


def read_archive(content: bytes, folder: Path) -> None:
    (folder / "x.tar.gz").write_bytes(content)
    with archives.open_archive(str(folder / "x.tar.gz")):
        pass


HEADER = {"task": "own", "kind": "classification", "labels": ["a", "b"], "split": "dev"}


@st.composite
def folders_of_records(draw: Any) -> dict[str, bytes]:
    records = draw(st.binary(min_size=40, max_size=60))
    content = {"format": 1, "settings": HEADER, "vocabulary": {"size": 3, "sha256": "x"}}
    content |= {"files": {task_dataset.RECORDS: 1}, "bytes": {task_dataset.RECORDS: len(records)}}
    content["statistics"] = {}
    examples = draw(st.lists(damaged({"id": "0", "label": "a"}), max_size=2))
    lines = b"\n".join(map(dump, examples))
    return {
        manifest.NAME: dump(content),
        task_dataset.EXAMPLES: draw(st.just(lines) | hostile_bytes.mutated(lines)),
        task_dataset.RECORDS: records,
    }


def read_records(contents: dict[str, bytes], folder: Path) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    dataset = task_dataset.read(str(folder))
    assert dataset.best_by
    base.check_ids({x["id"]: x for x in dataset.examples}, {}, "these")


@st.composite
def predictions_files(draw: Any) -> bytes:
    value = {"prediction": "a", "probabilities": [0.5, 0.5]}
    content = HEADER | {"checkpoint": "x", "predictions": {"0": value, "1": value}}
    return dump(draw(damaged(content)))


def read_predictions(content: bytes, folder: Path) -> None:
    (folder / "p.json").write_bytes(content)
    predictions.list_checkpoints(predictions.read(str(folder / "p.json")))


@st.composite
def corpora(draw: Any) -> tuple[str, bytes]:
    suffix = draw(st.sampled_from([".txt", ".jsonl", ".txt.gz", ".jsonl.gz", ".xz", ".parquet"]))
    lines = st.lists(objects(["text"]).map(dump) | TEXT.map(lambda x: x.encode("utf-8", "replace")))
    return suffix, draw(hostile_bytes.compressed(draw(lines), suffix))


def read_corpus(case: tuple[str, bytes], folder: Path) -> None:
    suffix, content = case
    path = folder / f"x{suffix}"
    path.write_bytes(content)
    list(documents.read(str(path), max_bytes=1000))


@st.composite
def vocabularies(draw: Any) -> dict[str, bytes]:
    config = draw(objects(["lower_case", "keep_accents", "compat", "unicode_form"]).map(dump))
    pieces = "\n".join([*tiny_texts.PIECES, *draw(st.lists(TEXT, max_size=4))])
    content = draw(hostile_bytes.mutated(pieces.encode(errors="surrogatepass")))
    return {tokenization.WORDPIECE: content, tokenization.NORMALIZATION: config}


def read_vocabulary(contents: dict[str, bytes], folder: Path) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    tokenizer = tokenization.load(str(folder))
    tokenizer.encode_batch_with_offsets(["the cafe sold 2011,", "[MASK]"])


@functools.cache
def _tokenizers() -> list[Any]:
    return [tiny_texts.sentencepieces(), tiny_texts.wordpieces()]


def encode(text: str, folder: Path) -> None:
    for tokenizer in _tokenizers():
        ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
        assert len(ids) == len(spans)
        assert ids == tokenizer.encode(text)
        assert all(0 <= begin <= end <= len(text) for begin, end in spans)
        tokenizer.decode(tokenizer.encode_with_masks(text))


@st.composite
def runs(draw: Any) -> dict[str, bytes]:
    contents = {"config.json": _defaults(FinetuneConfig), "task.json": HEADER}
    contents |= {"metrics-dev.json": {"checkpoint": "x/model.ckpt-0", "thresholds": {"a": 0.5}}}
    return {name: dump(draw(damaged(content))) for name, content in contents.items()}


def read_run(contents: dict[str, bytes], folder: Path) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    run_folder.read_config(str(folder), FinetuneConfig)
    prefix = str(folder / "model.ckpt-0")
    (folder / "model.ckpt-0.index").touch()
    task_table.from_header(native.read_run(str(folder), prefix).get("task"))
    made = ModelCheckpoint(source=prefix, config=AlbertConfig(), weights={})
    finetuned_model.read_thresholds(made)


TARGETS: dict[str, Target] = {
    "config files": Target(config_files(), read_config, 3),
    "--set": Target(overrides(), read_overrides, 2),
    "files of a run": Target(runs(), read_run),
    "tables": Target(tables(), read_table, 3),
    "tags": Target(tagged(), read_tagged, 2),
    "SQuAD": Target(SQUAD.map(dump), lambda x, folder: read_official("squad2", x, folder), 2),
    "RACE": Target(RACE.map(dump), lambda x, folder: read_official("race", x, folder), 2),
    "GLUE": Target(glue_files(), lambda x, folder: read_official(*x, folder), 2),
    "corpora": Target(corpora(), read_corpus, 2),
    "records": Target(folders_of_records(), read_records, 2),
    "predictions": Target(predictions_files(), read_predictions, 2),
    "vocabularies": Target(vocabularies(), read_vocabulary),
    "texts": Target(st.text(st.characters(exclude_categories=["Cs"])), encode, 2),
    "safetensors": Target(checkpoints("hugging_face", ".safetensors"), read_checkpoint, 2),
    "configs of checkpoints": Target(checkpoints("hugging_face", "config.json"), read_checkpoint),
    "TensorFlow's indices": Target(checkpoints("google", ".index"), read_checkpoint),
    "archives": Target(archived(), read_archive, 2),
}
