"""What is exported, and how: the flags of the programs that export."""

import dataclasses

from albert_tf.errors import require_choice, require_count
from albert_tf.kinds import task_table
from albert_tf.run_files import BEST, WHICH
from albert_tf.train_config import POOLINGS

DTYPES = ("float32", "bfloat16")
# The keys of `litert.OPTIMIZATIONS`.
QUANTIZATIONS = ("none", "dynamic", "float16")
# The keys of `model_kinds.KINDS`.
KIND_NAMES = (
    *("encoder", "sentence_embedding", "fill_mask"),
    *(task_table.CLASSIFICATION, task_table.REGRESSION, task_table.MULTIPLE_CHOICE),
    *(task_table.SPAN, task_table.SPAN_OR_NONE),
    *(task_table.TOKEN_CLASSIFICATION, task_table.MULTI_LABEL),
)

# Of a text in a request. More than all windows of a context hold; a thousand times as much would
# take minutes, and gigabytes that a server never gives back.
MAX_TEXT_BYTES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """What is exported; its fields are flags, hence the wording.

    Attributes:
        checkpoint: run, folder, prefix or archive
        which: checkpoint of a run: its best (the newest, if none was evaluated), or its newest
        kind: default: the task of the run
        labels: in the order of their ids; default: those of the run
        pooling: of sentence_embedding: which tokens; default: as trained, else mean
        normalize: of sentence_embedding: vectors of length 1
        top_k: of fill_mask: guesses for each [MASK]; default: 5
        overrides: key=value of the run's config, max_seq_length or doc_stride, say; repeatable
    """

    checkpoint: str
    which: str = dataclasses.field(default=BEST, metadata={"choices": WHICH})
    kind: str | None = dataclasses.field(default=None, metadata={"choices": KIND_NAMES})
    labels: tuple[str, ...] = ()
    pooling: str | None = dataclasses.field(default=None, metadata={"choices": POOLINGS})
    normalize: bool = False
    top_k: int | None = dataclasses.field(default=None, metadata={"lower_bound": 1})
    overrides: tuple[str, ...] = dataclasses.field(
        default=(), metadata={"flag": "set", "repeatable": True}
    )

    def __post_init__(self) -> None:
        for name, choices in (("kind", KIND_NAMES), ("pooling", POOLINGS)):
            if (value := getattr(self, name)) is not None:
                require_choice(name, value, choices)
        if self.top_k is not None:
            require_count("top_k", self.top_k)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """What is exported for a server, and how; flags, too.

    Attributes:
        source: the model
        dtype: of weights and products
        null_threshold: null odds above it mean that there is no answer; default: the best of the
            run's dev set, or 0
        text: answer raw text, too; false: token ids alone
        max_text_bytes: longest text of a request, in UTF-8; a longer one is refused
    """

    source: SourceConfig
    dtype: str = dataclasses.field(default="float32", metadata={"choices": DTYPES})
    null_threshold: float | None = None
    text: bool = True
    max_text_bytes: int = dataclasses.field(default=MAX_TEXT_BYTES, metadata={"lower_bound": 1})

    def __post_init__(self) -> None:
        require_choice("dtype", self.dtype, DTYPES)
