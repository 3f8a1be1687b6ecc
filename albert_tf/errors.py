"""The one exception that a user sees, and the checks that raise it."""

import difflib
import os
import re
import reprlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FREE_SPACE = "Free some space and run it again."
OUT_OF_MEMORY = (
    "Memory has run out: take smaller batches (train_batch_size, eval_batch_size; micro-batches: "
    "num_micro_batches), fewer processes, or more memory, and run it again."
)
# {what an error of the machine says: the remedy}. TensorFlow's errors have no number to tell them
# by: a full disk and a full GPU raise the same class.
_REMEDIES = {
    "No space left on device|Disk quota exceeded": FREE_SPACE,
    "Cannot allocate memory|Could not allocate|can't start new thread": OUT_OF_MEMORY,
    "Input/output error": "Check the disk and run it again.",
    "Too many open files": "Raise the limit (ulimit -n) and run it again.",
    "No such file or directory|Permission denied|Read-only file system": (
        "Use a folder that exists and that you may read and write."
    ),
    "File system scheme": "Use a path on this machine, or in gs://.",
    "Error executing an HTTP request": "Check the network, the name and your rights to it.",
}

# First bytes of files that are often given in place of text.
_NO_TEXT = {
    b"\x1f\x8b": "is compressed: unpack it (gunzip).",
    b"PK\x03\x04": "is a zip archive or a spreadsheet: unpack it, or save it as csv.",
    b"\xff\xfe": "is UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8).",
    b"\xfe\xff": "is UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8).",
}
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxother = 2, 80


class UserError(ValueError):
    """A mistake of the user's: one sentence that names the thing and the remedy.

    Programs print it as one line and exit with `exit_status`; others keep their traceback.
    """

    exit_status = 1
    _keras_call_info_injected = True  # else Keras adds lines with the arguments of its call


class LostWorkerError(UserError):
    """Another machine of the run has stopped. The status tells a scheduler: start me again."""

    exit_status = os.EX_TEMPFAIL


def require(condition: bool, message: str) -> None:
    """Raises `UserError` with the message unless the condition holds."""
    if not condition:
        raise UserError(message)


def name_programs(text: str) -> str:
    """Returns a text with the programs of bin/ as the user calls them: `albert-tf predict`, say."""
    is_command = os.path.dirname(sys.argv[0]).endswith(os.path.join("albert_tf", "bin"))
    return re.sub(r"(?<![^\s'`(])bin/(?=[a-z])", "albert-tf ", text) if is_command else text


def suggest(word: str, known: Mapping[str, str]) -> str:
    """Returns the question whether the name of the known word nearest to `word` is meant, or ""."""
    close = difflib.get_close_matches(word, known, 1)
    return f"Did you mean {known[close[0]]!r}?" if close else ""


