"""Runs on phonemes, from a list of symbols and rows of words to a folder of another program."""

import dataclasses
import json
import re
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
import tiny_records
import tiny_run
from optional import torch, transformers
from refusals import one_line
from replicas import two_replicas

from albert_tf.checkpoints import formats, matching, styletts2
from albert_tf.data_prep.pretraining_data import dataset
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.model import albert_model, weight_names
from albert_tf.pipelines import pretraining_evaluation, pretraining_records
from albert_tf.records import input_pipeline, manifest
from albert_tf.tokenizers import tokenization
from albert_tf.train import growth
from albert_tf.train.start import Start
from albert_tf.train_config import Phase

pytestmark = pytest.mark.usefixtures("eagerly")
SYMBOLS = ["$", "M", "?", " ", ",", *"abdehiklmnoprstuvˈəɛ"]
GROWN = ("hidden_size", "num_attention_heads", "num_hidden_layers")
SPECIAL = {"pad": "$", "unk": "?", "cls": "$", "sep": "$", "mask": "M"}
WORDS = ["hello", "there", "men", "love", "books", "and", "bread"]
SPOKEN = ["hɛlˈo", "dˈɛr", "mˈɛn", "lˈəv", "bˈuks", "ənd", "brˈɛd"]
DATA = DataConfig(
    sentence_task="phonemes",
    masking="online",
    max_seq_length=32,
    max_predictions_per_seq=8,
    ngram=1,
    eval_fraction=0.2,
    shard_megabytes=0.002,
)


def write_vocabulary(folder):
    folder.mkdir()
    (folder / "symbols.txt").write_text("".join(f"{x}\n" for x in SYMBOLS))
    (folder / "cleaning.json").write_text(json.dumps(SPECIAL))
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phonemes")
    rng = np.random.default_rng(0)
    with open(folder / "rows.jsonl", "w") as file:
        for _ in range(80):
            chosen = rng.integers(0, len(WORDS), rng.integers(2, 12))
            words = [w for i in chosen for w in (WORDS[i].title(), ",")]
            spoken = [w for i in chosen for w in (SPOKEN[i], ", ")]
            file.write(json.dumps({"text": words, "phonemes": spoken}) + "\n")
    (folder / "words.txt").write_text("\n".join(WORDS[:5]) + "\n")
    make(folder, folder / "records")
    return folder


def make(folder, output, config=DATA, words="words.txt"):
    vocabulary = folder / "symbols"
    dataset.create(
        config,
        input_files=[f"{folder}/rows.jsonl"],
        vocabulary=str(vocabulary) if vocabulary.exists() else write_vocabulary(vocabulary),
        output_dir=str(output),
        workers=tiny_records.ALONE,
        words=words and f"{folder}/{words}",
    )


def settings(**changes):
    albert = tiny_run.albert(vocab_size=len(SYMBOLS), max_position_embeddings=32)
    values = {"sentence_task": "phonemes", "num_words": 7, "max_seq_length": 32, "albert": albert}
    values |= {"max_predictions_per_seq": 8, "num_train_steps": 4}
    values |= {"eval_steps": 2, "save_checkpoints_steps": 2}
    return tiny_run.settings(**(values | changes))


def run(data, folder, config, **options):
    train, held_out = sorted(data.glob("*/train-*")), [f"{data}/records/eval-*"]
    train = [str(x) for x in train if config.phases or x.parent.name == "records"]
    return tiny_run.run_files(train, held_out, folder, config, **options)


def assert_same_weights(one, other, atol=0):
    for name, value in one.weights.items():
        np.testing.assert_allclose(other.weights[name], value, 0, atol, err_msg=name)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert run(data, folder, settings())
    return folder


@pytest.mark.full
def test_a_run_goes_on_as_if_it_had_not_stopped_and_is_evaluated(data, trained, tmp_path):
    run(data, tmp_path / "run", settings(stop_at_step=2))
    run(data, tmp_path / "run", settings())
    assert_same_weights(*[formats.read(f"{x}/model.ckpt-4") for x in (trained, tmp_path / "run")])
    held_out = [f"{data}/records/eval-*"]
    evaluated = pretraining_evaluation.evaluate(str(trained), held_out, which="newest")
    logged = tiny_run.metrics(trained)[-1]
    for name in ("masked_lm_loss", "masked_lm_accuracy", "word_loss", "word_accuracy"):
        assert evaluated["phonemes"][name] == pytest.approx(logged[f"eval_{name}"], rel=1e-5)


