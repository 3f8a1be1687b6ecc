"""What the documentation shows is what happens."""

import doctest
import pathlib

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_the_life_of_one_sentence():
    found = doctest.testfile(
        str(DOCS / "datum.md"), module_relative=False, optionflags=doctest.ELLIPSIS
    )
    assert found.attempted > 30
    assert found.failed == 0
