"""Rules of the whole tree: pinned requirements, short files, programs that explain themselves."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pages
import program_flags
import pytest
from packaging.requirements import Requirement

from albert_tf import command, config_io, program_help
from albert_tf.train_config import FinetuneConfig, PretrainConfig

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted(
    path for path in (ROOT / "bin").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env py")
)


def pins(file):
    """Returns the exact requirements that hold here of a requirements file, by name."""
    results = {}
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("-r "):
            results |= pins((ROOT / file).parent / line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            requirement = Requirement(line)
            assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), f"{file}: {line}"
            if requirement.marker is None or requirement.marker.evaluate():
                results[requirement.name] = str(requirement.specifier).removeprefix("==")
    return results


@pytest.mark.parametrize("file", ["requirements.txt", "albert_tf/environments/tf220.txt"])
def test_every_dependency_of_the_package_is_pinned_in_its_range(file):
    dependencies = [Requirement(text) for text in importlib.metadata.requires("albert-tf")]
    pinned = pins(file)
    for dependency in dependencies:
        if dependency.marker is None:  # not of an extra
            assert dependency.specifier.contains(pinned[dependency.name])
    assert len(dependencies) > 5


def test_other_requirements_are_pinned_and_all_are_on_the_page_of_installation():
    paths = [*ROOT.glob("requirements*.txt"), *ROOT.glob("albert_tf/environments/*.txt")]
    page = (ROOT / "docs" / "install.md").read_text()
    for path in paths:
        assert f"`{path.name}`" in page, path.name
    for path in (*paths, ROOT / "examples/tpu_compile/requirements.txt"):
        assert pins(str(path.relative_to(ROOT))), path


COMMANDS = [(path, words) for path in PROGRAMS for words in program_flags.read_commands(path)]


def test_every_command_is_shown_in_the_docstring_of_its_program():
    for path, words in COMMANDS:
        example = " ".join([f"bin/{path.name}", *words])
        assert f"    {example} --" in ast.get_docstring(ast.parse(path.read_text())), example


@pytest.mark.parametrize("words", ["predict", "data phonemize", "export --format=onnx"])
def test_helpfull_shows_every_flag(words, run_program, capsys):
    name, *first = words.split()
    assert run_program(ROOT / "bin" / name, *first, "--helpfull") == 0
    shown = capsys.readouterr().out
    assert f"bin/{words} --" in shown
    for flag in program_flags.read(ROOT / "bin" / name, tuple(first)):
        assert re.search(rf"^  --(\[no\])?{flag} ", shown, re.MULTILINE), flag


def test_help_fits_on_a_screen_with_an_example_and_the_required_flags(run_program, capsys):
    for path, words in COMMANDS:
        assert run_program(path, *words, "--help") == 0
        shown = capsys.readouterr().out
        assert len(shown.splitlines()) <= program_help.SCREEN, (path.name, words)
        assert f"\n    {' '.join([f'bin/{path.name}', *words])} --" in shown
        for flag, is_needed in program_flags.read(path, words).items():
            assert f"\n  --{flag} " in shown or not is_needed, (path.name, flag)


def test_help_and_mistakes_in_flags_do_not_wait_for_tensorflow():
    """Nor print what it logs while it is imported: one process reads all programs without it."""
    code = """
import runpy, sys
sys.modules.update(dict.fromkeys(("tensorflow", "keras", "jax", "torch", "transformers")))
for path in sys.argv[1:]:
    runpy.run_path(path, run_name="program_to_inspect")
"""
    done = subprocess.run([sys.executable, "-c", code, *PROGRAMS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# What a command needs beside its required flags, to come to the file that is not there.
NEEDS = {
    "evaluate_pretraining": ["--eval_files=nowhere"],
    "extend_vocabulary": ["--pieces=nowhere"],
    "create_finetuning_data": ["--task=sst-2", "--data_dir=nowhere"],
    "export --format=int8": ["--output_dir=x", "--task=sst-2", "--data_dir=nowhere"],
    "plan_training": ["--config=nowhere"],
    "predict": ["--text=x"],
    "serve": ["--model=nowhere", "--port=0"],
    "run_finetuning": ["--task=sst-2", "--data_dir=nowhere", "--init_checkpoint=nowhere"],
    "score predictions": ["--task=sst-2"],
    "data extract_passages": ["--squad_file=nowhere"],
    "export --format=step": ["--config=nowhere"],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "words"), COMMANDS, ids=lambda x: x.name if isinstance(x, Path) else " ".join(x)
)
def test_a_file_that_is_not_there_is_one_line(path, words, run_program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    needed = [name for name, is_needed in program_flags.read(path, words).items() if is_needed]
    given = [f"--{name}=nowhere" for name in needed]
    shown = run_program(path, *words, *given, *NEEDS.get(" ".join([path.name, *words]), []))
    assert isinstance(shown, str)
    assert "nowhere" in shown
    assert "\n" not in shown
    assert not list(tmp_path.iterdir())


def test_flags_have_the_names_of_the_table_in_contributing_md():
    """An input, an output, a model that answers, and weights that something else is made of."""
    flags = {
        (path.name, *words): program_flags.read(path, words).keys() for path, words in COMMANDS
    }
    used = set().union(*flags.values())
    outputs = {x for x in used if "output" in x} | (used & {"to", "from", "workdir", "target"})
    assert outputs == {"output", "output_dir"}
    assert {x for x in used if x.startswith("input")} == {"input"}
    others = {x for x in used if "second" in x or x.endswith("pair")}
    assert others == {"second_text", "second_text_column"}
    answering = {words[0] for words, names in flags.items() if "model" in names}
    assert answering == set(command.STAGES["Answers and scores"]) - {"score"}
    assert not [words for words, names in flags.items() if {"model", "checkpoint"} <= names]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_a_python_without_the_packages_is_told_to_activate_the_environment(path):
    done = subprocess.run([sys.executable, "-S", path], capture_output=True, text=True)
    message = "No module named 'albert_tf'. First: source .venv/bin/activate (docs/install.md)"
    assert (done.returncode, done.stderr) == (1, f"{path.name}: {message}\n")


def test_every_program_has_a_stage():
    staged = [name for names in command.STAGES.values() for name in names]
    assert sorted(staged) == [path.name for path in PROGRAMS]


def test_no_checkpoint_is_tracked():
    """Programs that are tried in this folder leave such things, which then go in by mistake."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a clone")
    tracked = done.stdout.splitlines()
    assert "README.md" in tracked
    checkpoints = r"\.(index|data-\d+-of-\d+|model|safetensors)$"
    found = {os.path.dirname(name) for name in tracked if re.search(checkpoints, name)}
    assert found <= {"examples/albert_tiny_english", "examples/albert_tiny_sentences"}