@pytest.mark.full
def test_replicas_give_the_same_and_phases_are_one_run(data, trained, tmp_path):
    assert run(data, tmp_path / "two", settings(eval_steps=0), strategy=two_replicas())
    both = [formats.read(f"{x}/model.ckpt-4") for x in (trained, tmp_path / "two")]
    assert_same_weights(*both, atol=1e-5)
    make(data, data / "short", dataclasses.replace(DATA, max_seq_length=16))
    phases = (Phase(last_step=1, max_seq_length=16), Phase(last_step=2))
    assert run(data, tmp_path / "phases", settings(phases=phases, num_train_steps=2, eval_steps=0))


def read_rows(data, number, config):
    """The first masked rows of the records, without padding, as NumPy's."""
    paths = sorted(map(str, (data / "records").glob("train-*")))
    tokenizer = tokenization.load(f"{data}/records/{manifest.VOCABULARY}")
    masking = pretraining_records.make_masking(config, paths, tokenizer)
    raw = next(iter(input_pipeline.read(paths).batch(number)))
    rows = masking.read(raw, tf.zeros([number, 2], tf.int64))
    return [{name: x[i].numpy() for name, x in rows.items()} for i in range(number)]


def test_whole_words_are_masked_alike_and_spaces_stay(data):
    fates = Counter()
    for row in read_rows(data, 50, settings(masked_lm_prob=0.24)):
        count, n = int(row["masked_lm_weights"].sum()), row["input_mask"].sum()
        positions, seen = row["masked_lm_positions"][:count], row["input_ids"][:n]
        whole = seen.copy()
        whole[positions] = row["masked_lm_ids"][:count]
        assert seen[0] == seen[-1] == 0 and 3 in whole
        assert not {0, 3} & {*row["masked_lm_ids"][:count]}
        text = "".join(SYMBOLS[i] for i in whole[1:-1])
        for match in re.finditer("[^ ,]+|,", text):
            spoken, place = match[0], slice(match.start() + 1, match.end() + 1)
            is_chosen = np.isin(np.arange(n)[place], positions)
            assert is_chosen.all() or not is_chosen.any()
            known = SPOKEN[:5].index(spoken) + 1 if spoken in SPOKEN[:5] else 0
            assert set(row["word_ids"][place]) == {known}
            if is_chosen.any() and spoken != ",":
                masked = seen[place] == 1
                assert masked.all() or not masked.any()
                fate = "kept" if (seen[place] == whole[place]).all() else "random"
                fates["mask" if masked.all() else fate] += 1
    assert fates["mask"] > fates["kept"] + fates["random"] and min(fates.values()) > 1


@pytest.fixture
def heard(trained):
    """Inputs, and what the trained encoder makes of them."""
    checkpoint = formats.read(str(trained), which="newest")
    network = albert_model.Albert(checkpoint.config, dtype="float32")
    names = weight_names.weights_by_name(network)
    matching.assign_weights({n: checkpoint.weights[n] for n in names}, network, "the run")
    ids = np.array([[0, 9, 13, 14, 3, 7, 0], [0, 5, 6, 7, 0, 0, 0]])
    mask = np.array([[1] * 7, [1] * 5 + [0] * 2])
    return ids, mask, network({"input_ids": ids, "input_mask": mask})


def test_transformers_loads_it_with_nothing_missing(trained, heard, tmp_path):
    folder = str(tmp_path / "folder")
    formats.convert(str(trained), folder, to_format="hugging_face", which="newest")
    model, notes = transformers.AlbertModel.from_pretrained(folder, output_loading_info=True)
    assert not any(notes.values())
    check(model, heard)
    assert formats.read(folder).vocabulary.keys() == {"symbols.txt", "cleaning.json"}


def check(model, heard):
    ids, mask, expected = heard
    with torch.no_grad():
        outputs = model.eval()(torch.tensor(ids), attention_mask=torch.tensor(mask))
    ours, theirs = expected["sequence_output"], outputs["last_hidden_state"]
    np.testing.assert_allclose(theirs.numpy()[mask > 0], ours.numpy()[mask > 0], atol=1e-5)
    np.testing.assert_allclose(outputs["pooler_output"], expected["pooled_output"], atol=1e-5)


