"""The one exception that a user sees, and the checks that raise it."""

from collections.abc import Sequence


class UserError(ValueError):
    """A mistake of the user's: one sentence that names the thing and the remedy.

    Programs print it as a single line and exit with status 1 (see `albert_tf.program`). Every other
    exception is our own mistake and keeps its traceback.
    """


def require(condition: bool, message: str) -> None:
    """Raises `UserError` with the message unless the condition holds."""
    if not condition:
        raise UserError(message)


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raises `UserError` unless the value of the field `name` is one of the choices."""
    require(value in choices, f"{name}: {value!r} is not one of {', '.join(choices)}.")


def reason(error: Exception) -> str:
    """What an error of TensorFlow's comes down to, in one line.

    Errors of graphs begin with where in the graph, and end with it once more.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    places = ("Graph execution error", "Detected at ", "<stack traces", 'File "', "[[{{node")
    said = [line for line in lines if line and not line.startswith(places)]
    return said[0] if said else type(error).__name__
