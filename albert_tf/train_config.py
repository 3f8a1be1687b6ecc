"""Configurations of training runs: the common fields, those of pre-training and of fine-tuning."""

import dataclasses
import math
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.errors import require, require_choice, require_range

SENTENCE_TASKS = ("sop", "nsp", "none")
# Whether records hold masks, or training draws them while it reads.
STATIC, ONLINE = MASKINGS = ("static", "online")
LONGEST_ONLINE_NGRAM = 16  # the time that a batch takes grows with it
NULL_ANSWERS = ("answer_class", "null_score")
POOLINGS = ("mean", "first")
LABEL_PIECES = ("first", "all")
BALANCED = "balanced"
OUTPUT_BIASES = ("zeros", "log_frequencies")
POSITIONS = ("truncated_normal", "sinusoids")
DTYPES = ("float32", "mixed_bfloat16")
# Whole numbers that may be 0; others are at least 1.
MAY_BE_ZERO = {
    *("eval_steps", "max_eval_examples", "max_rollbacks", "num_train_steps", "num_warmup_steps"),
    *("first_schedule_step", "keep_every", "patience", "seed", "stop_at_step"),
}
# What takes memory is bounded: TensorFlow would abort, or fill all of it without a word.
_HIGHEST = {"shuffle_buffer_size": 100_000_000}
_HIGHEST |= {"train_batch_size": 1_000_000, "eval_batch_size": 1_000_000}
_INT32_MAX = 2**31 - 1
# Fields that change checkpointing, evaluation and logging, not the weights: a resumed run may
# change them.
HOST_FIELDS = {
    *("eval_batch_size", "eval_steps", "keep_checkpoint_max", "max_eval_examples", "max_rollbacks"),
    *("keep_every", "patience", "save_checkpoints_steps", "steps_per_loop", "stop_at_step"),
    *("start_n_top", "end_n_top", "n_best_size", "max_answer_length"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The fields of every training run. Subclasses give defaults to those without one."""

    # the model; in a file also the name of a preset
    albert: AlbertConfig = dataclasses.field(default_factory=AlbertConfig)
    max_seq_length: int  # S
    # sequences (of spans, windows) of one update, over all replicas and micro-batches
    train_batch_size: int
    eval_batch_size: int  # sequences of one evaluation step, over all replicas
    # parts into which a replica splits its share of a batch, to save memory
    num_micro_batches: int = 1
    num_train_steps: int  # updates
    optimizer: str  # `lamb` or `adamw`
    bias_correction: bool = False  # of the moments, as in LAMB's paper; the published code has none
    learning_rate: float  # at the end of the warm-up
    num_warmup_steps: int  # updates over which the learning rate grows from 0
    poly_power: float = 1.0  # of the decay to 0 at `num_train_steps`
    # warm-up and decay begin at this step: for a run that goes on with a new schedule
    first_schedule_step: int = 0
    stop_at_step: int = 0  # the run ends here, its schedule later; 0 ends at `num_train_steps`
    weight_decay_rate: float = 0.01  # applied to all weights except biases and LayerNorm
    max_grad_norm: float = 1.0  # the gradient, summed over replicas, is clipped to this global norm
    # `mixed_bfloat16`: products in bfloat16; weights, LayerNorm, softmax and losses in float32
    dtype: str = "mixed_bfloat16"
    # compute activations again in the backward pass: less memory, more time
    rematerialize: bool = False
    # the same in one loop over layers that share all weights: compiles sooner
    layer_loop: bool = False
    # compile the step with XLA. Unset: on for one GPU, off for CPUs
    jit_compile: bool | None = None
    seed: int = 12345  # of weights, dropout and the order of the data
    shuffle_buffer_size: int  # records
    # updates that run on the device before the host reports and answers SIGTERM
    steps_per_loop: int
    save_checkpoints_steps: int  # updates between two checkpoints
    eval_steps: int  # updates between two evaluations; 0 evaluates only at the end
    keep_checkpoint_max: int  # newest checkpoints kept, beside the best
    # updates between two checkpoints that stay, in `kept/`; 0 keeps none
    keep_every: int = 0
    # how often a loss that is not finite returns to the last checkpoint, skipping the data since;
    # then the run stops
    max_rollbacks: int = 0

    def __post_init__(self) -> None:
        require_choice("dtype", self.dtype, DTYPES)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                lowest = 0 if field.name in MAY_BE_ZERO else 1
                require_range(field.name, value, lowest, _HIGHEST.get(field.name, _INT32_MAX))
            elif field.type is float:
                require(math.isfinite(value) and value >= 0, f"{field.name} must be at least 0.")
        shares_all = self.albert.cross_layer_sharing == "all" and self.albert.num_hidden_groups == 1
        require(
            shares_all or not self.layer_loop,
            "layer_loop needs layers that share all their weights (cross_layer_sharing=all, "
            "num_hidden_groups=1). Take rematerialize=true instead.",
        )
        require(self.max_grad_norm > 0, "max_grad_norm must be more than 0.")
        schedule_steps = self.num_train_steps - self.first_schedule_step
        require(
            self.num_warmup_steps < schedule_steps or not self.num_train_steps,
            f"num_warmup_steps {self.num_warmup_steps} is not below num_train_steps "
            f"{self.num_train_steps} - first_schedule_step {self.first_schedule_step}. Set them."
            if self.first_schedule_step
            else f"num_warmup_steps {self.num_warmup_steps} is not below num_train_steps "
            f"{self.num_train_steps}. Set both.",
        )
        require(
            self.max_seq_length <= self.albert.max_position_embeddings,
            f"max_seq_length {self.max_seq_length} is over albert.max_position_embeddings "
            f"{self.albert.max_position_embeddings}. Shorten the sequences (--set "
            "max_seq_length=) or raise it.",
        )

    @property
    def last_step(self) -> int:
        """The step at which the run ends."""
        return min(self.stop_at_step or self.num_train_steps, self.num_train_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of pre-training; the other fields are those of `PretrainConfig`, null takes its."""

    last_step: int  # where it ends
    max_seq_length: int | None = None
    max_predictions_per_seq: int | None = None
    train_batch_size: int | None = None
    num_micro_batches: int | None = None
    masked_lm_prob: float | None = None

    def __post_init__(self) -> None:
        require(self.last_step > 0, "last_step must be at least 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainConfig):
    """One pre-training run. Defaults are the paper's (batch 4096, LAMB, 125,000 updates)."""

    sentence_task: str = "sop"  # `sop`, `nsp` or `none`; the records must be of the same
    max_seq_length: int = 512
    max_predictions_per_seq: int = 20  # P
    train_batch_size: int = 4096
    eval_batch_size: int = 64
    num_train_steps: int = 125_000
    optimizer: str = "lamb"
    learning_rate: float = 0.00176
    num_warmup_steps: int = 3125
    shuffle_buffer_size: int = 10_000
    steps_per_loop: int = 100
    save_checkpoints_steps: int = 5000
    eval_steps: int = 5000
    keep_checkpoint_max: int = 5
    max_eval_examples: int = 0  # examples of an evaluation during training; 0 takes all
    # share of the tokens to mask, of records that hold no masks; unset: that of the records. It
    # falls or grows to the final one as the learning rate's schedule runs; unset: it stays
    masked_lm_prob: float | None = None
    # share of the tokens to mask at the end of the learning rate's schedule
    final_masked_lm_prob: float | None = None
    # of a new model: `zeros` as published, or `log_frequencies` of the pieces in the records
    initial_output_bias: str = "zeros"
    # of a new model: `truncated_normal` as published, or `sinusoids`
    initial_positions: str = "truncated_normal"
    # one after the other, each on those of the records that have its lengths; none: one phase
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        require_choice("sentence_task", self.sentence_task, SENTENCE_TASKS)
        require_choice("initial_output_bias", self.initial_output_bias, OUTPUT_BIASES)
        require_choice("initial_positions", self.initial_positions, POSITIONS)
        require(self.num_train_steps > 0, "num_train_steps must be at least 1.")
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
            all(0 < x < 1 for x in shares), "masked_lm_prob, final_masked_lm_prob: over 0, below 1."
        )
        require(
            not shares or self.masked_lm_prob is not None,
            "final_masked_lm_prob needs the masked_lm_prob from which it goes on. Set both.",
        )
        most = round(self.max_seq_length * max(shares, default=0.0))
        require(
            most <= self.max_predictions_per_seq,
            f"{max(shares, default=0.0):.3g} of {self.max_seq_length} tokens are {most}, over "
            f"max_predictions_per_seq {self.max_predictions_per_seq}. Raise it, or lower "
            "masked_lm_prob and final_masked_lm_prob.",
        )

    def split_phases(self) -> list["PretrainConfig"]:
        """The config of each phase, which stops at its end; of a run without phases, this one."""
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
    """Lengths in tokens that the records of a task depend on (see `kinds.token_lengths`)."""

    max_seq_length: int = 128  # S
    # multiple choice: a longer question with an option loses its beginning
    max_qa_length: int = 128
    # questions about a text, tags of words: tokens from one window to the next
    doc_stride: int = 128
    max_query_length: int = 64  # questions about a text: a longer question loses its end
    # tags of words: the pieces of a word that are trained, `first` or `all`
    label_pieces: str = "first"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TrainConfig, Lengths):
    """One fine-tuning run. Defaults suit a task of one's own; `recipes` has the paper's."""

    max_seq_length: int = Lengths.max_seq_length
    # questions that may have no answer: `answer_class` is the published head; `null_score`
    # compares the answer with [CLS] as BERT does
    null_answer: str = "answer_class"
    # vectors of sentences: the `mean` over the tokens of a text, or the pooled `first` one
    pooling: str = "mean"
    temperature: float = 0.05  # vectors of sentences: divides the cosines of the loss
    # classes, several labels: numbers in the order of the labels, or `balanced` by the training
    # data. The loss of an example is multiplied by the weight of its class; of several labels, that
    # of a label that applies
    class_weights: str | tuple[float, ...] = ()
    start_n_top: int = 5  # published head: number of starts
    end_n_top: int = 5  # published head: number of ends of each start
    n_best_size: int = 20  # answers kept
    max_answer_length: int = 30  # most tokens of one
    train_batch_size: int = 32
    eval_batch_size: int = 32
    num_train_steps: int = 0  # updates; 0 takes `num_train_epochs` passes over the training records
    num_train_epochs: float = 3.0  # read if `num_train_steps` is 0
    num_warmup_steps: int = 0  # updates; 0 takes `warmup_proportion` of all of them
    warmup_proportion: float = 0.1  # read if `num_warmup_steps` is 0
    optimizer: str = "adamw"
    learning_rate: float = 2e-5
    # multiplies the learning rate from one depth to the next: 1 for the head, once this for the
    # encoder (the last of layers with weights of their own), and so on down to the embeddings
    layerwise_lr_decay: float = 1.0
    shuffle_buffer_size: int = 100_000
    # a batch is of texts of like length, so that little of it is padding
    group_by_length: bool = True
    steps_per_loop: int = 50
    save_checkpoints_steps: int = 500
    eval_steps: int = 500
    keep_checkpoint_max: int = 1
    # evaluations in a row without a better score after which training stops; 0 never
    patience: int = 0

    def __post_init__(self) -> None:
        require_choice("null_answer", self.null_answer, NULL_ANSWERS)
        require_choice("pooling", self.pooling, POOLINGS)
        require_choice("label_pieces", self.label_pieces, LABEL_PIECES)
        super().__post_init__()
        require(self.temperature > 0, "temperature must be more than 0.")
        require(0 < self.layerwise_lr_decay <= 1, "layerwise_lr_decay: more than 0, at most 1.")
        self._check_class_weights()
        require(self.warmup_proportion < 1, "warmup_proportion must be below 1.")
        require(self.eval_steps > 0 or not self.patience, "patience needs eval_steps: set both.")
        require(
            self.num_train_steps > 0 or self.num_train_epochs > 0,
            "num_train_steps and num_train_epochs are both 0: set one of them.",
        )

    def _check_class_weights(self) -> None:
        weights = self.class_weights
        if isinstance(weights, str):
            require_choice("class_weights", weights, (BALANCED,))
        elif weights:
            is_sound = all(math.isfinite(x) and x >= 0 for x in weights) and any(weights)
            require(is_sound, "class_weights: each must be at least 0, and one more than 0.")

    def with_steps(self, num_records: int) -> "FinetuneConfig":
        """Returns this config with the steps that `num_records` training records give.

        Rounds `num_train_steps` and `num_warmup_steps` as the published programs do. Where steps
        are set, passes and proportion become those that these steps are.
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
    """How a model makes one vector of a text; what is None is the default. Flags of a program, too.

    Attributes:
        pooling: of sentence_transformers: mean of the tokens, or the pooled first; default: mean
        normalize: of sentence_transformers: vectors of length 1
        max_seq_length: of sentence_transformers: tokens that are read of a text; default: as many
            as a fine-tuned run had, or all positions
    """

    pooling: str | None = dataclasses.field(default=None, metadata={"choices": POOLINGS})
    normalize: bool | None = None
    max_seq_length: int | None = dataclasses.field(default=None, metadata={"lower_bound": 3})
