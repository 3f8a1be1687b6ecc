"""Configs of training runs: common fields, pre-training fields and fine-tuning fields."""

import dataclasses
import math
from typing import Annotated, Any

from msgspec import Meta

from albert_tf import settings
from albert_tf.config import AlbertConfig
from albert_tf.errors import require, require_choice
from albert_tf.settings import AboveZero, Count, Length, Share, Size, setting

PAIR_TASKS = ("sop", "nsp")
SENTENCE_TASKS = (*PAIR_TASKS, "none", WORDS_BEHIND := "phonemes")
# Whether records hold masks, or training draws them while reading.
STATIC, ONLINE = MASKINGS = ("static", "online")
LONGEST_ONLINE_NGRAM = 16  # the time per batch grows with it
# What is masked along with a token of a minimal pair: the rest of its word, or nothing.
PAIR_RULES = ("within_word", "original")
POOLINGS = ("mean", "cls", "pooler")
SIMILARITIES, COSINE = VECTOR_LOSSES = ("similarities", "cosine")
BALANCED = "balanced"
DTYPES = ("float32", "mixed_bfloat16")
LINEAR = "linear"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The fields of every training run. Defaults are the paper's for pre-training."""

    albert: AlbertConfig = dataclasses.field(
        default_factory=AlbertConfig,
        metadata={"help": "the model; in a file, also the name of a preset"},
    )
    max_seq_length: int = setting("S", 512)
    train_batch_size: Size = setting("sequences (or windows) per update, over all replicas", 4096)
    eval_batch_size: Size = setting(
        "sequences per evaluation step, over all replicas", 64, host=True
    )
    num_micro_batches: int = setting(
        "parts into which a replica splits its share of a batch to save memory", 1
    )
    num_train_steps: int = setting("updates", 125_000)
    optimizer: str = setting("LAMB as in the paper, or AdamW", "lamb", choices=("lamb", "adamw"))
    bias_correction: bool = setting(
        "bias correction of the moments, as in LAMB's paper; the published code has none", False
    )
    learning_rate: float = setting("learning rate at the end of the warm-up", 0.00176)
    num_warmup_steps: Count = setting("updates over which the learning rate grows from 0", 3125)
    decay: str = setting(
        "how the learning rate falls to 0 at `num_train_steps`; `1-sqrt` falls fast at first",
        LINEAR,
        choices=(LINEAR, "1-sqrt"),
    )
    num_decay_steps: Count = setting(
        "number of last updates over which it falls, constant before. 0: all, as published", 0
    )
    first_schedule_step: Count = setting(
        "step where warm-up and decay start, to continue a run with a new schedule", 0
    )
    stop_at_step: Count = setting(
        "step where the run ends before its schedule does; 0: `num_train_steps`", 0, host=True
    )
    weight_decay_rate: float = setting(
        "weight decay of all weights except biases and LayerNorm", 0.01
    )
    max_grad_norm: AboveZero = setting(
        "global norm to which the gradient, summed over replicas, is clipped", 1.0
    )
    dtype: str = setting(
        "`mixed_bfloat16`: only matrix products are in bfloat16", "mixed_bfloat16", choices=DTYPES
    )
    rematerialize: bool = setting(
        "recompute activations in the backward pass: less memory, more time", False
    )
    layer_loop: bool = setting(
        "the same, in one loop over layers that share all weights: compiles faster", False
    )
    jit_compile: bool | None = setting(
        "compile the step with XLA. Unset: on for one GPU, off for CPUs", None
    )
    seed: Count = setting("seed of weights, dropout and the order of the data", 12345)
    shuffle_buffer_size: Annotated[int, Meta(ge=1, le=100_000_000)] = setting("records", 10_000)
    steps_per_loop: int = setting(
        "updates on the device before the host reports and reacts to SIGTERM", 100, host=True
    )
    save_checkpoints_steps: int = setting("updates between checkpoints", 5000, host=True)
    eval_steps: Count = setting(
        "updates between evaluations; 0: evaluate only at the end", 5000, host=True
    )
    patience: Count = setting(
        "evaluations without a better score after which training stops; 0: never", 0, host=True
    )
    keep_checkpoint_max: int = setting(
        "number of newest checkpoints to keep, in addition to the best", 5, host=True
    )
    keep_every: Count = setting(
        "updates between checkpoints that are kept forever, in `kept/`; 0: none", 0, host=True
    )
    max_rollbacks: Count = setting(
        "how often to return to the last checkpoint after a non-finite loss before stopping",
        0,
        host=True,
    )

    def __post_init__(self) -> None:
        settings.check(self)
        shares_all = self.albert.cross_layer_sharing == "all" and self.albert.num_hidden_groups == 1
        require(
            not self.layer_loop or shares_all,
            "layer_loop needs identical layers (cross_layer_sharing=all, "
            "num_hidden_groups=1). Use rematerialize=true instead.",
        )
        require(self.eval_steps > 0 or not self.patience, "patience needs eval_steps: set both.")
        schedule_steps = self.num_train_steps - self.first_schedule_step
        first = f" - first_schedule_step {self.first_schedule_step}"
        require(
            self.num_warmup_steps < schedule_steps or not self.num_train_steps,
            f"num_warmup_steps {self.num_warmup_steps} is not below num_train_steps "
            f"{self.num_train_steps}{first if self.first_schedule_step else ''}. Set them.",
        )
        require(
            self.num_warmup_steps + self.num_decay_steps <= schedule_steps
            or not (self.num_decay_steps and self.num_train_steps),
            f"num_decay_steps {self.num_decay_steps} start before the warm-up ends. Lower them, or "
            "raise num_train_steps.",
        )
        require(
            self.max_seq_length <= self.albert.max_position_embeddings,
            f"max_seq_length {self.max_seq_length} is more than albert.max_position_embeddings "
            f"{self.albert.max_position_embeddings}. Shorten the sequences "
            "(--set max_seq_length=) or raise it.",
        )

    @property
    def first_decay_step(self) -> int:
        """The step at which the learning rate starts to fall."""
        length = self.num_decay_steps
        return self.num_train_steps - length if length else self.first_schedule_step

    @property
    def last_step(self) -> int:
        """The step at which the run ends."""
        return min(self.stop_at_step or self.num_train_steps, self.num_train_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of pre-training. Null fields are as in `PretrainConfig`."""

    last_step: int = setting("step where it ends")
    max_seq_length: int | None = None
    max_predictions_per_seq: int | None = None
    train_batch_size: int | None = None
    num_micro_batches: int | None = None
    masked_lm_prob: float | None = None

    def __post_init__(self) -> None:
        settings.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainConfig):
    """One pre-training run. Defaults are the paper's (batch 4096, LAMB, 125,000 updates)."""

    sentence_task: str = setting(
        "learnt in addition to masked tokens, as in the records; `phonemes`: their words",
        "sop",
        choices=SENTENCE_TASKS,
    )
    num_words: int = setting(
        "phonemes: rows of the word head, at least one more than the words in the records", 30000
    )
    max_predictions_per_seq: int = setting("P", 20)
    max_eval_examples: Count = setting(
        "examples per evaluation during training; 0: all", 0, host=True
    )
    masked_lm_prob: Share | None = setting(
        "share of the tokens to mask in records without masks; unset: as in the records. It "
        "changes to the final one as the learning rate falls; unset: it stays",
        None,
    )
    final_masked_lm_prob: Share | None = setting(
        "share of the tokens to mask at `num_train_steps`", None
    )
    initial_output_bias: str = setting(
        "initial output bias; log frequencies: of the tokens",
        "zeros",
        choices=("zeros", "log_frequencies"),
    )
    initial_positions: str = setting(
        "initial position embeddings", "truncated_normal", choices=("truncated_normal", "sinusoids")
    )
    phases: tuple[Phase, ...] = setting(
        "phases in sequence, each on the records with its lengths; none: one phase", ()
    )

    @property
    def head_of_words(self) -> int:
        """The rows of the word head; 0 if the records have no words."""
        return self.num_words if self.sentence_task == WORDS_BEHIND else 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_masking()
        if self.phases:
            ends = [phase.last_step for phase in self.phases]
            require(
                ends == sorted(set(ends)) and ends[-1] == self.num_train_steps,
                f"phases end at the steps {ends}: each must end after the one before, and the last "
                f"at num_train_steps {self.num_train_steps}.",
            )
        self.split_phases()

    def _check_masking(self) -> None:
        shares = [x for x in (self.masked_lm_prob, self.final_masked_lm_prob) if x is not None]
        require(
            not shares or self.masked_lm_prob is not None,
            "final_masked_lm_prob needs masked_lm_prob, where it starts. Set both.",
        )
        most = round(self.max_seq_length * max(shares, default=0.0))
        require(
            most <= self.max_predictions_per_seq,
            f"{max(shares, default=0.0):.3g} of {self.max_seq_length} tokens are {most}, more than "
            f"max_predictions_per_seq {self.max_predictions_per_seq}. Raise it, or lower "
            "masked_lm_prob and final_masked_lm_prob.",
        )

    def split_phases(self) -> list["PretrainConfig"]:
        """The config of each phase, which stops at its end; without phases, this config."""
        if not self.phases:
            return [self]
        configs: list[PretrainConfig] = []
        for phase in self.phases:
            if configs and configs[-1].last_step == self.last_step:
                break
            values = {name: x for name, x in vars(phase).items() if x is not None}
            stop = min(values.pop("last_step"), self.last_step)
            configs.append(dataclasses.replace(self, phases=(), stop_at_step=stop, **values))
        return configs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths:
    """Lengths in tokens that a task's records depend on (see `kinds.token_lengths`)."""

    max_seq_length: int = setting("S", 128)
    max_qa_length: int = setting(
        "multiple choice: longer questions with an option lose their beginning", 128
    )
    doc_stride: int = setting(
        "question answering, token classification: tokens from one window to the next", 128
    )
    max_query_length: int = setting("question answering: longer questions lose their end", 64)
    label_pieces: str = setting(
        "token classification: which tokens of a word are trained",
        "first",
        choices=("first", "all"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TrainConfig, Lengths):
    """One fine-tuning run. The defaults suit your own task; `recipes` has the paper's values."""

    max_seq_length: int = Lengths.max_seq_length
    null_answer: str = setting(
        "questions that may have no answer: `answer_class` is the published head; `null_score` "
        "compares the answer with [CLS], as in BERT",
        "answer_class",
        choices=("answer_class", "null_score"),
    )
    pooling: str = setting(
        "sentence embeddings: the `mean` of all tokens, the first token (`cls`), or the first "
        "through the `pooler`",
        "mean",
        choices=POOLINGS,
    )
    temperature: AboveZero = setting("sentence embeddings: divides the cosines in the loss", 0.05)
    vector_loss: str = setting(
        "sentence embeddings with a teacher: learn its `similarities` of texts, with embeddings of "
        "any size, or, by `cosine`, its embeddings, after a linear layer to their size",
        SIMILARITIES,
        choices=VECTOR_LOSSES,
    )
    embedding_size: Count = setting(
        "sentence embeddings: size after a linear layer; 0: hidden_size, without a layer", 0
    )
    embedding_sizes: tuple[Size, ...] = setting(
        "sentence embeddings with a teacher: sizes to which embeddings may be cut (Matryoshka)", ()
    )
    class_weights: str | tuple[float, ...] = setting(
        "classification: one weight per label, in their order, or `balanced` by the training "
        "data. It multiplies the loss of examples with this label; in multi-label "
        "classification, the loss of a label that applies",
        (),
    )
    teacher_weight: Annotated[float, Meta(ge=0, le=1)] = setting(
        "share of the teacher's answers in the loss; the rest is for the labels", 0.7
    )
    teacher_temperature: AboveZero = setting(
        "classification: softens both probabilities before they are compared", 2.0
    )
    early_exit: bool = setting(
        "one answer per text: learn a head after each layer, so that prediction can stop when "
        "several in a row agree",
        False,
    )
    exit_patience: int | None = setting(
        "how many of these heads in a row must agree with the one before; the number of layers "
        "runs all; unset: the best on the dev set",
        None,
        host=True,
    )
    exit_max_loss: float = setting(
        "maximum drop in dev score (points of 100) when the patience is chosen", 0.0, host=True
    )
    exit_tolerance: AboveZero = setting(
        "regression: values of two heads that differ by less agree", 0.1, host=True
    )
    start_n_top: int = setting("published head: number of starts", 5, host=True)
    end_n_top: int = setting("published head: number of ends per start", 5, host=True)
    n_best_size: int = setting("answers to keep", 20, host=True)
    max_answer_length: int = setting("maximum number of tokens in an answer", 30, host=True)
    train_batch_size: Size = 32
    eval_batch_size: Size = 32
    num_train_steps: Count = setting(
        "updates; 0: `num_train_epochs` passes over the training records", 0
    )
    num_train_epochs: float = setting("used if `num_train_steps` is 0", 3.0)
    num_warmup_steps: Count = setting("updates; 0: `warmup_proportion` of all updates", 0)
    warmup_proportion: float = setting("used if `num_warmup_steps` is 0", 0.1)
    optimizer: str = "adamw"
    learning_rate: float = 2e-5
    shuffle_buffer_size: int = 100_000
    group_by_length: bool = setting(
        "batch texts of similar length, so that there is little padding", True
    )
    steps_per_loop: int = 50
    save_checkpoints_steps: int = 500
    eval_steps: Count = 500
    keep_checkpoint_max: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_class_weights()
        self._check_exits()
        require(self.warmup_proportion < 1, "warmup_proportion must be below 1.")
        require(
            self.num_train_steps > 0 or self.num_train_epochs > 0,
            "num_train_steps and num_train_epochs are both 0: set one of them.",
        )

    def _check_exits(self) -> None:
        layers, patience = self.albert.num_hidden_layers, self.exit_patience
        if not self.early_exit:
            require(patience is None, "exit_patience needs early_exit: set both, or neither.")
            return
        require(layers > 1, "early_exit needs at least two layers. Leave it out.")
        require(not self.layer_loop, "early_exit learns from each layer: leave out layer_loop.")
        message = f"exit_patience {patience} is more than the model's {layers} layers. Lower it."
        require(patience is None or patience <= layers, message)

    def _check_class_weights(self) -> None:
        weights = self.class_weights
        if isinstance(weights, str):
            require_choice("class_weights", weights, (BALANCED,))
        elif weights:
            is_sound = all(math.isfinite(x) and x >= 0 for x in weights) and any(weights)
            require(is_sound, "class_weights: all must be at least 0, and one more than 0.")

    def with_all_layers(self) -> "FinetuneConfig":
        """Returns this config for a model that runs all its layers."""
        return dataclasses.replace(self, early_exit=False, exit_patience=None)

    def with_steps(self, num_records: int) -> "FinetuneConfig":
        """Returns this config with the steps for `num_records` training records.

        Rounds `num_train_steps` and `num_warmup_steps` like the published programs. If steps are
        set, passes and proportion are computed from them.
        """
        passes = num_records / self.train_batch_size
        by_epochs = max(1, int(passes * self.num_train_epochs))
        steps = self.num_train_steps or by_epochs
        by_proportion = int(steps * self.warmup_proportion)
        warmup = self.num_warmup_steps or by_proportion
        changes: dict[str, Any] = {}
        if steps != by_epochs:
            changes["num_train_epochs"] = round(steps / passes, 4)
        if warmup != by_proportion:
            changes["warmup_proportion"] = round(warmup / steps, 4)
        return dataclasses.replace(self, num_train_steps=steps, num_warmup_steps=warmup, **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceVectors:
    """How a model embeds a text; None is the default. The fields are also flags."""

    pooling: str | None = setting(
        "sentence_transformers: mean of the tokens, the first, or the first through the pooler; "
        "default: mean",
        None,
        choices=POOLINGS,
    )
    normalize: bool | None = setting("sentence_transformers: embeddings of length 1", None)
    max_seq_length: Length | None = setting(
        "sentence_transformers: maximum number of tokens per text; default: as in the fine-tuned "
        "run, or all positions",
        None,
    )

    def __post_init__(self) -> None:
        settings.check(self)
