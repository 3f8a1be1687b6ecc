"""The command `albert-tf`, whose subcommands are the programs of bin/."""

import ast
import difflib
import runpy
import sys
from pathlib import Path

# A link in a clone, a folder in the wheel.
PROGRAMS = Path(__file__).parent / "bin"


def main() -> None:
    """Runs the program that the first argument names, with the others as its flags."""
    programs = list_programs()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help", "help"):
        print("albert-tf PROGRAM [FLAGS]; albert-tf PROGRAM --help lists its flags.\n")
        for program, path in programs.items():
            print(f"  {program:24s}{describe(path)}")
    elif name not in programs:
        close = difflib.get_close_matches(name, programs, 1)
        hint = f"Did you mean {close[0]!r}?" if close else "albert-tf --help lists the programs."
        sys.exit(f"albert-tf: there is no program {name!r}. {hint}")
    else:
        sys.argv = [f"albert-tf {name}", *sys.argv[2:]]
        runpy.run_path(str(programs[name]), run_name="__main__")


def list_programs() -> dict[str, Path]:
    """Returns {name: file} of the programs in Python."""
    paths = sorted(path for path in PROGRAMS.iterdir() if path.is_file())
    return {path.name: path for path in paths if path.read_bytes().startswith(b"#!/usr/bin/env py")}


def describe(path: Path) -> str:
    """Returns the first line of a program's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


if __name__ == "__main__":
    main()
