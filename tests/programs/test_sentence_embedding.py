"""Sentence vectors: bin/run_finetuning trains them, and their export and `embed` give the same."""

import os

import numpy as np
import pytest
import tensorflow as tf
import tiny_run
from input_files import write_rows
from tiny_program import read

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.data_prep.task_data import task_cache, task_dataset
from albert_tf.errors import UserError
from albert_tf.export import export_source
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.export.onnx import onnx_folder, onnx_runtime
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.tables.task_rows import Columns, DataSource
from albert_tf.records import features
from albert_tf.tasks import inference, predictions
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import FinetuneConfig, Lengths

pytestmark = pytest.mark.usefixtures("eagerly")
VECTORS = ("--task=own", "--kind=sentence_embedding", "--second_text_column=second")
TASK = task_table.make_own("sentence_embedding", num_texts=3)
WORDS = ["abcd", "efgh", "ijkl", "mnop", "qrst", "uvwx"]


def make_rows(number, **more):
    rows = []
    for k in range(number):
        first, second = WORDS[k % 6], WORDS[(k + 1 + k // 6) % 6]
        rows.append({"text": f"{first} {second}", "second": f"{second} {first} {second}"})
        rows[-1] |= {name: values[k % len(values)] for name, values in more.items()}
    return rows


@pytest.mark.full
def test_training_evaluation_export_and_vectors(run, tmp_path, capsys):
    train = write_rows(tmp_path / "train.jsonl", make_rows(10, no=["zz", "yy x"]))
    dev = write_rows(tmp_path / "dev.jsonl", make_rows(7, score=[5, 2.5, 0, 4]))
    test = write_rows(tmp_path / "test.jsonl", make_rows(5))
    scored = (*VECTORS, "--label_column=score")
    files = (f"--train_file={train}", f"--dev_file={dev}")
    assert not run(*scored, *files, "--negative_columns=no", "--set=pooling=pooler")
    output = "".join(capsys.readouterr())
    assert "new: the task's head" not in output
    assert "own dev | spearman " in output
    scores = tmp_path / "run/metrics-dev.json"
    assert list(read(scores)["metrics"]) == ["spearman", "pearson"]
    # Without labels, counterparts are searched for.
    assert not run(*scored, f"--dev_file={test}", "--mode=eval", start=None)
    assert list(read(scores)["metrics"]) == ["mrr", "recall@1", "recall@5", "recall@10"]
    model = albert_tf.load(str(tmp_path / "run"))
    assert (model.task.kind.name, model.run_config.pooling) == ("sentence_embedding", "pooler")
    texts = [row["text"] for row in make_rows(5)] + ["한국어 é"]
    first = model.embed(texts, pooling="pooler")
    np.testing.assert_array_equal(model.embed(texts), first)
    assert np.abs(model.embed(texts, pooling="mean") - first).max() > 1e-3
    unit = model.embed(texts, normalize=True)
    content = predictions.read(f"{tmp_path}/run/predictions-dev.json")["predictions"]
    seconds = model.embed([row["second"] for row in make_rows(5)], normalize=True)
    cosines = [content[str(k)]["prediction"] for k in range(5)]
    np.testing.assert_allclose((unit[:5] * seconds).sum(1), cosines, atol=1e-5)
    with pytest.raises(UserError, match="gives embeddings, not predictions: use embed"):
        model.predict(texts)
    folder = model.export(str(tmp_path / "served"), normalize=True)
    answer = tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(texts))
    np.testing.assert_allclose(answer["embedding"], unit, atol=1e-5)


@pytest.mark.full
def test_simcse_trains_each_text_with_itself(run, tmp_path):
    train = write_rows(tmp_path / "train.jsonl", [{"text": row["text"]} for row in make_rows(9)])
    dev = write_rows(tmp_path / "dev.jsonl", make_rows(6))
    command = (*VECTORS, "--simcse", f"--train_file={train}", f"--dev_file={dev}")
    dropout = "--set=albert.hidden_dropout_prob=0.1"
    assert "--simcse: the model has no dropout" in run(*command)
    assert not (tmp_path / "run").exists()
    assert not run(*command, dropout)
    assert "mrr" in read(tmp_path / "run/best/metrics.json")
    losses = [r["contrastive_loss"] for r in tiny_run.metrics(tmp_path / "run") if "loss" in r]
    assert min(losses) > 0
    assert "--simcse has no hard negatives" in run(*command, "--negative_columns=other", dropout)


def test_texts_alone_learn_the_vectors_of_a_teacher(run, tmp_path):
    train = write_rows(tmp_path / "train.jsonl", [{"text": row["text"]} for row in make_rows(18)])
    dev = write_rows(tmp_path / "dev.jsonl", make_rows(6, score=[5, 2.5, 0, 4]))
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(18, 5)))
    scored = (*VECTORS, "--label_column=score", f"--train_file={train}", f"--dev_file={dev}")
    command = (*scored, f"--teacher_vectors={tmp_path}/vectors.npy")
    assert not run(*command)
    assert "spearman" in read(tmp_path / "run/best/metrics.json")
    losses = [r["distilled_loss"] for r in tiny_run.metrics(tmp_path / "run") if "loss" in r]
    assert min(losses) > 0
    np.save(tmp_path / "vectors.npy", np.random.default_rng(1).normal(size=(18, 5)))
    assert "training data" in run(*command)  # of another teacher it is another run
    assert "--teacher or --teacher_vectors, not both" in run(*command, f"--teacher={tmp_path}/run")
    # A model gives the same vectors as a file of them.
    texts = [row["text"] for row in make_rows(18)]
    np.save(tmp_path / "vectors.npy", albert_tf.load(f"{tmp_path}/run").embed(texts))
    for name, flag in (("one", f"--teacher={tmp_path}/run"), ("two", command[-1])):
        assert not run(*scored, flag, "--mode=train", f"--output_dir={tmp_path}/{name}")
    one, two = (tiny_run.metrics(tmp_path / name) for name in ("one", "two"))
    assert [r.get("distilled_loss") for r in one] == [r.get("distilled_loss") for r in two]


