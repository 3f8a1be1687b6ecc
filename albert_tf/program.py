"""How every program in `bin/` starts and ends."""

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
    # TensorFlow tells of every checkpoint how long it took to cut it up.
    logging.set_verbosity(logging.WARNING)
    app.run(lambda argv: _report_mistakes(main, argv))


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
