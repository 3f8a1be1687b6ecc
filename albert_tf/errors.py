"""The exception that users see, and messages for system errors."""

import os
import re
import reprlib
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

FREE_SPACE = "Free some space and run it again."
OUT_OF_MEMORY = (
    "Out of memory: use smaller batches (train_batch_size, eval_batch_size; micro-batches: "
    "num_micro_batches), fewer processes, or more memory, and run it again."
)
# {text in a system error: the remedy}. TensorFlow's errors have no error number: a full disk and a
# full GPU raise the same class.
_REMEDIES = {
    "No space left on device|Disk quota exceeded": FREE_SPACE,
    "File too large": "Raise the limit on the size of files (ulimit -f) and run it again.",
    "Cannot allocate memory|Could not allocate|can't start new thread": OUT_OF_MEMORY,
    "Input/output error": "Check the disk and run it again.",
    "Too many open files": "Raise the limit (ulimit -n) and run it again.",
    "No such file or directory|Permission denied|Read-only file system": (
        "Use a folder that exists and that you may read and write."
    ),
    "File system scheme": "Use a local path, or gs://....",
    "Error executing an HTTP request": "Check the network, the name and your access rights.",
}

# By name, because TensorFlow may be half imported: errors when one of several machines ends.
_LOST = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
_LOST_MACHINE = (
    "a machine was lost or does not answer. Run the same command again; a training run resumes."
)
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxother = 2, 80


class UserError(ValueError):
    """A user's mistake, in one sentence: what is wrong, and what to do.

    Programs print it as one line and exit with `exit_status`; other errors keep their traceback.
    """

    exit_status = 1
    _keras_call_info_injected = True  # otherwise Keras adds lines with its arguments


class LostWorkerError(UserError):
    """Another machine of the run has stopped. The status tells a scheduler to start again."""

    exit_status = os.EX_TEMPFAIL


def require(condition: bool, message: str) -> None:
    """Raises `UserError` with the message unless the condition holds."""
    if not condition:
        raise UserError(message)


def name_programs(text: str) -> str:
    """Returns a text with bin/ programs as the user calls them, such as `albert-tf predict`."""
    is_command = os.path.dirname(sys.argv[0]).endswith(os.path.join("albert_tf", "bin"))
    return re.sub(r"(?<![^\s'`(])bin/(?=[a-z])", "albert-tf ", text) if is_command else text


def suggest(word: str, known: Mapping[str, str]) -> str:
    """Returns "Did you mean ...?" with the name of the known word nearest to `word`, or ""."""
    import difflib  # takes a millisecond, only needed for mistakes

    close = difflib.get_close_matches(word, known, 1)
    return f"Did you mean {known[close[0]]!r}?" if close else ""


def to_one_line(value: object) -> str:
    """Returns a value in one line for a message: texts in full, anything else shortened."""
    if isinstance(value, str):
        return repr(value)
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def show_fields(value: Any) -> str:
    """Returns the type and shortened fields of a dataclass or named tuple in one line."""
    names = getattr(value, "_fields", None) or value.__dataclass_fields__
    fields = (f"{name}={to_one_line(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({', '.join(fields)})"


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raises `UserError` unless the value of the field `name` is one of the choices."""
    require(value in choices, f"{name}: {to_one_line(value)} is not one of {', '.join(choices)}.")


def find_remedy(error: BaseException) -> str | None:
    """Returns the remedy for a disk or memory error; None for other errors."""
    message = reason(error)
    for cause, remedy in _REMEDIES.items():
        if re.search(cause, message):
            return remedy
    # A full GPU and an oversized protobuf message raise the same class.
    is_full = type(error).__name__ == "ResourceExhaustedError"
    is_full = is_full and bool(re.search("OOM|alloc|memory", str(error)))
    return OUT_OF_MEMORY if is_full or isinstance(error, MemoryError) else None


def assertion_message(error: Exception) -> str:
    """Returns the sentence of a failed check, which TensorFlow puts into brackets, or a reason."""
    match = re.search(r"assertion failed: \[(.*?)\]", str(error))
    return match[1] if match else reason(error)


def reason(error: BaseException) -> str:
    """Returns the line of an error with a known remedy, or its first informative line."""
    text = re.sub(r"\{\{function_node .*?\}\}| \[Op:.*", "", str(error))
    lines = [line.strip() for line in text.splitlines()]
    places = ("Graph execution error", "Detected at ", "<stack traces", 'File "', "[[{{node")
    known = [line for line in lines if re.search("|".join(_REMEDIES), line)]
    said = [line for line in lines if line and not line.startswith(places)]
    return (known or said or [type(error).__name__])[0]


def describe_end(error: BaseException) -> tuple[int, str]:
    """Returns a program's exit status and the line that it prints; no line for a bug."""
    if isinstance(error, UserError):
        return error.exit_status, to_line(error)
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT, "interrupted. Run the same command again."
    remedy, kind = find_remedy(error), type(error).__name__
    if kind in _LOST and remedy != FREE_SPACE:
        return os.EX_TEMPFAIL, f"{reason(error)} ({kind}): {_LOST_MACHINE}"
    # For these two classes, only a library or thread without memory; others are bugs.
    is_defect = isinstance(error, ImportError | RuntimeError) and remedy != OUT_OF_MEMORY
    return 1, f"{reason(error)}. {remedy}" if remedy and not is_defect else ""


def to_line(error: UserError) -> str:
    """Returns a user's mistake in one line, even if it mentions a file name with line breaks."""
    return "\\n".join(name_programs(str(error)).splitlines())
