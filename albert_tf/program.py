"""Starts and ends every program of `bin/`: flags, logging, errors in one line."""

import io
import logging as standard_logging
import os
import signal
import sys
from collections.abc import Callable

import tensorflow as tf
from absl import app, logging

from albert_tf.errors import UserError

# TensorFlow's errors have no number to tell them by: that of a full disk is that of a full GPU.
_REMEDIES = {
    "No space left on device": "Free some space and run it again.",
    "Disk quota exceeded": "Free some space and run it again.",
    "No such file or directory": "Make the folder first.",
    "Permission denied": "Take a folder that you may read and write.",
    "is not a directory": "Take another folder.",
    "Read-only file system": "Take a folder that you may write.",
}


def run(main: Callable[[list[str]], None]) -> None:
    """Parses flags and calls `main`; a user's mistake is one line on stderr and exit status 1."""
    start_logging()
    app.run(lambda argv: _report_mistakes(main, argv))


def start_logging() -> None:
    """Sends `absl.logging` from INFO on to stderr, a line each, without TensorFlow's own INFO.

    Answers of a program go to stdout. What several workers would say alike, the chief says alone
    (see `devices.quiet_other_workers`).
    """
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(_Formatter())
    handler.python_handler.stream = _Stderr()
    if _is_of_interest not in handler.python_handler.filters:
        handler.python_handler.addFilter(_is_of_interest)


class _Formatter(standard_logging.Formatter):
    def format(self, record: standard_logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > standard_logging.INFO else ""
        return level + record.getMessage()


class _Stderr(io.TextIOBase):
    """The current `sys.stderr`, which tests replace."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)


def _is_of_interest(record: standard_logging.LogRecord) -> bool:
    # TensorFlow reports at INFO how long it took to shard each checkpoint.
    return record.levelno > standard_logging.INFO or "tensorflow" not in record.pathname


def _report_mistakes(main: Callable[[list[str]], None], argv: list[str]) -> None:
    name = os.path.basename(sys.argv[0])
    try:
        _refuse_broken_text(sys.argv)
        if len(argv) > 1:
            raise UserError(
                f"not flags: {' '.join(argv[1:])}. "
                "Join several files with commas and quote patterns: --input_files='a.txt,b/*.txt'."
            )
        main(argv)
    except UserError as error:
        sys.exit(f"{name}: {error}")
    except (OSError, tf.errors.OpError) as error:
        message = str(error).partition("\n")[0]
        for reason, remedy in _REMEDIES.items():
            if reason in message:
                sys.exit(f"{name}: {message}. {remedy}")
        raise
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _refuse_broken_text(arguments: list[str]) -> None:
    """Python hands bytes that are not UTF-8 on as halves of characters, which nobody reads."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(f"not UTF-8: {argument!r}. Write it in UTF-8.") from None
