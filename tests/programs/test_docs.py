"""docs/datum.md runs as a doctest; docs/walks.md names functions that exist."""

import ast
import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (`.*`) \| `(\S+\.py)`", (ROOT / "docs" / "walks.md").read_text(), re.MULTILINE
)


def test_the_life_of_one_sentence():
    results = doctest.testfile(
        str(ROOT / "docs" / "datum.md"), module_relative=False, optionflags=doctest.ELLIPSIS
    )
    assert results.attempted > 30
    assert results.failed == 0


@pytest.mark.parametrize(("functions", "path"), sorted(set(ROWS)))
def test_walks_name_functions_that_exist(functions, path):
    tree = ast.parse((ROOT / path).read_text())
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    for function in re.findall(r"`(.*?)`", functions):
        assert names.issuperset(function.split("."))
