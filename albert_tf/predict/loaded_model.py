"""A trained model in memory for texts: what `albert_tf.load` returns."""

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import logging

from albert_tf import config_io, folders
from albert_tf.checkpoints import formats, matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError, require, require_choice
from albert_tf.export import export_source
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.model_kinds import ExportedModel, Options
from albert_tf.kinds import task_table, token_lengths
from albert_tf.kinds.base import TOKENS, Prediction, Records, Task, Teacher
from albert_tf.model import weight_names
from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.weight_names import OPTIONAL, TASK_HEADS
from albert_tf.predict import arguments, search, text_network
from albert_tf.predict.arguments import Inputs, Texts
from albert_tf.predict.text_network import TextNetwork
from albert_tf.records import features
from albert_tf.run_files import BEST
from albert_tf.tasks import finetuned_model
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import DTYPES, POOLINGS, FinetuneConfig


class Guess(NamedTuple):
    """One token for one [MASK], and its probability."""

    piece: str
    probability: float


@dataclass(kw_only=True)
class LoadedModel:
    """A trained model with its config and tokenizer.

    Attributes:
        checkpoint: the weights as read, their source and their vocabulary.
        model: the Keras model: `AlbertForTask` for a fine-tuned checkpoint, `AlbertForPretraining`
            for a checkpoint with the masked-LM head, otherwise `Albert`.
        task: the task of a fine-tuned model, otherwise None.
        run_config: lengths of the inputs and options of the task.
    """

    checkpoint: ModelCheckpoint
    model: keras.Model
    task: Task | None
    run_config: FinetuneConfig

    def __repr__(self) -> str:
        config, task = self.config, self.task
        labels = f" {', '.join(task.labels)}" if task and task.labels else ""
        return (
            f"LoadedModel({type(self.model).__name__} of {self.checkpoint.source!r}: "
            f"{self.model.count_params():,} weights, {config.num_hidden_layers} layers of "
            f"{config.hidden_size}{f', {task.kind}{labels}' if task else ''})"
        )

    @property
    def config(self) -> AlbertConfig:
        """The config of the network."""
        return self.checkpoint.config

    @property
    def is_masked_lm(self) -> bool:
        """Whether the model guesses words for [MASK]."""
        return isinstance(self.model, AlbertForPretraining)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None if there is no vocabulary next to the checkpoint."""
        return model_checkpoint.load_tokenizer(self.checkpoint)

    @property
    def encoder(self) -> Albert:
        """The encoder inside `model`."""
        return getattr(self.model, "albert", self.model)

    def embed(
        self, texts: Texts, *, pooling: str | None = None, normalize: bool | None = None
    ) -> np.ndarray:
        """Returns the embedding of each text: [N, D] float32.

        `pooling` is `mean` over the tokens of a text, `cls`, the first token, or `pooler`, the
        first token through the pooler; by default as the model was trained, otherwise `mean`. With
        `normalize`, embeddings have length 1; the default is the setting of a
        sentence-transformers folder, otherwise False. Texts that are too long are truncated. Raises
        `UserError` for a text that is not a string, an unknown pooling, or a checkpoint without a
        vocabulary or the weights that pooling needs.
        """
        pooling = self.run_config.pooling if pooling is None else pooling
        if normalize is None:
            normalize = bool(self.checkpoint.vectors.normalize)
        require_choice("pooling", pooling, POOLINGS)
        pooler = weight_names.parts(self.config)[weight_names.POOLER]
        if pooling == "pooler" and not pooler.keys() <= self.checkpoint.weights.keys():
            raise UserError(f"{self.checkpoint.source} has no pooler. Use pooling='mean' or 'cls'.")
        rows = arguments.as_tuples(texts, 1)
        if not rows:
            size = self.run_config.embedding_size or self.config.hidden_size
            return np.zeros((0, size), np.float32)
        network = self._answering("sentence_embedding", pooling=pooling, normalize=normalize)
        records, answers = network.run(rows)
        self._warn(records)
        return answers["embedding"]

    def search(
        self, queries: Texts, texts: Iterable[str], *, top_k: int = 5
    ) -> list[list[search.Match]]:
        """Returns the `top_k` most similar texts for each query, best first: (score, row, text).

        The score is the cosine of the embeddings from `embed`. `texts` are read only once, and need
        not fit into memory.
        """
        rows = [text for (text,) in arguments.as_tuples(queries, 1)]
        return search.search(self.embed, rows, texts, top_k)

    def fill_mask(self, texts: Texts, *, top_k: int = 5) -> list[list[list[Guess]]]:
        """Returns the `top_k` most likely tokens for each [MASK] in each text, best first.

        Raises `UserError` if the model has no masked-LM head, or a text has no [MASK] or is too
        long for the model.
        """
        require(top_k >= 1, "top_k must be at least 1.")
        if not self.is_masked_lm:
            raise UserError(
                f"{self.checkpoint.source} has no masked-LM head, which guesses need. "
                "Use a pre-trained checkpoint."
            )
        rows, tokenizer = arguments.as_tuples(texts, 1), self._require_tokenizer()
        longest = self.config.max_position_embeddings
        for (text,) in rows:
            ids = tokenizer.encode_with_masks(text)
            if tokenizer.mask_id not in ids:
                raise UserError(f"no [MASK] in {text!r}. Put [MASK] in place of a word.")
            if (size := len(ids) + features.NUM_TEXT_TOKENS) > longest:
                raise UserError(f"a text has {size} tokens, more than {longest}. Shorten it.")
        if not rows:
            return []
        config = replace(self.run_config, max_seq_length=longest)
        answers = self._answering("fill_mask", run_config=config, top_k=top_k).reply(rows)
        return [
            [[*map(Guess, *best)] for best in zip(x["tokens"], x["probabilities"], strict=True)]
            for x in answers
        ]

    def predict(self, inputs: Inputs) -> list[Prediction]:
        """Predicts with the task head; one prediction for each input.

        Args:
            inputs: depends on the kind of task: a text or a pair of texts for classification,
                multi-label and regression; a text of any length for token classification; a
                passage and an ending per choice for multiple choice (endings start with the
                question); a question and a context for question answering.

        Returns:
            The predictions of `albert_tf.tasks.predictions`: {"prediction": label,
            "probabilities": [C numbers]}, {"prediction": number}, {"prediction": text, "nbest"}, or
            {"prediction": [{"text", "type", "start", "end", "score"}]} for tagged spans. A model
            with early exit adds "num_layers", how many layers ran.

        Raises:
            UserError: the model has no task head, or an input does not fit the task.
        """
        task = self._require_task()
        rows = arguments.as_tuples(inputs, task.kind.data.count_texts(task))
        if not rows:
            return []
        has_thresholds = task.kind.learn.has_label_thresholds
        thresholds = finetuned_model.read_thresholds(self.checkpoint) if has_thresholds else {}
        network = self._answering(task.kind.name, labels=task.labels, thresholds=thresholds)
        predictions, records = network.predict(rows)
        self._warn(records)
        return predictions

    def encode(self, inputs: Inputs) -> dict[str, np.ndarray]:
        """Returns ids for the Keras model's `fit`, `predict` and `evaluate`.

        Inputs are texts or pairs of texts; for multiple choice, as in `predict`. `input_ids`,
        `input_mask` and `segment_ids` are [N, S] int32, or [N, C * S] for multiple choice; S is
        `run_config.max_seq_length`. Texts that are too long are truncated.
        """
        kind = self.task.kind if self.task else task_table.KINDS[task_table.DEFAULT_KIND]
        if kind.data.window_noun:
            raise UserError(
                f"encode is not for {kind.data.window_noun}: train them with bin/run_finetuning."
            )
        number = kind.data.count_texts(self.task) if self.task else None
        rows = arguments.as_tuples(inputs, number)
        stand_in = ("",) * (number or 1)  # gives the shape if there are no rows
        labels = self.task.labels if self.task else ()
        records = self._answering(kind.name, labels=labels).encode(rows or [stand_in])
        batch = records.make_batch(slice(None))
        token_lengths.warn_of_losses(records.counts, len(rows), self.run_config)
        return {name: batch[name][: len(rows)].astype(np.int32) for name in TOKENS}

    def fit(
        self,
        inputs: Inputs,
        labels: Sequence[Any] | None = None,
        *,
        dev: tuple[Inputs, Sequence[Any]] | None = None,
        kind: str | None = None,
        teacher: "LoadedModel | str | None" = None,
        output_dir: str | None = None,
        epochs: float = FinetuneConfig.num_train_epochs,
        **changes: Any,
    ) -> dict[str, float]:
        """Fine-tunes the model like bin/run_finetuning, and returns its dev scores.

        Args:
            inputs: texts, or pairs of texts.
            labels: a name or an integer per input, for classification; floats, for regression,
                unless all are integers with few different values; a list of names per input, for
                multi-label; None for pairs whose embeddings should be similar.
            dev: inputs and labels to evaluate after each epoch; by default a tenth is held out.
            kind: the kind of task, if the labels do not determine it.
            teacher: a fine-tuned model, or its path, to learn from as well; then labels may be
                None.
            output_dir: the folder of the run, which the same call resumes; default: temporary.
            epochs: passes over the inputs.
            changes: fields of `FinetuneConfig`, such as `learning_rate` or `train_batch_size`.

        Raises:
            UserError: the inputs and labels do not fit each other or the kind.
        """
        from albert_tf.predict import fitting  # slow to import

        if output_dir is None:
            self._folder = tempfile.TemporaryDirectory(prefix="albert-fit-")
            output_dir = self._folder.name
        changes = {"num_train_steps": 0, "num_train_epochs": epochs, **changes}
        model = fitting.Model(self.snapshot, self.task, self.run_config)
        rest = (dev, kind, output_dir, changes)
        asked = load(teacher) if isinstance(teacher, str) else teacher
        run, scores = fitting.fit(
            model, inputs, labels, *rest, teacher=asked.as_teacher() if asked else None
        )
        loaded = load(run)
        self._networks.clear()
        self.checkpoint, self.model = loaded.checkpoint, loaded.model
        self.task, self.run_config = loaded.task, loaded.run_config
        return scores

    def as_teacher(self, kind: str = task_table.DEFAULT_KIND) -> Teacher:
        """Returns this model as a teacher; any model can teach embeddings.

        Raises `UserError` for other kinds of tasks unless it is fine-tuned.
        """
        from albert_tf.predict import bulk_prediction

        require(
            "TF_CONFIG" not in os.environ,
            "--teacher is not for several workers: write its answers with bin/predict, and pass "
            "their columns with --teacher_columns.",
        )
        known, checkpoint = task_table.KINDS.get(kind), self.snapshot()
        gives_vectors = known is not None and known.answer.gives_vectors
        task = task_table.make_own(kind) if gives_vectors else self._require_task()
        source = SourceConfig(checkpoint="")

        def answer(rows: Sequence[tuple[str, ...]]) -> np.ndarray:
            if gives_vectors:
                return self.embed([text for (text,) in rows])
            predictions = self.predict([row[0] if len(row) == 1 else row for row in rows])
            return np.array([row.get("probabilities", [row["prediction"]]) for row in predictions])

        identity = bulk_prediction.identify(source, (checkpoint, task, self.run_config))
        return Teacher(checkpoint.source, identity, task, answer)

    def evaluate(self, inputs: Inputs, labels: Sequence[Any]) -> dict[str, float]:
        """Returns the scores on labelled inputs, with arguments as in `fit`.

        Raises `UserError` if the model is not fine-tuned, or its task lacks a label.
        """
        from albert_tf.tasks import predictions

        predicted, task = self.predict(inputs), self._require_task()
        if task.kind.data.window_noun:
            raise UserError(f"evaluate is not for {task.kind}: use bin/run_finetuning.")
        values = arguments.as_list(labels)
        require(len(values) == len(predicted), f"{len(values)} labels for {len(predicted)} inputs.")
        gold = [
            {"id": str(k), "label": arguments.parse_label(task, x, f"label {k}")}
            for k, x in enumerate(values)
        ]
        by_id = {str(k): prediction for k, prediction in enumerate(predicted)}
        return predictions.score(task, gold, by_id)

    def save(self, folder: str) -> None:
        """Writes the model, with its current weights, into a new folder for `load` or the programs.

        It includes the vocabulary and, for a fine-tuned model, the task and its scores.
        """
        folders.refuse_existing(folder)
        formats.write_folder(self.snapshot(), folder)

    def snapshot(self) -> ModelCheckpoint:
        """Returns the checkpoint with the model's current weights."""
        variables = weight_names.weights_by_name(self.model)
        weights = {
            name: variables[name].numpy() if name in variables else weight
            for name, weight in self.checkpoint.weights.items()
        }
        run, known = dict(self.checkpoint.run), finetuned_model.infer_task(self.checkpoint)
        task, config = self.task, self.run_config
        if task and (known is None or (known.kind, known.labels) != (task.kind, task.labels)):
            header = {"task": task.name, "kind": task.kind.name, "labels": [*task.labels]}
            run = {"task": {**header, "has_pairs": task.has_pairs, "num_texts": task.num_texts}}
        if task:
            run["config"] = config_io.to_dict(config)
        vectors = replace(
            self.checkpoint.vectors, pooling=config.pooling, max_seq_length=config.max_seq_length
        )
        return replace(self.checkpoint, weights=weights, run=run, vectors=vectors)

    def with_head(
        self, kind: str = task_table.DEFAULT_KIND, labels: Sequence[str] = ()
    ) -> "LoadedModel":
        """Returns a model with this encoder and a new head, for training with Keras's `fit`.

        It has the same dtype policy.
        `kind` is `classification` or `multiple_choice`, with a list of `labels` in the order of
        their ids, `multi_label`, or `regression`. The targets are {"logits": [N] ids, numbers, or
        [N, C] 0 and 1 of several labels}.
        """
        task = task_table.make_own(kind, labels)
        run_config = self.run_config.with_all_layers()
        model, _ = task.make_model(run_config)
        matching.assign_task_weights(
            self.checkpoint, model, with_head=False, log_level=logging.DEBUG
        )
        head = {weight.path: weight.numpy() for weight in model.head.trainable_weights}
        old = weight_names.list_shapes(self.config, *TASK_HEADS, *OPTIONAL)
        kept = {name: x for name, x in self.checkpoint.weights.items() if name not in old}
        checkpoint = replace(self.checkpoint, weights=kept | head, run={})
        return replace(self, checkpoint=checkpoint, model=model, task=task, run_config=run_config)

    def export(
        self,
        to: str,
        *,
        kind: str | None = None,
        dtype: str = "float32",
        pooling: str | None = None,
        normalize: bool = False,
        top_k: int | None = None,
        text: bool = True,
    ) -> str:
        """Writes the model, with its current weights, as the next version in the folder `to`.

        The options are the flags of bin/export_saved_model. Returns the folder of the SavedModel.
        """
        from albert_tf.export import model_versions  # needs tensorflow_text

        model_versions.choose_folder(to)  # fails before the work
        source = SourceConfig(
            checkpoint=self.checkpoint.source,
            kind=kind,
            pooling=pooling,
            normalize=normalize,
            top_k=top_k,
        )
        config = ExportConfig(source=source, dtype=dtype, text=text)
        exported = export_source.choose(config, self.snapshot(), self.task, self.run_config)
        return model_versions.write(exported, to)

    def _require_task(self) -> Task:
        """Returns the task; `UserError` unless the model has a task head with predictions."""
        if self.task is None:
            heads = weight_names.list_shapes(self.config, *TASK_HEADS)
            if heads.keys() & self.checkpoint.weights.keys():
                raise UserError(
                    f"{self.checkpoint.source} has a task head but does not say the task or "
                    "its labels. Pass them: --kind and --labels, or load(..., task=make_own(kind, "
                    "labels))."
                )
            raise UserError(
                f"{self.checkpoint.source} is not fine-tuned. Fine-tune it (bin/run_finetuning, or "
                "fit), or use it for a [MASK] in the text (fill_mask) or for embeddings "
                "(--vectors, embed)."
            )
        if self.task.kind.answer.gives_vectors:
            raise UserError(
                f"{self.checkpoint.source} gives embeddings, not predictions: use embed."
            )
        return self.task

    def _require_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise UserError(
                f"{self.checkpoint.source} has no vocabulary next to it: pass vocabulary= to load."
            )
        return self.tokenizer

    @cached_property
    def _networks(self) -> list[TextNetwork]:
        """The networks of `_answering`, whose graphs are traced once."""
        return []

    def _answering(self, kind: str, **choices: Any) -> TextNetwork:
        """Returns the network that answers texts; `choices` are fields of `model_kinds.Options`."""
        options = Options(kind=kind, **{"run_config": self.run_config, **choices})
        for network in self._networks:
            if network.model.options == options and network.model.network is self.model:
                return network
        source, tokenizer = self.checkpoint.source, self._require_tokenizer()
        model = ExportedModel(source, options, self.model, tokenizer)
        self._networks.append(text_network.make(model))
        return self._networks[-1]

    def _warn(self, records: Records) -> None:
        """Warns about truncated texts."""
        token_lengths.warn_of_losses(records.counts, len(records.lines), self.run_config)


