"""Who may import whom: the data side stays free of Keras, and only the assemblies assemble."""

import ast
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("albert_tf", "data_prep", "export", "plan")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).glob("*.py"))
PROGRAMS = sorted(
    path for path in (ROOT / "bin").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env py")
)
# The part of albert_tf that the data side uses.
SHARED = {
    *("checks", "cleaning", "config", "errors", "features", "files", "manifest", "prepared"),
    *("program", "sentencepieces", "tasks", "token_lengths", "tokenization"),
    *("windows", "wordpieces"),
}
ASSEMBLIES = {"finetuning", "pretraining"}
FORBIDDEN_PACKAGES = {
    "albert_tf": {"data_prep", "export", "plan"},
    "data_prep": {"export", "keras", "plan"},
    "export": {"data_prep", "plan"},
    "plan": {"data_prep", "export", "jax"},
}
# Programs that run with jax, in an environment without TensorFlow.
OF_JAX = sorted((ROOT / "plan" / "jax_side").glob("*.py"))


def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path):
    """Returns the dotted names that a source file imports, at the top or inside a function."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def imported_modules(path, package):
    """Returns which modules of a package a source file imports: {"config"} for albert_tf.config."""
    parts = [name.split(".") for name in imports(path)]
    return {part[1] for part in parts if part[0] == package and len(part) > 1}


def for_each(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(ROOT)))


@for_each(MODULES)
def test_packages_know_only_what_is_below_them(path):
    packages = {name.split(".")[0] for name in imports(path)}
    assert not packages & FORBIDDEN_PACKAGES[path.parent.name]


@for_each([path for path in MODULES if path.parent.name == "data_prep" or path.stem in SHARED])
def test_the_data_side_is_free_of_keras(path):
    assert imported_modules(path, "albert_tf") <= SHARED
    assert "keras" not in {name.split(".")[0] for name in imports(path)}
    attributes = {node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    assert "keras" not in attributes


@for_each([path for path in MODULES if path.parent.name == "albert_tf"])
def test_no_module_imports_an_assembly(path):
    assert not imported_modules(path, "albert_tf") & ASSEMBLIES


@for_each(OF_JAX)
def test_what_runs_with_jax_knows_neither_tensorflow_nor_us(path):
    packages = {name.split(".")[0] for name in imports(path)}
    assert not packages & {"absl", "keras", "tensorflow", *PACKAGES}


@for_each(MODULES)
def test_flags_are_for_programs(path):
    assert "flags" not in imported_modules(path, "absl")


@for_each(PROGRAMS)
def test_programs_are_executable_and_show_a_command(path):
    assert os.access(path, os.X_OK)
    assert f"bin/{path.name} --" in ast.get_docstring(tree(path))


def test_the_patterns_find_the_sources():
    assert {path.name for path in MODULES} >= {"config.py", "model.py", "pretraining.py"}
    assert {path.name for path in OF_JAX} >= {"compile_step.py"}
    assert {path.name for path in PROGRAMS} >= {"run_pretraining", "build_quickstart_corpus"}
