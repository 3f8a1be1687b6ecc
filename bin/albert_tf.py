"""Says how to install the packages if a program in bin/ does not find them.

Python searches the program's folder first, and so imports this module, which then makes way for the
package of the same name.
"""

import os
import sys
from types import TracebackType


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints errors like Python, but a missing third-party package in one line."""
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("albert_tf."):
        remedy = "First: source .venv/bin/activate (docs/install.md)"
        print(f"{os.path.basename(sys.argv[0])}: {error}. {remedy}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = show
sys.path.remove(os.path.dirname(__file__))
del sys.modules[__name__]
import albert_tf  # noqa: E402, F401
