"""The command `albert-tf`, whose subcommands are the programs of bin/."""

import ast
import importlib.metadata
import re
import runpy
import sys
from pathlib import Path

from albert_tf.errors import name_programs, suggest

# A link in a clone, a folder in the wheel.
PROGRAMS = Path(__file__).parent / "bin"
# The Python programs, by purpose.
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
    ),
    "Checkpoints and exports": (
        "convert_checkpoint",
        "export_saved_model",
        "export",
    ),
    "Answers and scores": ("predict", "score", "demo", "serve"),
}
# Names that users expect to be programs.
_WORDS = {
    "fill_mask": "predict",
    "classify": "predict",
    "embed": "predict",
    "train": "run_pretraining",
    "evaluate": "evaluate_pretraining",
    "convert": "convert_checkpoint",
    "onnx": "export --format=onnx",
    "litert": "export --format=litert",
}


def main() -> None:
    """Runs the program in the first argument, with the other arguments as its flags."""
    programs = [name for names in STAGES.values() for name in names]
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    sys.argv[0] = str(PROGRAMS / name)
    if name == "--version":
        print(f"albert-tf {importlib.metadata.version('albert-tf')}")
        return
    if name in ("-h", "--help", "help"):
        from albert_tf import program

        with program.printing():
            print(describe_programs())
    elif name not in programs:
        commands = re.findall(r"bin/(data (\w+))", (PROGRAMS / "data").read_text(encoding="utf-8"))
        words = {word: command for command, word in commands} | _WORDS
        hint = suggest(name, {x: x for x in programs} | words)
        hint = hint or "albert-tf --help lists the programs."
        sys.exit(f"albert-tf: there is no program {name!r}. {hint}")
    else:
        del sys.argv[1]
        runpy.run_path(str(PROGRAMS / name), run_name="__main__")


def describe_programs() -> str:
    """Returns the programs by stage, each with the first line of its docstring."""
    lines = ["albert-tf PROGRAM [FLAGS]; albert-tf PROGRAM --help shows examples and flags."]
    for stage, names in STAGES.items():
        lines += ["", stage]
        for name in names:
            tree = ast.parse((PROGRAMS / name).read_text(encoding="utf-8"))
            lines.append(f"  {name:24s}{(ast.get_docstring(tree) or '').splitlines()[0]}")
    lines += [
        "",
        "A model of your own table, which has columns of texts and labels:",
        "  bin/run_finetuning --train_file=reviews.csv --init_checkpoint=albert/albert-base-v2",
        "  bin/predict --model=runs/reviews --text='The soup was cold.'",
    ]
    return name_programs("\n".join(lines))


if __name__ == "__main__":
    main()
