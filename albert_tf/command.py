"""The command `albert-tf`, whose subcommands are the programs of bin/."""

import ast
import difflib
import importlib.metadata
import os
import runpy
import sys
from pathlib import Path

# A link in a clone, a folder in the wheel.
PROGRAMS = Path(__file__).parent / "bin"
QUICKSTART = "quickstart"  # of a clone: it needs files that are in no wheel
# The programs in Python, by what they are for.
STAGES = {
    "Text and records": (
        "data",
        "train_vocabulary",
        "extend_vocabulary",
        "create_pretraining_data",
        "create_finetuning_data",
    ),
    "Training": (
        "plan_training",
        "run_pretraining",
        "evaluate_pretraining",
        "run_finetuning",
        "run_experiments",
    ),
    "Checkpoints and exports": (
        "convert_checkpoint",
        "export_saved_model",
        "export",
    ),
    "Answers and scores": ("predict", "search", "score", "demo", "serve"),
}


def main() -> None:
    """Runs the program that the first argument names, with the others as its flags."""
    programs = [name for names in STAGES.values() for name in names]
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    quickstart = PROGRAMS / QUICKSTART
    if name == "--version":
        print(f"albert-tf {importlib.metadata.version('albert-tf')}")
        return
    if name == QUICKSTART and quickstart.exists():
        os.execv(quickstart, [str(quickstart), *sys.argv[2:]])
    if name in ("-h", "--help", "help"):
        from albert_tf import program

        with program.printing():
            print(describe_programs())
    elif name not in programs:
        close = difflib.get_close_matches(name, programs, 1)
        hint = f"Did you mean {close[0]!r}?" if close else "albert-tf --help lists the programs."
        sys.exit(f"albert-tf: there is no program {name!r}. {hint}")
    else:
        sys.argv = [f"albert-tf {name}", *sys.argv[2:]]
        runpy.run_path(str(PROGRAMS / name), run_name="__main__")


def describe_programs() -> str:
    """Returns the programs by stage, each with the first line of its docstring."""
    lines = ["albert-tf PROGRAM [FLAGS]; albert-tf PROGRAM --help lists its flags."]
    if (PROGRAMS / QUICKSTART).exists():
        lines += ["", "First", f"  {QUICKSTART:24s}Trains, fine-tunes and exports a small ALBERT."]
    for stage, names in STAGES.items():
        lines += ["", stage]
        for name in names:
            tree = ast.parse((PROGRAMS / name).read_text(encoding="utf-8"))
            lines.append(f"  {name:24s}{(ast.get_docstring(tree) or '').splitlines()[0]}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