def test_styletts2_loads_it_and_a_run_begins_from_it(data, trained, heard, tmp_path, monkeypatch):
    pytest.importorskip("torch")  # the format of its file
    yaml = pytest.importorskip("yaml")
    folder = tmp_path / "plbert"
    formats.convert(str(trained), str(folder), to_format="styletts2", which="newest")
    # As StyleTTS2 reads it.
    parameters = yaml.safe_load((folder / "config.yml").read_text())["model_params"]
    model = transformers.AlbertModel(transformers.AlbertConfig(**parameters))
    saved = torch.load(folder / "step_4.t7", map_location="cpu", weights_only=True)["net"]
    names = (name[7:] for name in saved)
    state = {x[8:]: saved[f"module.{x}"] for x in names if x.startswith("encoder.")}
    del state["embeddings.position_ids"]
    model.load_state_dict(state)
    check(model, heard)
    assert_same_weights(formats.read(str(folder)), formats.read(str(trained), which="newest"))
    start = Start(init_checkpoint=str(folder), allow_partial="cls/.*")
    monkeypatch.setattr(tiny_run, "Start", lambda: start)
    assert run(data, tmp_path / "run", settings(num_train_steps=2, num_words=9, eval_steps=0))
    assert "checkpoint" not in vars(start)  # out of memory


def test_a_file_of_kokoro_is_read_with_its_symbols(data, trained, tmp_path, monkeypatch):
    pytest.importorskip("torch")  # the format of its file
    formats.convert(str(trained), f"{tmp_path}/plbert", to_format="styletts2", which="newest")
    saved = torch.load(tmp_path / "plbert/step_4.t7", weights_only=True)["net"]
    state = {name.replace(".encoder.", ".", 1): x for name, x in saved.items()}
    path = tmp_path / "kokoro.pth"
    torch.save({"bert": state, "decoder": {"module.w": torch.ones(2)}}, path)
    ids = {symbol: i for i, symbol in enumerate(SYMBOLS) if i not in (0, 1, 2)}
    albert = dataclasses.asdict(tiny_run.albert(max_position_embeddings=32))
    sizes = {name: x for name, x in albert.items() if re.search("size|num_|max_", name)}
    config = {"n_token": len(SYMBOLS), "plbert": sizes | {"dropout": 0.1}, "vocab": ids}
    with one_line(r"config\.json"):
        formats.read(str(path))
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(styletts2, "_MASK", (1, "M"))
    found, source = formats.read(str(path)), formats.read(str(trained), which="newest")
    assert_same_weights(found, source)
    assert {"bert/pooler/dense/kernel"} < found.weights.keys() < source.weights.keys()
    formats.convert(str(path), f"{tmp_path}/ours")
    tokenizer = tokenization.load(f"{tmp_path}/ours/vocabulary")
    assert tokenizer.backend.pieces == [*SYMBOLS[:2], "<2>", *SYMBOLS[3:]]
    assert (tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id) == (0, 0, 1)


def test_a_model_grows_with_its_head_of_words(trained):
    before = formats.read(str(trained))
    wide = tiny_run.albert(hidden_size=16, num_attention_heads=4, num_hidden_layers=3)
    config = dataclasses.replace(before.config, **{x: getattr(wide, x) for x in GROWN})
    grown = growth.grow_checkpoint(before, tiny_run.settings(albert=config))
    assert grown.weights.keys() == before.weights.keys()
    old, new = (x.weights["cls/words/output_weights"] for x in (before, grown))
    np.testing.assert_allclose(new.reshape(7, 2, 8).sum(1), old, rtol=1e-5)


def test_mistakes_are_one_line(data, trained, tmp_path):
    (data / "empty.txt").write_text("")
    for task, words, message in (
        ("phonemes", None, "--words and --sentence_task=phonemes belong together"),
        ("none", "words.txt", "belong together"),
        ("phonemes", "empty.txt", "empty.txt is empty"),
    ):
        with one_line(message):
            make(data, tmp_path / "records", dataclasses.replace(DATA, sentence_task=task), words)
    with one_line("needs masking=online"):
        DataConfig(sentence_task="phonemes")
    with one_line("5 different words, but the head has room for 4"):
        run(data, tmp_path / "small", settings(num_words=5))
    (data / "others.txt").write_text("".join(f"{word}\n" for word in WORDS[:0:-1]))
    make(data, tmp_path / "others", words="others.txt")
    with one_line("have other words"):
        pretraining_evaluation.evaluate(str(trained), [f"{tmp_path}/others/eval-*"])
    for content, message in (
        ("model_params: [", "has no model_params, the model's sizes in YAML"),
        ("model_params: {hidden_size: 8, num_attention_heads: 2}", "has no step_N.t7"),
    ):
        (tmp_path / "config.yml").write_text(content)
        with one_line(message):
            formats.read(str(tmp_path))
