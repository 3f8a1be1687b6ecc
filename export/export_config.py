"""The flags of the programs that export: what is exported, and how."""

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

# For each text of a request. More than all windows of a context hold; a thousand times as much
# would take minutes, and gigabytes that a server never frees.
MAX_TEXT_BYTES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """What is exported; the fields are flags, hence the wording."""

    checkpoint: str = setting("run, folder, prefix or archive")
    which: str = which_setting()
    kind: str | None = setting("default: the task of the run", None, choices=KIND_NAMES)
    labels: tuple[str, ...] = setting("label names in id order; default: the run's", ())
    pooling: str | None = setting(
        "sentence_embedding: which tokens; default: as trained, otherwise mean",
        None,
        choices=POOLINGS,
    )
    normalize: bool = setting("sentence_embedding: embeddings of length 1", False)
    top_k: int | None = setting("fill_mask: guesses for each [MASK]; default: 5", None)
    overrides: tuple[str, ...] = overrides_setting(
        FinetuneConfig, "the run's config, max_seq_length or doc_stride, say"
    )

    def __post_init__(self) -> None:
        settings.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """What is exported for a server, and how; the fields are flags as well."""

    source: SourceConfig
    dtype: str = setting("dtype of weights and matrix products", "float32", choices=DTYPES)
    null_threshold: AnyFloat | None = setting(
        'null odds above it mean "no answer"; default: the best on the run\'s dev set, or 0',
        None,
    )
    text: bool = setting("also accept raw text; false: only token ids", True)
    signatures: str = setting(
        "one: only token ids, with the network's outputs, as Spark NLP needs",
        "all",
        choices=("all", "one"),
    )
    max_text_bytes: int = setting(
        "longest text in a request, in UTF-8; longer texts are refused", MAX_TEXT_BYTES
    )

    def __post_init__(self) -> None:
        settings.check(self)