def to_one_line(value: object) -> str:
    """Returns the value in one line for a message: a text whole, anything else shortened."""
    if isinstance(value, str):
        return repr(value)
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def show_fields(value: Any) -> str:
    """Returns the type and the shortened fields of a dataclass or a named tuple in one line."""
    names = getattr(value, "_fields", None) or value.__dataclass_fields__
    fields = (f"{name}={to_one_line(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({', '.join(fields)})"


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raises `UserError` unless the value of the field `name` is one of the choices."""
    require(value in choices, f"{name}: {to_one_line(value)} is not one of {', '.join(choices)}.")


def require_range(name: str, value: float, lowest: float, highest: float) -> None:
    """Raises `UserError` unless the field `name` is in the range, which NaN never is."""
    require(value >= lowest, f"{name} must be at least {lowest}.")
    require(value <= highest, f"{name} must be at most {highest}.")


def require_backend() -> None:
    """Raises `UserError` if Keras computes with another library than TensorFlow, or would."""
    name = os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # above ~/.keras/keras.json
    if library := sys.modules.get("keras"):
        name = library.config.backend()
    remedy = "Set KERAS_BACKEND=tensorflow before the first import of Keras."
    require(name == "tensorflow", f"Keras's backend is {name!r}; ALBERT needs TensorFlow. {remedy}")


def refuse_endless(path: str, name: str) -> None:
    """Raises `UserError` for a pipe (`<(zcat x)`) or a device, which would be read as empty."""
    is_endless = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    message = f"{name}: {path!r} is a pipe or a device. Write its content to a file."
    require(not is_endless, message)


def refuse_other_format(content: bytes, place: str) -> None:
    """Raises `UserError` if a file begins as one that is often given in place of text."""
    for start, remedy in _NO_TEXT.items():
        require(not content.startswith(start), f"{place} {remedy}")


def to_text(content: bytes, place: str) -> str:
    """Decodes UTF-8; `UserError`, with the place and line, if it is not text."""
    refuse_other_format(content, place)
    end = content.find(b"\0")
    problem = "there is a NUL byte, which no text has"
    if end < 0:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            problem, end = "this is not UTF-8", error.start
    line = content.count(b"\n", 0, end) + 1
    remedy = "Convert the file to UTF-8 (iconv -t UTF-8), or remove the byte."
    raise UserError(f"{place}, line {line}: {problem}. {remedy}")


def refuse_twice(
    pairs: list[tuple[str, Any]], among: Sequence[str] | None = None
) -> dict[str, Any]:
    """A JSON object, given its pairs; `ValueError` if a key, `among` these, is there twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        for key, number in Counter(key for key, _ in pairs).items():
            if number > 1 and (among is None or key in among):
                raise ValueError(f"the key {key!r} is there twice")
    return content


def refuse_output(path: str, name: str, inputs: Iterable[str] = ()) -> None:
    """Raises `UserError`, before any work, if a file cannot be written, or is one of the inputs."""
    if "://" in path:
        return
    require(not os.path.isdir(path), f"{name}: {path!r} is a folder. Name a file.")
    parent = os.path.dirname(path) or "."
    require(os.path.isdir(parent), f"{name}: there is no folder {parent!r}. Make it first.")
    _try_to_write(parent, path, name)
    for file in inputs if os.path.exists(path) else ():
        if os.path.exists(file) and os.path.samefile(file, path):
            raise UserError(f"{name}: {path!r} is among the inputs. Name another file.")


def refuse_output_folder(path: str, name: str) -> None:
    """Raises `UserError`, before any work, if a folder that is missing cannot be made."""
    place = path
    while place and not os.path.lexists(place):
        place = os.path.dirname(place)
    if "://" in path or (place == path and os.path.isdir(path)):
        return
    require(os.path.isdir(place or "."), f"{name}: {place!r} is not a folder. Name another.")
    _try_to_write(place or ".", path, name)


def _try_to_write(folder: str, path: str, name: str) -> None:
    """Raises `UserError`, which names `path`, if nothing can be made in a folder."""
    try:
        os.rmdir(tempfile.mkdtemp(dir=folder))
    except OSError as error:  # rights do not tell: root has all of them, and /proc takes no file
        raise UserError(
            f"{name}: {path!r} cannot be written ({error.strerror}). Name another place."
        ) from None


def find_remedy(error: Exception) -> str | None:
    """Returns the remedy for an error of the disk or the memory; None for another error."""
    message = reason(error)
    for cause, remedy in _REMEDIES.items():
        if re.search(cause, message):
            return remedy
    # A full GPU and a protobuf message that is too long raise the same class.
    is_full = type(error).__name__ == "ResourceExhaustedError"
    is_full = is_full and bool(re.search("OOM|alloc|memory", str(error)))
    return OUT_OF_MEMORY if is_full or isinstance(error, MemoryError) else None


def find_sentence(error: Exception) -> str:
    """Returns the sentence of a failed check, which TensorFlow puts into brackets, or a reason."""
    match = re.search(r"assertion failed: \[(.*?)\]", str(error))
    return match[1] if match else reason(error)


def reason(error: Exception) -> str:
    """The line of an error with a known remedy, or the first of more than a place in a graph."""
    text = re.sub(r"\{\{function_node .*?\}\}| \[Op:.*", "", str(error))
    lines = [line.strip() for line in text.splitlines()]
    places = ("Graph execution error", "Detected at ", "<stack traces", 'File "', "[[{{node")
    known = [line for line in lines if re.search("|".join(_REMEDIES), line)]
    said = [line for line in lines if line and not line.startswith(places)]
    return (known or said or [type(error).__name__])[0]
