"""Two pages run as doctests; docs/research/walks.md names functions that exist."""

import ast
import doctest
import re
import tarfile

import pytest
import tiny_checkpoints
import tiny_exports
import tiny_run
from repository import ROOT


def run_page(name):
    options = {"module_relative": False, "optionflags": doctest.ELLIPSIS}
    results = doctest.testfile(str(ROOT / "docs" / name), **options)
    assert results.attempted > 30
    assert results.failed == 0


def test_the_life_of_one_sentence():
    run_page("research/datum.md")


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """A folder, now the current one, with the checkpoints that docs/python.md loads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    pretrained = tiny_checkpoints.make(vocabulary)
    for folder, name in (("", "albert_tf"), ("google", "google"), ("hugging_face",) * 2):
        tiny_checkpoints.write(tmp_path / folder / "albert_base", pretrained, name)
    with tarfile.open("albert_base.tar.gz", "w:gz") as archive:
        archive.add("google/albert_base", "albert_base")
    reviews = tiny_exports.contents("classification", vocabulary)
    tiny_checkpoints.write("hugging_face/reviews", reviews, "hugging_face")
    for name, kind, more in (
        ("reviews", "classification", {"has_pairs": False}),
        ("similarity", "regression", {"has_pairs": True}),
        ("squad1", "span", {}),
        ("race", "multiple_choice", {}),
    ):
        path = tmp_path / "runs" / name
        tiny_exports.write_run(path, kind, vocabulary, more=more, max_query_length=3)


@pytest.mark.full
@pytest.mark.usefixtures("checkpoints", "eagerly")
def test_the_python_page():
    run_page("python.md")


def test_walks_name_functions_that_exist():
    page = (ROOT / "docs" / "research" / "walks.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| `(\S+\.py)`", page, re.MULTILINE)
    assert rows
    for functions, path in rows:
        tree = ast.parse((ROOT / path).read_text())
        defined = ast.FunctionDef | ast.ClassDef
        names = {node.name for node in ast.walk(tree) if isinstance(node, defined)}
        names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
        assigned = [x for node in tree.body if isinstance(node, ast.Assign) for x in node.targets]
        names |= {x.id for x in assigned if isinstance(x, ast.Name)}
        for function in re.findall(r"`(.*?)`", functions):
            assert names.issuperset(function.split(".")), (path, function)
