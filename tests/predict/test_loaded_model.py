"""`albert_tf.load`: what it refuses, and what its page (docs/python.md) does not show."""

import functools
import re
import subprocess
import sys
from unittest import mock

import keras
import numpy as np
import pages
import pytest
import tiny_checkpoints
import tiny_exports
from refusals import one_line
from repository import ROOT

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.kinds import task_table


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, vocabulary):
    folder = tmp_path_factory.mktemp("pretrained")
    made = tiny_checkpoints.make(vocabulary)
    return albert_tf.load(tiny_checkpoints.write(folder, made, "albert_tf"))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory, vocabulary):
    more, folder = {"has_pairs": False}, tmp_path_factory.mktemp("reviews")
    return albert_tf.load(tiny_exports.write_run(folder, "classification", vocabulary, more=more))


def test_the_model_of_the_examples_knows_what_the_readme_says():
    model = albert_tf.load(str(ROOT / "examples" / "albert_tiny_english"))
    [[guesses]] = model.fill_mask("He shut the [MASK] behind him.", top_k=3)
    shown = [(guess.piece, round(guess.probability, 2)) for guess in guesses]
    assert f"# {shown}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["examples/albert_tiny_sentences/README.md", "docs/embeddings.md"])
def test_the_sentence_model_finds_what_its_pages_say(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    *lines, last, shown = pages.read_blocks(page, "python").strip().splitlines()
    variables = {}
    exec("\n".join(lines), variables)
    assert f"# {eval(last, variables)}" == shown


def test_the_names_are_documented():
    page = (ROOT / "docs" / "python.md").read_text()
    for name in albert_tf.__all__:
        assert re.search(rf"^\| .*`{name}`.*\|", page, re.MULTILINE), name
        assert getattr(albert_tf, name) is not None
        assert name in dir(albert_tf)
    with pytest.raises(AttributeError, match="no attribute 'none'"):
        albert_tf.none  # noqa: B018


@pytest.mark.full
def test_predicting_imports_little():
    code = (
        "import gc, importlib, sys\n"
        "from albert_tf import lazy_tensorflow\n"
        "lazy_tensorflow.load(without=lazy_tensorflow.UNUSED)\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 100_000\n"
        "importlib.import_module('albert_tf.predict.loaded_model')\n"
        "assert not {'sklearn', 'h5py', 'tensorflow_text'} & sys.modules.keys()\n"
        "from albert_tf import metrics\n"
        "assert metrics.METRICS['f1'](['a', 'b'], ['a', 'b'], 'ab') == 1\n"
        "assert metrics.METRICS['pearson']([1, 2, 4], [1, 2, 4]) > 0.99\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("eagerly")
def test_padding_is_not_computed(reviews, monkeypatch):
    call = mock.Mock(side_effect=reviews.model.apply)
    monkeypatch.setattr(reviews.model, "apply", call)
    reviews.predict(["a", "ab"])
    [((batch, *_), _)] = call.call_args_list
    rows, tokens = batch["input_ids"].shape
    assert rows == 2
    assert 3 <= tokens < reviews.run_config.max_seq_length


def test_a_search_is_in_the_order_of_the_cosines_and_of_equal_texts(pretrained, monkeypatch):
    monkeypatch.setattr("albert_tf.predict.search._BLOCK", 3)
    texts = ["a b", "abcd efgh", "c", "ijkl abcd", "abcd efgh", "d"]
    vectors, [query] = pretrained.embed(texts, normalize=True), pretrained.embed("abcd efgh")
    wanted = vectors @ query / np.linalg.norm(query)
    [found] = pretrained.search("abcd efgh", iter(texts), top_k=4)
    assert [match.row for match in found[:2]] == [1, 4]
    np.testing.assert_allclose([x.score for x in found], np.sort(wanted)[:-5:-1], atol=1e-5)
    assert [texts[match.row] for match in found] == [match.text for match in found]


@pytest.mark.full
@pytest.mark.usefixtures("eagerly")
def test_what_fit_and_save_leave(pretrained, tmp_path):
    texts = [f"{word} was day {k}" for k in range(8) for word in ("good", "bad")]
    kinds = {
        "classification": [1.0, 0.0] * 8,  # as pandas gives a column with holes
        "regression": [0.5, 2.0] * 8,
        "multi_label": [["a", "b"], ["b"]] * 8,
    }
    model = albert_tf.load(pretrained.checkpoint.source)
    for kind, labels in kinds.items():  # a tuned model, too, takes the kind of the labels
        common = {"epochs": 1, "max_seq_length": 12, "output_dir": str(tmp_path / "runs" / kind)}
        common["dtype"] = "float32"
        scores = model.fit(texts, labels, dev=(texts[:4], labels[:4]), **common)
        assert model.task.kind.name == kind
        again = model.evaluate(texts[:4], labels[:4])
        assert all(again[name] == pytest.approx(x, nan_ok=True) for name, x in scores.items())
        model.save(str(tmp_path / kind))
        loaded = albert_tf.load(tmp_path / kind)
        assert str(loaded.predict(texts[:2])) == str(model.predict(texts[:2]))
    with one_line("exists"):
        model.save(str(tmp_path / "multi_label"))
    with one_line("has a run that started from other weights"):
        model.fit(texts, labels, **common)
    with one_line("16 inputs need as many labels, not 1"):
        model.fit(texts, ["a"])
    with one_line("a list of names, not of numbers"):
        model.fit(texts, np.eye(2)[[0, 1] * 8])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "inputs: there are none"),
        ((["a", "b"], None), "labels: pass one for each input; only pairs need none"),
        ((["a", "b"], ["x", "x"]), "labels: all are the same"),
        ((["a", "b"], ["x", None]), r"inputs\[1\]: the label 'label' is empty"),
        ((["a", "a"], ["x", "y"]), "inputs has too few different texts .*: pass dev"),
        ((["a", "b"], ["x", "y"], ["a", "b"]), "dev: pass a tuple of inputs and labels"),
        ((["a", "b"], ["x", "y"], (["a"], ["z"])), r"dev\[0\]: 'z' is not a label of own"),
        ((["a", "b"], ["x", "y"], (["a"], ["x"]), 99), r"sequences \(max_seq_length=\)"),
        ((["a"], ["x"], None, 9, "token_classification"), r"inputs\[0\]: the spans are 'x'"),
        ((["a"], ["x"], None, 9, "multiple_choice"), "multiple_choice needs choice_columns"),
    ],
)
def test_mistakes_in_fit_name_its_arguments(pretrained, arguments, message):
    names = ("inputs", "labels", "dev", "max_seq_length", "kind")
    model = albert_tf.load(pretrained.checkpoint.source)
    with one_line(f"^[^/-]*{message}"):
        model.fit(**dict(zip(names, arguments, strict=False)))


