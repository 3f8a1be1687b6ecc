"""Collects the English prose that ships with every Python: a small corpus without a download.

    python examples/quickstart_corpus.py quickstart_run/corpus.txt

It is the topics of the language reference and the docstrings of the standard library and of the
installed packages, read from source files without importing them: one sentence a line, and a blank
line after each document.
"""

import inspect
import itertools
import random
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics

import sentencex
import tqdm

CORPUS_BYTES = 8e6  # of the text, about
_NO_PROSE = {"test", "tests", "testing", "site-packages", "_vendor"}
_STRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_MARKUP = re.compile(r":\w+:(?=`)|[`*]|<[^<> ]*>|^[A-Z]\w+:\s")
# A paragraph is prose if it begins and ends like a sentence and holds nothing like code.
_PROSE = re.compile(r"[A-Z]\S* .*\w[.!?]", re.DOTALL)
_CODE = re.compile(r"[{}=<>|\\#@$^~]|::|\.\. |--|\w\(\S|/\S*/|__|\w\.\w\w")


def read_documents() -> Iterator[str]:
    """Yields documents of a sentence a line, one for each topic or file; no paragraph occurs twice.

    The order is random, and always the same with the same packages.
    """
    seen: set[str] = set()
    progress = tqdm.tqdm(_find_source_files(), "reading", unit=" files", disable=None)
    for text in itertools.chain(topics.topics.values(), map(_read_docstrings, progress)):
        new = [line for line in dict.fromkeys(_find_paragraphs(text)) if line not in seen]
        seen.update(new)
        if new:
            yield "".join(f"{s.strip()}\n" for line in new for s in sentencex.segment("en", line))


def _find_source_files() -> list[Path]:
    paths = [
        path
        for root in (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
        for path in sorted(root.rglob("*.py"))
        if _NO_PROSE.isdisjoint(path.relative_to(root).parts)
    ]
    random.Random(0).shuffle(paths)
    return paths


def _read_docstrings(path: Path) -> str:
    """Returns the triple-quoted strings of a source file."""
    return "\n\n".join(_STRING.findall(path.read_text(encoding="utf-8", errors="ignore")))


def _find_paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs of prose, each as one line without markup."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        line = " ".join(_MARKUP.sub("", paragraph).split())
        if len(line.split()) >= 8 and _PROSE.fullmatch(line) and not _CODE.search(line):
            yield line


def main() -> None:
    [path] = sys.argv[1:]
    corpus, size = [], 0
    for document in read_documents():
        corpus.append(document)
        size += len(document)
        if size > CORPUS_BYTES:
            break
    Path(path).write_text("\n".join(corpus), encoding="utf-8")
    print(f"{path}: {len(corpus)} documents, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
