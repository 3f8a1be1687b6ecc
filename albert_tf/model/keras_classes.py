"""Registers the classes of `.keras` files with Keras without importing Keras or the classes.

Keras only finds foreign classes that are registered, and registering would import them.
"""

import importlib
import importlib.abc
import sys
from typing import Any

_MODULES = {
    "Albert": "model.albert_model",
    "AlbertForPretraining": "model.albert_model",
    "AlbertForTask": "model.task_model",
    "AdamW": "optim.lamb",
    "Lamb": "optim.lamb",
    "WarmupDecay": "optim.optimizers",
}


class _LaterClass:
    """A placeholder in Keras's table; importing the class replaces it."""

    def __init__(self, name: str):
        self.name = name

    def from_config(self, config: dict[str, Any], **options: Any) -> Any:
        module = importlib.import_module(f"albert_tf.{_MODULES[self.name]}")
        return getattr(module, self.name).from_config(config, **options)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Keras like the other finders; once imported, Keras has the classes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "keras":
            return None
        finders = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (x.find_spec(name, path, target) for x in finders)), None)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                _register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _register(library: Any) -> None:
    table = library.saving.get_custom_objects()
    for name in _MODULES:
        table.setdefault(f"albert_tf>{name}", _LaterClass(name))


def register() -> None:
    """Registers the classes now, or as soon as Keras is imported."""
    if library := sys.modules.get("keras"):  # None if a program hides it
        _register(library)
    else:
        sys.meta_path.insert(0, _Finder())
