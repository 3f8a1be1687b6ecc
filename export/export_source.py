"""Reads a trained checkpoint strictly, into the network of a kind of exported model."""

import dataclasses
from collections.abc import Sequence

from albert_tf import config_io, provenance, run_files
from albert_tf.checkpoints import formats, matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.errors import UserError, require
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel, Options
from albert_tf.kinds import span, task_table, token_lengths
from albert_tf.kinds.base import Task
from albert_tf.kinds.span import SpanAnswer
from albert_tf.kinds.task_table import MODELS
from albert_tf.model import weight_names
from albert_tf.run_files import BEST
from albert_tf.tasks import finetuned_model, inference, recipes
from albert_tf.tasks.recipes import ConfigOverrides
from albert_tf.train_config import FinetuneConfig

# Choices that do not apply to all kinds.
_CHOICES = ("labels", "pooling", "normalize", "top_k")


def read(config: ExportConfig) -> ExportedModel:
    """Reads a checkpoint as `formats.read` does.

    Raises `UserError` if the checkpoint cannot be read, lacks weights of the kind, or does not say
    its kind; if lengths leave no room for a text; or if a choice does not apply to the kind.
    """
    return choose(config, *read_source(config.source))


def read_source(source: SourceConfig) -> tuple[ModelCheckpoint, Task | None, FinetuneConfig]:
    """Returns a checkpoint, its task if it is fine-tuned, and the config of its run."""
    checkpoint = formats.read(source.checkpoint, which=source.which)
    return checkpoint, *configure(checkpoint, None, source.overrides, source.kind)


def configure(
    checkpoint: ModelCheckpoint,
    task: Task | None,
    overrides: Sequence[str],
    kind: str | None = None,
) -> tuple[Task | None, FinetuneConfig]:
    """Returns the task of a checkpoint, unless it is given, and the config of its run.

    Without a run, the length is all positions, unless the checkpoint sets one.
    """
    own, vectors = checkpoint.task_config, checkpoint.vectors
    values = own
    if values is None:
        length = vectors.max_seq_length or checkpoint.config.max_position_embeddings
        values = {"albert": config_io.to_dict(checkpoint.config), "max_seq_length": length}
        values |= {"pooling": vectors.pooling} if vectors.pooling else {}
        bias = checkpoint.weights.get(f"{weight_names.EMBEDDING_SCOPE}/bias", ())
        values |= {"embedding_size": len(bias)}
    task = task or finetuned_model.infer_task(checkpoint)
    known = task_table.KINDS.get(kind or (task.kind.name if task else ""))
    changes = ConfigOverrides(overrides=tuple(overrides))
    config = recipes.change_config(values, changes, known, is_run=own is not None)
    return task, inference.choose_patience(config, checkpoint)


def choose(
    config: ExportConfig, checkpoint: ModelCheckpoint, task: Task | None, run_config: FinetuneConfig
) -> ExportedModel:
    """Makes the exported model from a checkpoint in memory; errors as in `read`."""
    task = task or finetuned_model.infer_task(checkpoint)
    kind = _select_kind(config.source, task, run_config)
    answer = MODELS[kind].answer
    may_be_none = isinstance(answer, SpanAnswer) and (
        answer.may_be_none or (task is not None and span.may_be_none(task.kind))
    )
    _check_choices(config, kind, may_be_none=may_be_none)
    thresholds = finetuned_model.read_thresholds(checkpoint)
    threshold = config.null_threshold
    if may_be_none and threshold is None:
        threshold = thresholds.get(run_files.NULL_ODDS, 0.0)
    known = task_table.KINDS.get(kind)
    if config.text:
        token_lengths.check(run_config, known)
    options = Options(
        kind=kind,
        run_config=run_config,
        labels=config.source.labels or (task.labels if task else ()),
        has_pairs=task.has_pairs if task else None,
        dtype=config.dtype,
        pooling=config.source.pooling or run_config.pooling,
        normalize=config.source.normalize or bool(checkpoint.vectors.normalize),
        top_k=config.source.top_k or Options.top_k,
        null_threshold=threshold,
        thresholds=thresholds if known and known.learn.has_label_thresholds else {},
        text=config.text and config.signatures == "all",
        signatures=config.signatures,
        max_text_bytes=config.max_text_bytes,
    )
    return load(checkpoint, options)


def read_pretrained(path: str, which: str = BEST) -> ExportedModel:
    """Reads any checkpoint as `formats.read` does, with the pre-training heads that it has.

    Raises `UserError` if it cannot be read, or lacks the encoder or the pooler.
    """
    checkpoint = formats.read(path, which=which)
    config = checkpoint.config
    longest = config.max_position_embeddings
    run_config = FinetuneConfig(albert=config, max_seq_length=longest, dtype="float32")
    model = load_pretrained(checkpoint, run_config)
    if not model.has_part(weight_names.POOLER):
        raise UserError(f"{path} has no pooler, which a module needs. Use a complete checkpoint.")
    return model


