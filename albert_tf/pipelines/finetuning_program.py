"""The program bin/run_finetuning: prepares the data, trains, evaluates, predicts."""

import dataclasses
import functools
import math
import os

import tensorflow as tf
from absl import logging

from albert_tf import run_files
from albert_tf.checkpoints import formats
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.data_prep.task_data import task_cache
from albert_tf.errors import UserError, require
from albert_tf.kinds import task_dataset, task_table
from albert_tf.kinds.base import Task, TaskSplit
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.pipelines import finetuning, task_evaluation
from albert_tf.pipelines.finetuning_arguments import Arguments
from albert_tf.run_files import BEST, TASK
from albert_tf.tasks import class_weights, finetuned_model, run_report, seeds
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import devices, multi_worker, reports
from albert_tf.train.start import Start
from albert_tf.train_config import FinetuneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What the program does for one task, known before a TPU or other workers are waited for.

    Attributes:
        arguments: of the program.
        task: None if it is the user's own and the checkpoint has it.
        initial: weights to start from, if any.
        config: of the training, if there is one.
    """

    arguments: Arguments
    task: Task | None
    initial: ModelCheckpoint | None
    config: FinetuneConfig | None

    @property
    def workdirs(self) -> list[str]:
        """The folder of each run."""
        workdir, number = self.arguments.workdir, self.arguments.num_seeds
        if self.config is None:
            return seeds.find_folders(workdir, number)
        return [folder for _, folder in seeds.make_runs(self.config, workdir, number)]


def run(arguments: Arguments) -> bool:
    """Trains, evaluates and predicts, as the modes say, with each seed; prints the scores.

    Returns whether it came to its end, and was not interrupted.
    """
    job = make_job(arguments)
    strategy = devices.choose_strategy(tpu=arguments.tpu_name if arguments.tpu else None)
    with multi_worker.together(strategy):
        return run_job(job, strategy)


def make_job(arguments: Arguments, initial: ModelCheckpoint | None = None) -> Job:
    """Reads what the job starts from, unless `initial` is that; `UserError` for a mistake in it."""
    task = _find_task(arguments)
    if "train" not in arguments.mode:
        seeds.find_folders(arguments.workdir, arguments.num_seeds)  # refuses another number
        return Job(arguments=arguments, task=task, initial=None, config=None)
    assert task is not None
    if arguments.init_checkpoint and initial is None:
        initial = formats.read(arguments.init_checkpoint, which=arguments.which)
    config = finetuned_model.resolve_config(task, initial, arguments.config)
    _check_dropout(arguments, config)
    class_weights.check(config, task)
    return Job(arguments=arguments, task=task, initial=initial, config=config)


def run_job(job: Job, strategy: tf.distribute.Strategy) -> bool:
    """Does the job; returns whether it came to its end, and was not interrupted."""
    arguments = job.arguments
    # The runs themselves compare all other arguments.
    names = ("mode", "num_seeds", "checkpoint")
    values = {f"--{name}": getattr(arguments, name) for name in names}
    multi_worker.check_same(strategy, {"--task": arguments.data.task, **values})
    if job.config and not _train(job, strategy):
        return False
    if arguments.mode == ("train",):
        for workdir in job.workdirs if devices.is_chief(strategy) else ():
            run_report.write(workdir, [])
    else:
        results = [_evaluate(arguments, job.task, strategy, path) for path in job.workdirs]
        if len(results) > 1 and "eval" in arguments.mode:
            print("\n".join(seeds.summarize(arguments.workdir, results)))
    return True


def _find_task(arguments: Arguments) -> Task | None:
    """The task; None if it is the user's own and the checkpoint has it."""
    data = arguments.data
    if data.task == task_table.OWN and "train" not in arguments.mode and not data.knows_labels:
        return None
    return task_cache.make_task(data, arguments.train_file)


def _check_dropout(arguments: Arguments, config: FinetuneConfig) -> None:
    albert = config.albert
    rates = (albert.hidden_dropout_prob, albert.attention_probs_dropout_prob)
    require(
        not arguments.data.source.columns.simcse or any(rates),
        "--simcse: the model has no dropout, so that both vectors of a text would be the same. "
        "Take --set albert.hidden_dropout_prob=0.1 --set albert.attention_probs_dropout_prob=0.1.",
    )


def _prepare(
    arguments: Arguments, task: Task, name: str, config: FinetuneConfig, tokenizer: Tokenizer
) -> TaskDataset:
    path, source = arguments.split_file(name), arguments.data.source
    split = TaskSplit(task=task, name=name, input_file=path, source=source)
    return task_dataset.read(task_cache.prepare(split, tokenizer, arguments.cache_folder, config))


