"""The configuration of a fine-tuning run; see `config`."""

import dataclasses

from albert_tf import checks
from albert_tf.config import DTYPES, AlbertConfig

NULL_ANSWERS = ("answer_class", "null_score")
_MAY_BE_ZERO = {
    *("num_train_steps", "num_warmup_steps", "eval_steps", "patience", "max_rollbacks", "seed"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """One fine-tuning run. Defaults suit a task of one's own; `recipes` has the paper's.

    Attributes:
        albert: the model; in a file also the name of a preset.
        max_seq_length: S.
        max_qa_length: of multiple choice: tokens of an ending.
        doc_stride, max_query_length: of questions about a text: from window to window, and tokens
            of a question.
        null_answer: of questions that may have no answer: `answer_class` is the published head;
            `null_score` compares the answer with [CLS] as BERT does.
        start_n_top, end_n_top: of the published head: starts that are followed up, ends of each.
        n_best_size, max_answer_length: of answers in a text: how many are kept, and tokens of one.
        train_batch_size: examples (for spans, windows) of one update, over all replicas.
        eval_batch_size: examples of one evaluation step, over all replicas.
        num_micro_batches: parts into which a replica cuts its share of a batch, to save memory.
        num_train_steps: updates; 0 takes `num_train_epochs` passes over the training records.
        num_train_epochs: read if `num_train_steps` is 0.
        num_warmup_steps: updates; 0 takes `warmup_proportion` of all of them.
        warmup_proportion: read if `num_warmup_steps` is 0.
        optimizer, bias_correction, learning_rate, poly_power, weight_decay_rate, max_grad_norm,
            dtype, rematerialize, layer_loop, jit_compile, seed, shuffle_buffer_size,
            steps_per_loop, save_checkpoints_steps, max_rollbacks: see `config.PretrainConfig`.
        eval_steps: updates between two evaluations; 0 evaluates at the end alone.
        keep_checkpoint_max: newest checkpoints kept, beside the best.
        patience: evaluations in a row without a better score after which training stops; 0 never.
    """

    albert: AlbertConfig = dataclasses.field(default_factory=AlbertConfig)
    max_seq_length: int = 128
    max_qa_length: int = 128
    doc_stride: int = 128
    max_query_length: int = 64
    null_answer: str = "answer_class"
    start_n_top: int = 5
    end_n_top: int = 5
    n_best_size: int = 20
    max_answer_length: int = 30
    train_batch_size: int = 32
    eval_batch_size: int = 32
    num_micro_batches: int = 1
    num_train_steps: int = 0
    num_train_epochs: float = 3.0
    num_warmup_steps: int = 0
    warmup_proportion: float = 0.1
    optimizer: str = "adamw"
    bias_correction: bool = False
    learning_rate: float = 2e-5
    poly_power: float = 1.0
    weight_decay_rate: float = 0.01
    max_grad_norm: float = 1.0
    dtype: str = "mixed_bfloat16"
    rematerialize: bool = False
    layer_loop: bool = False
    jit_compile: bool | None = None
    seed: int = 12345
    shuffle_buffer_size: int = 100_000
    steps_per_loop: int = 50
    save_checkpoints_steps: int = 500
    eval_steps: int = 500
    keep_checkpoint_max: int = 1
    max_rollbacks: int = 0
    patience: int = 0

    def __post_init__(self) -> None:
        checks.choice("dtype", self.dtype, DTYPES)
        checks.choice("null_answer", self.null_answer, NULL_ANSWERS)
        checks.numbers(self, _MAY_BE_ZERO)
        checks.layer_loop(self)
        checks.require(self.max_grad_norm > 0, "max_grad_norm must be more than 0.")
        checks.require(self.warmup_proportion < 1, "warmup_proportion must be below 1.")
        checks.require(
            self.eval_steps > 0 or not self.patience, "patience needs eval_steps: set both."
        )
        checks.require(
            self.num_train_steps > 0 or self.num_train_epochs > 0,
            "num_train_steps and num_train_epochs are both 0: set one of them.",
        )
        checks.require(
            self.num_warmup_steps < self.num_train_steps or not self.num_train_steps,
            f"num_warmup_steps {self.num_warmup_steps} is not below num_train_steps "
            f"{self.num_train_steps}. Set both (0 warmup steps: warmup_proportion of all).",
        )
        checks.require(
            self.max_seq_length <= self.albert.max_position_embeddings,
            f"max_seq_length {self.max_seq_length} is over albert.max_position_embeddings "
            f"{self.albert.max_position_embeddings}: take a smaller one (--set max_seq_length=).",
        )


def with_steps(settings: FinetuneConfig, num_records: int) -> FinetuneConfig:
    """The same with `num_train_steps` and `num_warmup_steps` in numbers, as published programs.

    Args:
        settings: the run.
        num_records: to train on.
    """
    passes = num_records / settings.train_batch_size
    steps = settings.num_train_steps or max(1, int(passes * settings.num_train_epochs))
    warmup = settings.num_warmup_steps or int(steps * settings.warmup_proportion)
    return dataclasses.replace(settings, num_train_steps=steps, num_warmup_steps=warmup)
