"""What a new run starts from: new weights, a checkpoint, a smaller model, or another run."""

import dataclasses
import functools
import hashlib

from absl import logging

from albert_tf import provenance
from albert_tf.checkpoints import formats, matching, model_checkpoint, training_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError
from albert_tf.model import task_heads
from albert_tf.model.task_model import AlbertForTask
from albert_tf.run_files import BEST
from albert_tf.run_record import FirstWeights
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import growth
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig, TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What a new run starts from; without a path, from new weights.

    Attributes:
        init_checkpoint: a checkpoint in any format, whose weights it uses.
        grow_from: a run with a smaller model; its weights and optimizer state grow (`growth`).
        continue_from: a run to continue: weights, optimizer state and step (`history`).
        which: the checkpoint of a run; by default the best, for `continue_from` the newest.
        allow_partial: as in `matching.assign_weights`.
        init_head: whether a task also uses the head of the checkpoint.
    """

    init_checkpoint: str | None = None
    grow_from: str | None = None
    continue_from: str | None = None
    which: str | None = None
    allow_partial: str | None = None
    init_head: bool = False

    def __post_init__(self) -> None:
        names = ("init_checkpoint", "continue_from", "grow_from")
        if len(named := [f"--{name}" for name in names if getattr(self, name)]) > 1:
            raise UserError(f"{' and '.join(named)} exclude each other. Use only one.")

    @property
    def name(self) -> str | None:
        """What the run records about the checkpoint it starts from; None without one."""
        path = self.init_checkpoint or self.grow_from
        is_best = path is None or self.which in (None, BEST)
        return path and provenance.strip_keys(path if is_best else f"{path} --which={self.which}")

    @functools.cached_property
    def checkpoint(self) -> ModelCheckpoint | None:
        """The checkpoint whose weights it uses; None without one."""
        path = self.init_checkpoint or self.grow_from
        return formats.read(path, which=self.which or BEST) if path else None

    def release(self) -> None:
        """Frees the checkpoint's memory; it is read again when needed."""
        vars(self).pop("checkpoint", None)

    def read(self, config: TrainConfig) -> ModelCheckpoint:
        """Returns the weights, grown to a model of this config."""
        assert self.checkpoint
        if not isinstance(config, PretrainConfig) or not self.grow_from:
            return self.checkpoint
        return growth.grow_checkpoint(self.checkpoint, config)

    def describe(self, checkpoint: ModelCheckpoint) -> FirstWeights:
        """Returns what a run records about its initial weights: path and checksum."""
        digest = hashlib.sha256()
        for name, weight in sorted(checkpoint.weights.items()):
            digest.update(f"{name} {weight.dtype} {weight.shape} ".encode())
            digest.update(weight.tobytes())
        return FirstWeights(self.name, digest.hexdigest())

    def check_resumed(self, workdir: str, before: FirstWeights | None, config: TrainConfig) -> None:
        """Raises `UserError` if the run in `workdir` started from other weights than `before`.

        The same path is trusted: a checkpoint may be gone when the run resumes, or may change if
        its own run is still training.
        """
        # A continued run (--continue_from) records no initial checkpoint.
        if self.name is None or before is None or self.name == before.checkpoint:
            return
        if self.describe(self.read(config)).weights != before.weights:
            started = before.checkpoint or "new weights"
            raise UserError(
                f"{workdir} belongs to a run that started from {started}, not from {self.name}. "
                f"Use another --output_dir, or the checkpoint of that run."
            )

    def evaluates(self, state: TrainState) -> bool:
        """Whether the weights are worth an evaluation before the first update."""
        has_new_head = isinstance(state.model, AlbertForTask) and not self.init_head
        return self.name is not None and not has_new_head

    def assign(self, checkpoint: ModelCheckpoint, state: TrainState) -> None:
        """Sets the weights of a state from a checkpoint, and its optimizer state if it grows.

        Raises `UserError` if the weights do not fit, or mean something else. The number of layers
        may differ: a deep model may start from a shallow one.
        """
        for field in ("num_attention_heads", "hidden_act"):
            theirs, ours = (getattr(c, field) for c in (checkpoint.config, state.config.albert))
            if theirs != ours:
                raise UserError(
                    f"{checkpoint.source} was trained with {field}={theirs!r}, the config has "
                    f"{ours!r}. Use the checkpoint's value "
                    f"(--set albert.{field}=)."
                )
        if isinstance(state.model, AlbertForTask):
            is_other = not isinstance(state.model.head, task_heads.Regression)
            if self.init_head and checkpoint.is_regression and is_other:
                raise UserError(
                    f"{checkpoint.source} has a regression head, but the task needs another. "
                    "Leave out --init_head."
                )
            matching.assign_task_weights(
                checkpoint,
                state.model,
                with_head=self.init_head,
                allow_partial=self.allow_partial,
            )
            return
        matching.assign_weights(
            checkpoint.weights, state.model, checkpoint.source, allow_partial=self.allow_partial
        )
        has_moments = any(key.startswith("slots/") for key in checkpoint.skipped)
        # Otherwise the first bias correction would multiply grown moments by ten.
        if self.grow_from and has_moments and not state.config.bias_correction:
            path = training_checkpoint.find_prefix(self.grow_from, self.which or BEST)
            _assign_moments(state, path)


NEW = Start()


def _assign_moments(state: TrainState, path: str) -> None:
    config, slots = state.config, state.optimizer.slots()
    assert isinstance(config, PretrainConfig), "a task does not grow"
    moments = growth.read_moments(path, config)
    for name in slots.keys() & moments.keys():
        slots[name].assign(moments[name])
    logging.info(f"{len(slots.keys() & moments.keys())} of {len(slots)} moments grown as well")


def check_vocabulary(checkpoint: ModelCheckpoint, tokenizer: Tokenizer, folder: str) -> None:
    """Raises `UserError` unless a checkpoint has the vocabulary of the records, in `folder`."""
    theirs = model_checkpoint.load_tokenizer(checkpoint)
    if theirs is not None and theirs.sha256 != tokenizer.sha256:
        raise UserError(
            f"{checkpoint.source} and the records ({folder}) have different vocabularies. "
            "Create records with the checkpoint's vocabulary."
        )
