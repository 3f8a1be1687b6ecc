"""Random configs, overrides and tables by Hypothesis: each works, or is one line."""

import dataclasses
import json
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")  # which needs Python 3.11
import hypothesis
from hypothesis import strategies as st

from albert_tf import config_io, errors
from albert_tf.config import AlbertConfig
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.task_data import task_cache
from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.tasks import recipes
from albert_tf.train_config import FinetuneConfig, PretrainConfig

NUMBER = 60  # cases of a target
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TEXT |= st.sampled_from(["", " ", "\n", "a\tb", '"', "NaN"])
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
SCALAR |= st.sampled_from([-1, 0, 1, 2, 12, 2**31, 2**63, 10**30])
JSON = st.recursive(
    SCALAR, lambda x: st.lists(x, max_size=4) | st.dictionaries(TEXT, x, max_size=4), max_leaves=12
)
CONFIGS = (PretrainConfig, FinetuneConfig, AlbertConfig, DataConfig)
QUESTION = {"id": "q", "question": "Who sat?", "is_impossible": False}
QUESTION |= {"answers": [{"text": "cats", "answer_start": 4}, {"text": "sat", "answer_start": 9}]}
PARAGRAPH = {"context": "The cats sat.", "qas": [QUESTION, {**QUESTION, "id": "r"}]}
SQUAD = {"version": "v2.0", "data": [{"title": "x", "paragraphs": [PARAGRAPH]}]}
TAGS = ["O", "B-x", "I-x"]


def list_places(value, place=()):
    """The ways to all values within a JSON value, but itself."""
    is_list = isinstance(value, list)
    pairs = enumerate(value) if is_list else value.items() if isinstance(value, dict) else ()
    return [x for key, inner in pairs for x in [(*place, key), *list_places(inner, (*place, key))]]


@st.composite
def damaged(draw, value):
    """A JSON value in which up to three values are others, or gone."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(0, 3))):
        *parents, key = draw(st.sampled_from(list_places(value) or [(0,)]))
        inner = value
        for name in parents:
            inner = inner[name]
        if draw(st.booleans()):
            inner[key] = draw(JSON)
        elif inner:
            del inner[key]
    return value


@st.composite
def mutated(draw, content):
    """Bytes with a flipped bit, or cut, now and then."""
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    match draw(st.integers(0, 5)):
        case 0 if content:
            flipped = content[place] ^ 1 << draw(st.integers(0, 7))
            return content[:place] + bytes([flipped]) + content[place + 1 :]
        case 1:
            return content[:place]
    return content


@st.composite
def config_files(draw):
    cls = draw(st.sampled_from(CONFIGS))
    values = draw(damaged(config_io.to_dict(cls())))
    return cls, draw(mutated(json.dumps(values).encode()))


def read_config(case, path):
    cls, content = case
    path.write_bytes(content)
    config_io.load(cls, str(path))


@st.composite
def overrides(draw):
    cls = draw(st.sampled_from((PretrainConfig, FinetuneConfig)))
    names = [x.name for x in dataclasses.fields(cls)]
    names += [f"albert.{x.name}" for x in dataclasses.fields(AlbertConfig)] + ["albert.a.b"]
    value = TEXT | JSON.map(json.dumps) | st.sampled_from(["albert_base_v1", "1e999"])
    sets = st.builds("{}={}".format, st.sampled_from(names) | TEXT, value)
    sets |= st.sampled_from(["seed=3", "learning_rate=0.5", "albert.num_hidden_layers=2"])
    return cls, draw(st.lists(sets, min_size=1, max_size=3))


def read_overrides(case, path):
    cls, values = case
    if cls is PretrainConfig:
        config_io.load(cls, None, values)
    else:
        changes = recipes.ConfigOverrides("none", overrides=tuple(values))
        recipes.resolve_config(task_table.get("sst-2"), None, changes)


@st.composite
def tables(draw):
    """(kind, ending, content): tables of texts and labels, and tagged words."""
    kind = draw(st.sampled_from(["classification", "multi_label", "regression", "tags"]))
    if kind == "tags":
        words = st.sampled_from(["the", "# text", "-DOCSTART-", "1-2", ""]) | TEXT
        cells = st.tuples(words, st.sampled_from([*TAGS, "I-y", ""]))
        header, ending, separator = [], ".conll", "\t"
    else:
        value = SCALAR.map(str) | st.sampled_from(["text", "yes", "1.5", "\ufeff"])
        cells = st.lists(value, min_size=1, max_size=3)
        header, ending = [("text", "label")], draw(st.sampled_from([".tsv", ".csv", ".jsonl"]))
        separator = "," if ending == ".csv" else "\t"
    if ending == ".jsonl":
        rows = draw(st.lists(damaged({"text": "a", "label": "yes"}), max_size=4))
        lines = [*map(json.dumps, rows)]
    else:
        lines = [separator.join(row) for row in [*header, *draw(st.lists(cells, max_size=4))]]
    return kind, ending, draw(mutated("\n".join(lines).encode()))


def read_table(case, path):
    kind, ending, content = case
    path = path.with_suffix(ending)
    path.write_bytes(content)
    labels = {"tags": TAGS, "regression": ()}.get(kind, ["no", "yes"])
    task = task_table.make_own("token_classification" if kind == "tags" else kind, labels)
    split = TaskSplit(task=task, name="train", source=DataSource(columns=Columns()))
    task.kind.data.read(split, str(path))


def read_questions(content, path):
    path.write_bytes(content)
    split = TaskSplit(task=task_table.get("squad2"), name="dev", input_file=str(path))
    task_cache.read_examples(split)


TARGETS = {
    "config files": (config_files(), read_config),
    "--set": (overrides(), read_overrides),
    "tables": (tables(), read_table),
    "SQuAD": (damaged(SQUAD).map(lambda x: json.dumps(x).encode()), read_questions),
}


@pytest.mark.full
@pytest.mark.parametrize("name", TARGETS)
def test_random_input_works_or_is_one_line(name):
    cases, read = TARGETS[name]
    outcomes = set()

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=NUMBER,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases)
    def test(case):
        with tempfile.TemporaryDirectory() as folder:
            try:
                read(case, Path(folder, "case.json"))
                outcomes.add("works")
            except UserError as error:  # any other error is a defect
                assert errors.to_line(error)
                outcomes.add("refused")

    test()
    assert outcomes == {"works", "refused"}
