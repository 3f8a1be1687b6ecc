"""Sends what a program logs to stderr, a line each."""

import io
import logging as standard_logging
import sys

from absl import logging

from albert_tf.errors import name_programs


def start() -> None:
    """Sends `absl.logging` from INFO on to stderr, and only warnings of other libraries.

    Answers of a program go to stdout. Of several workers only the chief logs at INFO (see
    `devices.choose_strategy`).
    """
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    standard_logging.getLogger("tensorflow").setLevel(standard_logging.WARNING)
    handler = logging.get_absl_handler()
    handler.setFormatter(_Formatter())
    handler.python_handler.stream = _Stderr()
    handler.python_handler.addFilter(_is_of_interest)


class _Formatter(standard_logging.Formatter):
    def format(self, record: standard_logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno > standard_logging.INFO else ""
        return level + name_programs(record.getMessage())


class _Stderr(io.TextIOBase):
    """Writes to the current `sys.stderr`, which tests replace, above a progress bar."""

    def write(self, text: str) -> int:
        if bars := sys.modules.get("tqdm"):
            bars.tqdm.write(text, file=sys.stderr, end="")
        else:
            sys.stderr.write(text)
        return len(text)


def _is_of_interest(record: standard_logging.LogRecord) -> bool:
    # Libraries report each request at INFO, and TensorFlow how long it took to shard a checkpoint.
    is_ours = record.name == "absl" and "tensorflow" not in record.pathname
    return record.levelno > standard_logging.INFO or is_ours