def load_pretrained(checkpoint: ModelCheckpoint, run_config: FinetuneConfig) -> ExportedModel:
    """Loads a checkpoint with the masked-LM head, if it has one."""
    parts, own = weight_names.parts(checkpoint.config), checkpoint.weights.keys()
    kind = "encoder" if parts[weight_names.POOLER].keys() <= own else "sentence_embedding"
    kind = "fill_mask" if parts[weight_names.MASKED_LM].keys() <= own else kind
    return load(checkpoint, Options(kind=kind, run_config=run_config, dtype=run_config.dtype))


def load(checkpoint: ModelCheckpoint, options: Options) -> ExportedModel:
    """Loads the weights of a checkpoint into the network of `options.kind`.

    Raises `UserError` if it lacks weights of the kind, or has another number of labels.
    """
    config = options.run_config.albert  # may have the user's changes
    _check_weights(checkpoint, options)
    options = dataclasses.replace(options, labels=_complete_labels(checkpoint, options))
    network = MODELS[options.kind].answer.make_network(config, options)
    variables = weight_names.weights_by_name(network)
    loaded = variables.keys() & checkpoint.weights.keys()
    for name in loaded:
        dtype = variables[name].dtype.as_numpy_dtype
        variables[name].assign(checkpoint.weights[name].astype(dtype))
    return ExportedModel(
        source=provenance.find_name(checkpoint.source),
        scores=checkpoint.scores,
        options=options,
        network=network,
        loaded=frozenset(loaded),
        vocabulary=checkpoint.vocabulary,
        tokenizer=model_checkpoint.load_tokenizer(checkpoint),
    )


def _check_weights(checkpoint: ModelCheckpoint, options: Options) -> None:
    """Raises `UserError` unless the weights are an ALBERT's, and all that the kind needs."""
    answer = MODELS[options.kind].answer
    run_config = dataclasses.replace(options.run_config, pooling=options.pooling)
    expected = answer.list_weights(checkpoint.weights, run_config, checkpoint.source)
    parts = weight_names.parts(run_config.albert)
    known = {name for shapes in parts.values() for name in shapes}
    if unknown := sorted(checkpoint.weights.keys() - known):
        raise UserError(
            f"{checkpoint.source} has {len(unknown)} weights that are not an ALBERT's, such as "
            f"{unknown[0]}. If they have no effect, leave them out with bin/convert_checkpoint "
            "--allow_partial=REGEX."
        )
    matches = matching.compare_weights(checkpoint.weights, expected)
    differences = [f"no {name}" for name in matches.missing]
    differences += [f"{name} {shapes}" for name, shapes in matches.mismatched.items()]
    if differences:
        raise UserError(
            f"{checkpoint.source} has {differences[0]}, which a model that "
            f"{answer.description} needs. Use a checkpoint that was trained for that, or another "
            "--kind."
        )


def _select_kind(config: SourceConfig, task: Task | None, run_config: FinetuneConfig) -> str:
    if config.kind:
        return config.kind
    if task is None:
        raise UserError(
            f"{config.checkpoint} does not say what it is for: pass --kind, {', '.join(MODELS)}."
        )
    is_null = span.may_be_none(task.kind) and run_config.null_answer == "null_score"
    return "span" if is_null else task.kind.name


def _check_choices(config: ExportConfig, kind: str, *, may_be_none: bool) -> None:
    """Raises `UserError` if a choice would have no effect in a model of that kind."""
    for name in _CHOICES:
        kinds = [known for known in MODELS if name in MODELS[known].answer.choices]
        if getattr(config.source, name) not in (None, (), False) and kind not in kinds:
            raise UserError(f"--{name} is for {', '.join(kinds)}, not for {kind}: leave it out.")
    if config.null_threshold is None:
        return
    if not may_be_none:
        raise UserError(
            "--null_threshold is only for questions that may have no answer: leave it out."
        )
    if not config.text:
        raise UserError(
            "--null_threshold is for text answers: leave it out, or leave out --text=false."
        )


def _complete_labels(checkpoint: ModelCheckpoint, options: Options) -> tuple[str, ...]:
    """Returns the checked labels of the kind; numbers classes without labels."""
    answer, labels = MODELS[options.kind].answer, options.labels
    if answer.labels_weight is None:
        return ()
    size = len(checkpoint.weights[answer.labels_weight])
    if size != (expected := answer.num_outputs or len(labels) or size):
        raise UserError(
            f"{checkpoint.source} has {size} classes, not {expected}. "
            "Pass all --labels in the order of their ids, or another --kind."
        )
    is_listed = all(label.strip() and len(label.splitlines()) == 1 for label in labels)
    message = f"--labels: give each label a different name, in one line: {', '.join(labels)!r}."
    require(is_listed and len(set(labels)) == len(labels), message)
    return answer.complete_labels(labels, size, checkpoint.source)