@pytest.mark.parametrize("name", ["quickstart", "test"])
def test_shell_programs_refuse_stray_arguments_in_one_line(name):
    done = subprocess.run([ROOT / "bin" / name, "stray"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    shown = subprocess.run([ROOT / "bin" / name, "--help"], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout[:6] in ("Trains", "Checks")


PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
FRONT = ("README.md", "BUILD.md", "CONTRIBUTING.md")
EXAMPLES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*.md"))

PROGRAM_NAMES = [f"bin/{path.name}" for path in PROGRAMS]
DOCUMENTED = {
    **{name: pages.read_blocks(name) for name in (*FRONT, *EXAMPLES, *PAGES)},
    **{name: pages.read_examples(name) for name in PROGRAM_NAMES},
}
DOCUMENTED = {name: list(pages.split(text)) for name, text in DOCUMENTED.items()}
CONFIGS = {"bin/run_pretraining": PretrainConfig, "bin/run_finetuning": FinetuneConfig}


@pytest.mark.parametrize("document", [name for name, lines in DOCUMENTED.items() if lines])
def test_commands_in_the_docs_are_understood(document):
    """Programs and files of the repository exist; flags, their values and configs are valid.

    tests/programs/test_build.py runs those of the pages that end within seconds.
    """
    for line in DOCUMENTED[document]:
        for word in line:
            path = word.rpartition("=")[2]
            if re.match(r"(bench|configs|docs|environments|examples|tests)/", path):
                assert (ROOT / path).exists() or path.endswith(".svg"), line
        start = next((i for i, x in enumerate(line) if x in PROGRAM_NAMES), None)
        if start is not None:
            is_part = "..." in line and document in PROGRAM_NAMES
            (_check_names if is_part else _check_flags)(*line[start:])
        elif line[0] == "python" and line[1].endswith(".py"):
            names = {word[2:].partition("=")[0] for word in line if word.startswith("--")}
            source = (ROOT / line[1]).read_text()
            assert all(f'"{x}"' in source or f'"--{x}"' in source for x in names), line


def _check_flags(program, *arguments):
    values = program_flags.parse(ROOT / program, arguments)
    starts = values.get("continue_from") or values.get("grow_from")
    path = values.get("config") and ROOT / values["config"]
    if program in CONFIGS and not starts and (not path or path.exists()):
        config_io.load(CONFIGS[program], path and str(path), values["set"])


def _check_names(program, *arguments):
    """Of a command that leaves out what another one has."""
    known = {name for flag in program_flags.read(ROOT / program) for name in (flag, f"no{flag}")}
    known |= {"format"} if program == "bin/export" else set()
    assert {x[2:].partition("=")[0] for x in arguments if x.startswith("--")} - {
        "",
        "help",
    } <= known


def test_commands_within_sentences_have_flags_that_programs_have():
    for document in (*FRONT, *EXAMPLES, *PAGES):
        for text in re.findall(r"(?<!`)`(bin/[^`]*)`(?!`)", (ROOT / document).read_text()):
            [line] = pages.split(text.replace("\n", " "))
            if line[0] in PROGRAM_NAMES:
                _check_names(*line)


def test_documents_have_commands():
    assert sum(map(len, DOCUMENTED.values())) >= 95


def test_every_page_is_in_the_table_of_pages_and_every_link_leads_somewhere():
    """BUILD.md leads to each page except those of docs/research/."""
    links = set(re.findall(r"\]\((docs/\w+\.md)\)", (ROOT / "BUILD.md").read_text()))
    assert links == {name for name in PAGES if name.count("/") == 1}
    for document in (*FRONT, *EXAMPLES, *PAGES):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text()):
            assert (ROOT / document).parent.joinpath(link).exists(), (document, link)
