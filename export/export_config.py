"""What is exported, and how: the flags of the programs that export."""

import dataclasses

from albert_tf import settings
from albert_tf.kinds import task_table
from albert_tf.settings import AnyFloat, overrides_setting, setting, which_setting
from albert_tf.train_config import POOLINGS, FinetuneConfig

DTYPES = ("float32", "bfloat16")
# The keys of `onnx_folder.LAYOUTS` and `litert.QUANTIZATIONS`.
LAYOUTS = ("hub", "root")
QUANTIZATIONS = ("none", "dynamic", "float16")
KIND_NAMES = tuple(task_table.MODELS)

# Of a text in a request. More than all windows of a context hold; a thousand times as much would
# take minutes, and gigabytes that a server never gives back.
MAX_TEXT_BYTES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """What is exported; its fields are flags, hence the wording."""

    checkpoint: str = setting("run, folder, prefix or archive")
    which: str = which_setting()
    kind: str | None = setting("default: the task of the run", None, choices=KIND_NAMES)
    labels: tuple[str, ...] = setting("label names in id order; default: those of the run", ())
    pooling: str | None = setting(
        "of sentence_embedding: which tokens; default: as trained, else mean",
        None,
        choices=POOLINGS,
    )
    normalize: bool = setting("of sentence_embedding: vectors of length 1", False)
    top_k: int | None = setting("of fill_mask: guesses for each [MASK]; default: 5", None)
    overrides: tuple[str, ...] = overrides_setting(
        FinetuneConfig, "the run's config, max_seq_length or doc_stride, say"
    )

    def __post_init__(self) -> None:
        settings.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """What is exported for a server, and how; flags, too."""

    source: SourceConfig
    dtype: str = setting("of weights and products", "float32", choices=DTYPES)
    null_threshold: AnyFloat | None = setting(
        "null odds above it mean that there is no answer; default: the best of the run's dev "
        "set, or 0",
        None,
    )
    text: bool = setting("answer raw text, too; false: token ids alone", True)
    signatures: str = setting(
        "one: only token ids, with the outputs of the network, as Spark NLP reads a model",
        "all",
        choices=("all", "one"),
    )
    max_text_bytes: int = setting(
        "longest text of a request, in UTF-8; a longer one is refused", MAX_TEXT_BYTES
    )

    def __post_init__(self) -> None:
        settings.check(self)