@pytest.mark.usefixtures("in_graphs", "as_users")
def test_answers_are_in_the_order_of_the_texts(pretrained, reviews):
    """They are computed in the order of the lengths, 32 at a time."""
    texts = ["good " * (1 + row * 7 % 11) for row in range(40)]
    alone = [reviews.predict([text])[0]["probabilities"] for text in texts]
    together = [prediction["probabilities"] for prediction in reviews.predict(texts)]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    vectors = np.concatenate([pretrained.embed([text]) for text in texts])
    np.testing.assert_allclose(pretrained.embed(texts), vectors, atol=1e-5)


def test_nothing_in_is_nothing_out(pretrained, reviews):
    assert pretrained.embed([]).shape == (0, 8)
    assert pretrained.fill_mask([]) == []
    assert reviews.predict([]) == []
    quiz = pretrained.with_head("multiple_choice", ["A", "B"])
    for model, row in ((pretrained, "a"), (reviews, "a"), (quiz, ("a", "b", "c"))):
        width = model.encode([row])["input_ids"].shape[1]
        assert {x.shape for x in model.encode(np.array([])).values()} == {(0, width)}


def test_a_text_alone_a_list_and_an_array_are_alike(pretrained, reviews):
    texts = ["a [MASK]", "b c [MASK]"]
    alike = (texts, tuple(texts), np.array(texts)), (texts[:1], texts[0], np.array(texts[0]))
    for method in (pretrained.embed, pretrained.fill_mask, pretrained.encode, reviews.predict):
        for same in alike:
            assert len({str(method(x)) for x in same}) == 1
    pairs = [("a", "b"), ("c", "d")]
    ids = [pretrained.encode(x)["segment_ids"].tolist() for x in (pairs, np.array(pairs))]
    assert ids[0] == ids[1]


