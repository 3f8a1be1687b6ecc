"""ALBERT in TensorFlow 2 and Keras 3: from raw text to a served model.

    import albert_tf

    model = albert_tf.load("albert/albert-base-v2")
    model.fill_mask(["The [MASK] of France is Paris."])

docs/python.md describes these names. Each is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from albert_tf import lazy_tensorflow
from albert_tf.model import keras_classes

if TYPE_CHECKING:
    from albert_tf.config import PRESETS as PRESETS
    from albert_tf.config import AlbertConfig as AlbertConfig
    from albert_tf.errors import UserError as UserError
    from albert_tf.model.albert_model import Albert as Albert
    from albert_tf.model.albert_model import AlbertForPretraining as AlbertForPretraining
    from albert_tf.model.task_model import AlbertForTask as AlbertForTask
    from albert_tf.optim.lamb import Lamb as Lamb
    from albert_tf.predict.loaded_model import Guess as Guess
    from albert_tf.predict.loaded_model import LoadedModel as LoadedModel
    from albert_tf.predict.loaded_model import load as load
    from albert_tf.tokenizers.tokenization import Tokenizer as Tokenizer

_MODULES = {
    "Albert": "model.albert_model",
    "AlbertConfig": "config",
    "AlbertForPretraining": "model.albert_model",
    "AlbertForTask": "model.task_model",
    "Guess": "predict.loaded_model",
    "Lamb": "optim.lamb",
    "LoadedModel": "predict.loaded_model",
    "PRESETS": "config",
    "Tokenizer": "tokenizers.tokenization",
    "UserError": "errors",
    "load": "predict.loaded_model",
}
__all__ = sorted(_MODULES)
keras_classes.register()
lazy_tensorflow.turn_off_ynn()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] not in ("config", "errors"):
        lazy_tensorflow.require_backend()
        lazy_tensorflow.load()
    return getattr(importlib.import_module(f"albert_tf.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