def _read_texts(
    arguments: Arguments, task: Task, name: str, dataset: TaskDataset
) -> dict[str, tuple[str, ...]]:
    """The texts of the examples of a split: those of tags and of questions are in the dataset."""
    if "text" in dataset.examples[0]:
        return {row["id"]: (row["text"],) for row in dataset.examples}
    if "question" in dataset.examples[0]:
        return {row["id"]: (row["question"], row["context"]) for row in dataset.examples}
    path, source = arguments.split_file(name), arguments.data.source
    split = TaskSplit(task=task, name=name, input_file=path, source=source)
    return {example.id: example.texts for example in task_cache.read_examples(split)}


def prepare_datasets(job: Job) -> tuple[dict[str, TaskDataset], tuple[str, Tokenizer]]:
    """Prepares all splits of a job that trains; returns them and the vocabulary.

    Before the training: a mistake in the last file must not appear after it.
    """
    arguments, task, config = job.arguments, job.task, job.config
    assert task is not None and config is not None
    if arguments.dev_file and arguments.dev_file == arguments.train_file:
        logging.warning("--dev_file is --train_file: its scores are of texts that are learnt.")
    vocabulary = finetuned_model.find_vocabulary(
        job.initial, arguments.vocabulary, arguments.cache_folder
    )
    splits = [split for mode in arguments.mode for split in arguments.splits(task, mode)]
    splits += ["dev"] if arguments.data.source.data_dir or arguments.dev_file else []
    datasets = {
        split: _prepare(arguments, task, split, config, vocabulary[1])
        for split in dict.fromkeys(splits)
    }
    return datasets, vocabulary


def _train(job: Job, strategy: tf.distribute.Strategy) -> bool:
    """Trains the run of each seed; returns whether all came to their end."""
    arguments = job.arguments
    assert job.config and job.task
    datasets, vocabulary = prepare_datasets(job)
    start = Start(
        init_checkpoint=arguments.init_checkpoint,
        which=arguments.which,
        allow_partial=arguments.allow_partial,
        init_head=arguments.init_head,
        checkpoint=job.initial,
    )
    train, dev = datasets["train"], datasets.get("dev")
    fitted = finetuned_model.fit_to_data(job.config, job.task, arguments.config, train)
    for config, workdir in seeds.make_runs(fitted, arguments.workdir, arguments.num_seeds):
        trainer = finetuning.make_trainer(
            *(config, train, dev, vocabulary, workdir, start),
            strategy=strategy,
            debug_nans=arguments.debug_nans,
        )
        if not trainer.run():
            return False
    return True


def _evaluate(
    arguments: Arguments, task: Task | None, strategy: tf.distribute.Strategy, workdir: str
) -> seeds.Result:
    """Evaluates and predicts with the checkpoint of a run; prints a line for each split."""
    path = arguments.checkpoint or workdir
    which = BEST if "train" in arguments.mode else arguments.which
    model = finetuned_model.read_finetuned(path, task, arguments.config, which)
    # The user's own labels are in the run; of published tasks, a model of another may predict one.
    if arguments.data.task == task_table.OWN or task is None:
        task = model.task
    if arguments.data.labels and arguments.data.labels != model.task.labels:
        known = ",".join(model.task.labels)
        raise UserError(f"--labels: the model has {known}. Name these, or leave --labels out.")
    tokenizer = finetuned_model.read_tokenizer(model.checkpoint, arguments.vocabulary)
    dev_scores: dict[str, float] = {}
    best_by = task.best_by
    evaluated: list[run_report.Evaluated] = []
    for mode in ("eval", "predict"):
        for split in arguments.splits(task, mode) if mode in arguments.mode else ():
            dataset = _prepare(arguments, task, split, model.config, tokenizer)
            # RACE's test set has labels; others to predict have none.
            scored = mode == "eval" or task_dataset.is_labelled(dataset)
            scores, path = task_evaluation.evaluate(
                model, strategy, dataset, workdir, scored=scored
            )
            if split == "dev":
                dev_scores, best_by = scores, dataset.best_by
            if devices.is_chief(strategy):
                numbers = [reports.number(name, value) for name, value in scores.items()]
                parts = [f"{dataset.task.name} {split}", *numbers, model.checkpoint.source, path]
                print(" | ".join(parts), flush=True)
            if scored and dataset.task == model.task:
                read_texts = functools.partial(_read_texts, arguments, task, split, dataset)
                evaluated.append(run_report.Evaluated(split, dataset, read_texts))
    # The page of the run itself: a checkpoint from elsewhere has none here.
    folder = finetuned_model.find_run_folder(model.checkpoint.source, TASK)
    is_own = folder == workdir.rstrip("/") and arguments.mode != ("predict",)
    if is_own and devices.is_chief(strategy):
        run_report.write(workdir, evaluated)
    return seeds.Result(
        seed=model.config.seed,
        checkpoint=model.checkpoint.source,
        predictions=os.path.join(workdir, run_files.predictions_file("dev")),
        score=dev_scores.get(best_by, math.nan),
        metrics=dev_scores,
    )
