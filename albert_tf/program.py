"""How every program in `bin/` starts and ends."""

import errno
import os
import signal
import sys
from collections.abc import Callable

from absl import app

from albert_tf.errors import UserError


def run(main: Callable[[list[str]], None]) -> None:
    """Parses flags and calls `main`; a user's mistake is one line on stderr and exit status 1."""
    app.run(lambda argv: _report_mistakes(main, argv))


def _report_mistakes(main: Callable[[list[str]], None], argv: list[str]) -> None:
    name = os.path.basename(sys.argv[0])
    try:
        if len(argv) > 1:
            raise UserError(
                f"not flags: {' '.join(argv[1:])}. "
                "Join several files with commas and quote patterns: --input_files='a.txt,b/*.txt'."
            )
        main(argv)
    except UserError as error:
        sys.exit(f"{name}: {error}")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.exit(
            f"{name}: the disk is full ({error.filename or 'while writing'}). "
            "Free some space and run it again."
        )
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
