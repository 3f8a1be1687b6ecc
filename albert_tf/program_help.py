"""What a program says of itself: its purpose, examples and common flags; the rest on request."""

import re
import textwrap
from collections.abc import Collection, Iterator
from typing import Any

from albert_tf import setting_flags
from albert_tf.setting_flags import FIELDS, OWN

SCREEN = 40  # lines
_WIDTH = 100


def describe(description: str, *, whole: bool) -> str:
    """Returns the text of --help, which fits on a screen, or the `whole` one of --helpfull.

    Common flags are the required ones, and those in the examples of the description.
    """
    named = set(re.findall(r"--(?:no)?(\w+)", "\n".join(_list_examples(description))))
    own, fields = setting_flags.list_flags(OWN), setting_flags.list_flags(FIELDS)
    common = [x for x in own if setting_flags.is_required(x) or x.name in named]
    others = [x for x in own if x not in common]
    text, listed = description.strip(), ["", "Common flags:", *_list(common)]
    more = ["", "More flags:", *_list(others)] if others else []
    if fields:
        more += ["", "Fields of the config:", *_list(fields)]
    if whole or len(text.splitlines()) + len(listed) + len(more) <= SCREEN:
        return "\n".join([text, *listed, *more])
    end = f"{len(others)} more flags"
    if fields:
        end += f" and {len(fields)} fields of the config, such as --max_seq_length=128"
    listed += ["", f"--helpfull describes {end}."]
    return "\n".join([shorten(text, SCREEN - len(listed)), *listed])


def shorten(description: str, room: int) -> str:
    """Returns the first line of a description and its examples if it has more lines than `room`."""
    lines = description.strip().splitlines()
    short = "\n\n".join([lines[0], *_list_examples(description)])
    return "\n".join(lines) if len(lines) <= room else short


def select(description: str, command: str, commands: Collection[str]) -> str:
    """Returns the description of a program with the examples and paragraphs of one command only."""
    kept, is_kept = [], True
    for paragraph in description.split("\n\n"):
        first = re.match(r"(\w+): ", paragraph)
        is_kept = first[1] == command if first and first[1] in commands else is_kept
        if re.match(r"    bin/", paragraph):
            examples = re.split(r"\n(?=    \S)", paragraph)
            word = rf"[\s=]{command}\s"
            paragraph = "\n".join(x for x in examples if re.search(word, x))
        kept += [paragraph] if is_kept and paragraph else []
    return "\n\n".join(kept)


def _list_examples(description: str) -> list[str]:
    paragraphs = description.strip().split("\n\n")
    return [x for x in paragraphs if re.search(r"^    (bin/|albert-tf )", x, re.MULTILINE)]


def _list(some: list[Any]) -> Iterator[str]:
    """Yields the lines of flags, with their choices and defaults."""
    for flag in some:
        name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
        choices = getattr(flag.parser, "enum_values", None)
        text = flag.help.partition(";\n")[0]  # absl says of some that they are repeatable
        text = f"{'|'.join(choices)}: {text}" if choices else text
        if flag.flag_type().startswith("comma"):
            text += " (commas between several)"
        if flag.default not in (None, "", [], False):
            default = ",".join(flag.default) if isinstance(flag.default, list) else flag.default
            text += f" (default: {default})"
        head = f"  {name:22s}  "
        yield from textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=head,
            subsequent_indent=" " * 26,
            break_on_hyphens=False,
            break_long_words=False,
        )