def load(
    path: str | os.PathLike[str],
    *,
    task: Task | str | None = None,
    vocabulary: str | None = None,
    which: str = BEST,
    **overrides: Any,
) -> LoadedModel:
    """Loads a checkpoint in any format: a run, a converted folder, or a checkpoint from Google,
    TensorFlow Hub or Hugging Face.

    Args:
        path: a folder, prefix, archive, URL or Hugging Face repository (OWNER/NAME), as for
            bin/convert_checkpoint.
        task: for a fine-tuned checkpoint without a run: the name of a published task, or the result
            of `task_table.make_own`. A run knows its task.
        vocabulary: the vocabulary folder, if it is not next to the checkpoint.
        which: the checkpoint of a run: `best` (the newest, if none was evaluated) or `newest`.
        overrides: fields of the run's `FinetuneConfig` to replace, such as `max_seq_length`, or
            `dtype` (`float32` or `mixed_bfloat16`; default: Keras's global policy, whatever the
            run was trained in).

    Raises:
        UserError: there is no checkpoint, it is damaged, or it lacks weights.
    """
    task = task_table.get(task) if isinstance(task, str) else task
    checkpoint = formats.read(os.fspath(path), which=which)
    if vocabulary is not None:
        tokenization.load(vocabulary)  # raises for a folder without a vocabulary
        checkpoint = replace(checkpoint, vocabulary=tokenization.read_files(vocabulary))
        checkpoint = model_checkpoint.trim_vocabulary(checkpoint)
    changes = (f"{name}={json.dumps(value)}" for name, value in overrides.items())
    policy = keras.config.dtype_policy().name
    require(
        policy in DTYPES or "dtype" in overrides,
        f"Keras's global policy is {policy!r}: pass dtype=, one of {', '.join(DTYPES)}.",
    )
    own_dtype = () if "dtype" in overrides else (f"dtype={policy}",)
    task, config = export_source.configure(checkpoint, task, [*own_dtype, *changes])
    checkpoint = replace(checkpoint, config=config.albert)  # has the user's changes
    kind = task.kind if task else None
    token_lengths.check(config, kind)
    model: keras.Model
    if task is None:
        model = export_source.load_pretrained(checkpoint, config).network
    else:
        model, _ = task.make_model(config, is_new=False)
        matching.assign_task_weights(checkpoint, model, with_head=True, log_level=logging.DEBUG)
    return LoadedModel(checkpoint=checkpoint, model=model, task=task, run_config=config)
