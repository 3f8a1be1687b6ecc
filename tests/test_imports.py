"""One table of the allowed imports between folders. A new file needs a folder of the table."""

import ast
import graphlib
import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("albert_tf", "data_prep", "export")
# A folder, and the other folders of this repository that it may import; the lowest first.
# "face" is albert_tf/__init__.py alone: the names of docs/python.md.
TABLE = """\
albert_tf:
albert_tf/tokenizers: albert_tf
albert_tf/records: albert_tf albert_tf/tokenizers
albert_tf/model: albert_tf albert_tf/records
albert_tf/kinds/spans: albert_tf albert_tf/records albert_tf/tokenizers
albert_tf/kinds/tables: albert_tf albert_tf/kinds/spans albert_tf/tokenizers
albert_tf/kinds: albert_tf albert_tf/kinds/spans albert_tf/kinds/tables albert_tf/model
    albert_tf/records albert_tf/tokenizers
albert_tf/optim: albert_tf
albert_tf/objectives: albert_tf albert_tf/model albert_tf/records albert_tf/tokenizers
albert_tf/checkpoints: albert_tf albert_tf/kinds albert_tf/model albert_tf/records
    albert_tf/tokenizers
albert_tf/train: albert_tf albert_tf/checkpoints albert_tf/kinds albert_tf/model
    albert_tf/objectives albert_tf/optim albert_tf/records albert_tf/tokenizers
albert_tf/tasks: albert_tf albert_tf/checkpoints albert_tf/kinds albert_tf/records
    albert_tf/tokenizers albert_tf/train data_prep/task_data
albert_tf/pipelines: albert_tf albert_tf/checkpoints albert_tf/kinds albert_tf/model
    albert_tf/objectives albert_tf/records albert_tf/tasks albert_tf/tokenizers albert_tf/train
    data_prep data_prep/corpus data_prep/task_data
albert_tf/predict: albert_tf albert_tf/checkpoints albert_tf/kinds albert_tf/kinds/spans
    albert_tf/kinds/tables albert_tf/model albert_tf/pipelines albert_tf/records albert_tf/tasks
    albert_tf/tokenizers albert_tf/train data_prep/corpus data_prep/task_data export export/requests
albert_tf/serving: albert_tf albert_tf/kinds albert_tf/predict albert_tf/records export
face: albert_tf albert_tf/model albert_tf/optim albert_tf/predict albert_tf/tokenizers
data_prep/corpus: albert_tf
data_prep/pretraining_data: albert_tf albert_tf/records albert_tf/tokenizers data_prep/corpus
data_prep/task_data: albert_tf albert_tf/kinds albert_tf/kinds/spans albert_tf/kinds/tables
    albert_tf/records albert_tf/tokenizers data_prep/corpus data_prep/pretraining_data
data_prep: albert_tf albert_tf/tokenizers data_prep/corpus
export/graph_tokenizer: albert_tf/tokenizers
export/requests: albert_tf albert_tf/kinds/spans albert_tf/records albert_tf/tokenizers
    export/graph_tokenizer
export: albert_tf albert_tf/checkpoints albert_tf/kinds albert_tf/kinds/spans albert_tf/model
    albert_tf/records albert_tf/tasks albert_tf/tokenizers export/graph_tokenizer export/requests
export/onnx: albert_tf albert_tf/checkpoints albert_tf/kinds albert_tf/model albert_tf/records
    albert_tf/tasks albert_tf/train data_prep/task_data export
export/step: albert_tf albert_tf/model albert_tf/objectives albert_tf/plan albert_tf/records
    albert_tf/train
albert_tf/plan: albert_tf
"""
ALLOWED: dict[str, set[str]] = {
    folder: set(others.split())
    for folder, _, others in (row.partition(":") for row in TABLE.replace("\n  ", "").splitlines())
}
FREE_OF_KERAS = {
    *("albert_tf", "albert_tf/tokenizers", "albert_tf/records", "albert_tf/kinds"),
    *("albert_tf/kinds/spans", "albert_tf/kinds/tables", "albert_tf/plan"),
    *("data_prep", "data_prep/pretraining_data", "data_prep/task_data"),
}
# They run with jax, and without this project.
FREE_OF_TENSORFLOW = {"export/step/run_step.py", "export/step/wrap_step.py"}
LARGEST_FOLDER = 17
MODULES = {
    path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
PROGRAMS = sorted(
    path for path in (ROOT / "bin").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env py")
)


def imported_names(tree, *, with_hints=True):
    """Returns the dotted names that a module imports, at the top or inside a function.

    Hints are names that only a type checker imports.
    """
    hints = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not with_hints and id(node) in hints:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(path, *, with_hints=True):
    """Returns the modules of this repository that a module imports."""
    actual = set()
    for name in imported_names(MODULES[path], with_hints=with_hints):
        parts = name.split(".")
        if parts[0] == "albert_tf" and parts[1:2] and parts[1] in PACKAGES:
            parts = parts[1:]  # `albert_tf/export` is a link to `export`
        if parts[0] in PACKAGES:
            ends = [Path("/".join(parts[:end]) + ".py") for end in (len(parts), len(parts) - 1)]
            actual.add(next((end for end in ends if end in MODULES), Path(parts[0], "__init__.py")))
    return actual - {path}


def room(path):
    """Returns the folder of a module in the table."""
    return "face" if path == Path("albert_tf/__init__.py") else str(path.parent)


def test_a_module_imports_what_its_folder_may_and_every_edge_is_used():
    used: dict[str, set[str]] = {folder: set() for folder in ALLOWED}
    for path in MODULES:
        folder = room(path)
        assert folder in ALLOWED, f"{folder} is not in the table"
        edges = {room(p) for p in imported_modules(path)} - {folder}
        assert edges <= ALLOWED[folder], path
        used[folder] |= edges
    assert used == ALLOWED


def test_modules_are_free_of_what_the_table_says():
    for path, tree in MODULES.items():
        names = set(imported_names(tree))
        packages = {name.split(".")[0] for name in names}
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if str(path.parent) in FREE_OF_KERAS:
            assert "keras" not in packages | attributes, path
        if str(path) in FREE_OF_TENSORFLOW:
            assert not packages & {"tensorflow", "absl", "albert_tf"}, path
        if path.name not in ("program.py", "setting_flags.py"):  # flags of a program's dataclass
            assert "absl.flags" not in names, path


def test_neither_the_table_nor_the_modules_have_a_cycle():
    assert list(graphlib.TopologicalSorter(ALLOWED).static_order())
    # A kind has its data, which have tasks in their hints, and a task has its kind.
    graph = {path: imported_modules(path, with_hints=False) for path in MODULES}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(MODULES)


def test_a_folder_is_not_crowded():
    for folder in ALLOWED.keys() - {"face", "albert_tf"}:  # the top folder has all others
        entries = [
            entry
            for entry in (ROOT / folder).iterdir()
            if entry.suffix == ".py"
            or (entry.is_dir() and not entry.is_symlink() and entry.name != "__pycache__")
        ]
        names = [entry for entry in entries if entry.name != "__init__.py"]
        assert 0 < len(names) <= LARGEST_FOLDER, folder


def test_names_of_modules_are_unique():
    names = [path.stem for path in MODULES if path.stem != "__init__"]
    assert sorted(names) == sorted(set(names))


def test_programs_are_executable():
    assert all(os.access(path, os.X_OK) for path in PROGRAMS)