def test_a_linear_layer_leads_into_the_space_of_the_teacher(run, tmp_path):
    train = write_rows(tmp_path / "train.jsonl", [{"text": row["text"]} for row in make_rows(18)])
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(18, 5)))
    command = (*VECTORS[:2], f"--train_file={train}", f"--teacher_vectors={tmp_path}/vectors.npy")
    cosine = (*command, "--mode=train", "--set=vector_loss=cosine")
    assert "embedding_size 3 is not 5" in run(*cosine, "--set=embedding_size=3")
    assert not run(*cosine)
    model, folder = albert_tf.load(str(tmp_path / "run")), str(tmp_path / "folder")
    vectors = model.embed(["abcd", "efgh"])
    assert (vectors.shape, model.embed([]).shape) == ((2, 5), (0, 5))
    source = SourceConfig(checkpoint=str(tmp_path / "run"))
    exported = export_source.read(ExportConfig(source=source, text=False))
    assert onnx_runtime.check(exported, onnx_folder.save_graph(exported, folder))[0] > 0
    formats.convert(str(tmp_path / "run"), f"{folder}/st", to_format="sentence_transformers")
    assert os.path.exists(f"{folder}/st/2_Dense/model.safetensors")
    np.testing.assert_array_equal(albert_tf.load(f"{folder}/st").embed(["abcd", "efgh"]), vectors)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task=own", "--kind=sentence_embedding"], "needs pairs of texts: pass --second_text_c"),
        ([*VECTORS, "--labels=a,b"], "sentence_embedding has no labels. Leave them out"),
        ([*VECTORS, "--negative_columns=nothing"], "there is no column 'nothing'. It has text"),
        (["--task=own", "--simcse", "--labels=a,b"], "--simcse is not for classification"),
        (["--task=own", "--negative_columns=x", "--labels=a,b"], "--negative_columns is not for"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, arguments, message):
    train = write_rows(tmp_path / "train.jsonl", make_rows(4))
    error = run(*arguments, f"--train_file={train}", "--mode=train")
    assert message in error
    assert "\n" not in error


def read_rows(path, split="dev", **columns):
    source = DataSource(columns=Columns(second_text="second", **columns))
    return TASK.kind.data.read(TaskSplit(task=TASK, name=split, source=source), path)


def test_rows_with_a_mistake_are_named(tmp_path):
    rows = make_rows(3, label=[1, "x", None])
    for second, message in (
        (rows[1], "the label 'x' is not a number, but sentence_emb"),
        ({**rows[1], "second": " "}, "the column 'second' is ' ', not text"),
        ({"text": "a", "second": "b"}, "there is no column 'label'"),
    ):
        path = write_rows(tmp_path / "rows.jsonl", [rows[0], second])
        with pytest.raises(UserError, match=rf"rows.jsonl, line 2: {message}"):
            read_rows(path)
    # To train on, the label is not read.
    assert [example.label for example in read_rows(path, "train")] == [None, None]


def test_records_hold_each_text_once_to_evaluate(checkpoint, tmp_path):
    rows = [
        {"text": "abcd", "second": "efgh ijkl", "no": "q"},
        {"text": "mnop", "second": "efgh ijkl", "no": "abcd"},
    ]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    tokenizer = tokenization.load(f"{checkpoint}/vocabulary")
    source = DataSource(columns=Columns(second_text="second", negatives=("no",)))
    datasets = {}
    for split in ("train", "dev"):
        task_split = TaskSplit(task=TASK, name=split, input_file=path, source=source)
        made = task_cache.prepare(task_split, tokenizer, str(tmp_path), Lengths(max_seq_length=8))
        datasets[split] = task_dataset.read(made)
    train, dev = datasets["train"], datasets["dev"]
    assert (train.num_records, train.task.num_texts) == (2, 3)
    assert (dev.num_records, dev.task.num_texts) == (4, 1)
    assert [row["texts"] for row in dev.examples] == [[0, 1, 2], [3, 1, 0]]
    batch = next(iter(tf.data.TFRecordDataset(train.records).batch(2)))
    parsed = features.parse(batch, train.task.make_features(8))
    assert parsed["label_ids"].numpy().tolist() == [[0, 1, 2], [3, 1, 0]]
    ids = parsed["input_ids"].numpy().reshape(2, 3, 8)
    np.testing.assert_array_equal(ids[0, 1], ids[1, 1])
    assert dev.best_by == "mrr"
    # Ranks: text 3 is nearest to its own; text 0 is nearer to text 2.
    vectors = np.array([[1, 0], [1, 1], [2, 0.1], [1, 1.1]])
    decoded = inference.decode_outputs(FinetuneConfig(), dev, {"embedding": vectors})
    assert [decoded[id_]["rank"] for id_ in "01"] == [2, 1]
    assert decoded["0"]["prediction"] == pytest.approx(2**-0.5)
    scores = predictions.score(dev.task, dev.examples, decoded)
    assert scores == {"mrr": 0.75, "recall@1": 0.5, "recall@5": 1.0, "recall@10": 1.0}
    # A collapsed network finds nothing, and neither does one that has diverged.
    for broken in (np.ones((4, 2)), np.full((4, 2), np.nan)):
        decoded = inference.decode_outputs(FinetuneConfig(), dev, {"embedding": broken})
        assert [decoded[id_]["rank"] for id_ in "01"] == [2, 3]