def test_each_is_shown_in_a_line(pretrained, reviews):
    shown = [albert_tf.Lamb(1e-3), pretrained.tokenizer.backend, reviews.task, reviews.encoder]
    for loaded in (pretrained, reviews):
        shown += [loaded, loaded.checkpoint, loaded.tokenizer, loaded.model, loaded.config]
    for value in shown:
        assert "\n" not in repr(value)
        assert len(repr(value)) < 1000, type(value)
    assert "learning_rate=0.001" in repr(albert_tf.Lamb(1e-3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, _: model.predict(["a"]), r"is not fine-tuned\. Fine-tune it"),
        (lambda model, _: model.fill_mask(["a"], top_k=0), "top_k must be at least 1"),
        (lambda model, _: model.fill_mask(["a"]), r"no \[MASK\] in 'a'"),
        (lambda model, _: model.fill_mask(["[MASK] " * 20]), "a text has 22 tokens, more than 16"),
        (lambda model, _: model.with_head("span"), "there is no kind 'span'"),
        (lambda _, tuned: tuned.fill_mask(["a [MASK]"]), "has no masked-LM head, which guesses"),
        (lambda _, tuned: tuned.embed(["a"], pooling="max"), "pooling: 'max' is not one of mean, "),
        (lambda _, tuned: tuned.predict(None), "pass a text or a list of inputs, not 'None'"),
        (lambda _, tuned: tuned.embed({"a"}), "pass a text or a list of inputs, not "),
        (lambda _, tuned: tuned.embed([3]), "an input must be text, or a tuple of texts, not '3'"),
        (lambda _, tuned: tuned.encode([b"x"]), "an input must be text, or a tuple of texts"),
        (lambda _, tuned: tuned.predict([("a", "b")]), "an input must have 1 text, not 2: 'a'"),
        (lambda _, tuned: tuned.predict([()]), "an input must have 1 text, not 0"),
        (
            lambda model, _: model.export("x.txt"),
            r"to: 'x\.txt' is not a folder\. Use another path",
        ),
        (lambda model, _: model.export("new", kind="foo"), "kind: 'foo' is not one of encoder, "),
        (lambda model, _: model.export("new", dtype="int4"), "dtype: 'int4' is not one of float32"),
        (lambda *_: albert_tf.load("none"), "there is nothing at 'none'"),
        (lambda *_: albert_tf.load("."), r"'\.' is not one of: a checkpoint of this project; "),
    ],
)
def test_mistakes_are_named(pretrained, reviews, tmp_path, monkeypatch, call, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").touch()
    with one_line(message):
        call(pretrained, reviews)
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_a_checkpoint_without_vocabulary_takes_another_ones(tmp_path, vocabulary):
    tiny_checkpoints.write(tmp_path, tiny_checkpoints.make(), "albert_tf")
    model = albert_tf.load(tmp_path)
    assert model.tokenizer is None
    with one_line("has no vocabulary next to it: pass vocabulary="):
        model.embed(["a"])
    assert albert_tf.load(tmp_path, vocabulary=vocabulary).embed(["a"]).shape == (1, 8)
    with one_line(r"is not a folder with one of spiece\.model"):
        albert_tf.load(tmp_path, vocabulary=str(tmp_path))


def test_heads_of_one_output_and_no_run(tmp_path, vocabulary):
    """A regression says so; a head that does not is not called no head at all."""
    for name, is_regression in (("numbers", True), ("head", False)):
        made = tiny_checkpoints.make_one_output(vocabulary, is_regression)
        tiny_checkpoints.write(tmp_path / name, made, "hugging_face")
    model = albert_tf.load(tmp_path / "numbers")
    assert model.task.kind.name == "regression"
    [one, pair] = model.predict(["abcd"]) + model.predict([("abcd", "efgh")])
    assert isinstance(one["prediction"], float) and isinstance(pair["prediction"], float)
    assert albert_tf.load(tmp_path / "numbers", task="race").task.kind.name == "multiple_choice"
    with one_line("has a task head but does not say"):
        albert_tf.load(tmp_path / "head").predict([("a", "b", "c")])


def test_a_new_head_keeps_nothing_of_the_old_one(reviews):
    tuned = reviews.with_head("multi_label", reviews.task.labels)
    task, weights = tuned.snapshot().run["task"], reviews.checkpoint.weights
    assert task["kind"] == "multi_label"
    assert tuned.checkpoint.weights.keys() == weights.keys()


def test_texts_that_lose_their_ends_are_counted(pretrained, reviews, tmp_path, capsys):
    pretrained.embed(["a"])
    reviews.predict(["a"])
    assert "truncated" not in capsys.readouterr().err
    long = "a b c d e f g h i j k l m n o p q r s t u v w x y z"
    lengths = {}
    for model, use in ((pretrained, "embed"), (reviews, "predict"), (reviews, "encode")):
        getattr(model, use)([long, *["a"] * 70, long])
        size = model.run_config.max_seq_length
        line = f"2 of 72 inputs are truncated: max_seq_length is {size} tokens. Split them"
        assert capsys.readouterr().err.count(line) == 1
        lengths[use] = size
    # Without a task as many as the model has positions.
    assert lengths == {"embed": 16, "predict": 9, "encode": 9}
    tiny_checkpoints.write(tmp_path, reviews.checkpoint, "hugging_face")
    assert albert_tf.load(tmp_path).run_config.max_seq_length == 9  # as transformers cuts there


def test_texts_that_the_vocabulary_cannot_read_are_told(reviews, capsys):
    reviews.predict(["a", "a 好"])
    assert "unreadable" not in capsys.readouterr().err
    reviews.predict(["a", "这家餐厅", "😀"])
    assert "2 of 3 inputs are unreadable: the vocabulary lacks" in capsys.readouterr().err


def test_it_computes_in_keras_policy_unless_the_user_says_otherwise(
    pretrained, tmp_path, vocabulary, request
):
    request.addfinalizer(functools.partial(keras.config.set_dtype_policy, "float32"))
    run = tiny_exports.write_run(tmp_path, "classification", vocabulary, dtype="mixed_bfloat16")
    paths, dtypes = (run, pretrained.checkpoint.source), ("float32", "mixed_bfloat16")
    for path, policy, dtype in zip(paths, dtypes, reversed(dtypes), strict=True):
        keras.config.set_dtype_policy(policy)
        assert albert_tf.load(path).model.dtype_policy.name == policy
        model = albert_tf.load(path, dtype=dtype).with_head(labels=["a", "b"])
        assert model.run_config.dtype == model.model.dtype_policy.name == dtype
    keras.config.set_dtype_policy("mixed_float16")
    with one_line("Keras's global policy is 'mixed_float16': pass dtype="):
        albert_tf.load(run)
    assert albert_tf.load(run, dtype="float32").run_config.dtype == "float32"


@pytest.mark.parametrize("kind", ["span", "token_classification"])
def test_long_texts_are_read_in_one_pass_where_the_model_has_the_positions(
    kind, tmp_path, vocabulary
):
    contents = tiny_exports.contents(kind, vocabulary, max_position_embeddings=256)
    formats.write_folder(contents, f"{tmp_path}/model")
    own = task_table.make_own("token_classification", tiny_exports.LABELS["token_classification"])
    task = "squad1" if kind == "span" else own
    load = functools.partial(albert_tf.load, f"{tmp_path}/model", task=task)
    text = " ".join(["ab"] * 80)
    row = ("ab?", text) if kind == "span" else (text,)
    sizes = []
    for model in (load(max_seq_length=64, doc_stride=24), load(max_seq_length=256)):
        examples = [model.task.kind.data.make_example("0", row)]
        options = model.tokenizer, model.task.labels, model.run_config
        sizes.append(model.task.kind.data.encode(examples, *options, trains=True).size)
    assert sizes[0] > sizes[1] == 1
    assert len(model.tokenizer.encode(text)) > 200
    with one_line("encode is not for "):
        model.encode([row])
    assert model.predict([row if kind == "span" else text])[0]["prediction"] is not None


def test_options_of_the_run_may_be_replaced(pretrained, tmp_path):
    path = pretrained.checkpoint.source
    assert albert_tf.load(path, max_seq_length=7).encode(["a b c"])["input_ids"].shape == (1, 7)
    deeper = albert_tf.load(path, **{"albert.num_hidden_layers": 2})
    deeper.save(str(tmp_path / "deeper"))
    assert albert_tf.load(tmp_path / "deeper").config == deeper.config != pretrained.config
    with one_line("unknown key 'max_length'"):
        albert_tf.load(path, max_length=7)


@pytest.mark.usefixtures("in_graphs")
def test_a_new_head_is_trained_and_exported(pretrained, tmp_path):
    tuned = pretrained.with_head("regression")
    targets = {"logits": np.array([[1.0], [-1.0]])}
    tuned.model.compile("adam", loss={"logits": "mse"})
    tuned.model.fit(tuned.encode(["abcd", "efgh ijkl"]), targets, epochs=2, verbose=0)
    [prediction] = tuned.predict(["abcd"])
    folder = tuned.export(str(tmp_path / "model"), text=False)
    asked = tiny_exports.ask_session(folder, {"token_ids": tuned.encode(["abcd"])})["token_ids"]
    np.testing.assert_allclose(asked["value"], [prediction["prediction"]], rtol=1e-5)


@pytest.mark.full
def test_a_typed_program_of_a_user_passes_strict_checks(tmp_path):
    (tmp_path / "user.py").write_text(
        "import albert_tf\n"
        "model: albert_tf.LoadedModel = albert_tf.load('albert_base', max_seq_length=64)\n"
        "size: int = model.config.hidden_size + albert_tf.PRESETS['albert_base_v2'].hidden_size\n"
        "piece: str = model.fill_mask(['a [MASK]'])[0][0][0].piece\n"
        "label: object = model.predict(['a text'])[0]['prediction']\n"
        "path: str = model.with_head(labels=['a', 'b']).export('models/a')\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file="]
    command = [*mypy, str(tmp_path / "user.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout
