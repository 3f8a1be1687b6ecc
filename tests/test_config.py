import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

from albert_tf import config, config_io, files
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.errors import UserError
from albert_tf.export.export_config import SourceConfig
from albert_tf.train_config import FinetuneConfig, PretrainConfig

# What a published albert_config.json of version 2 holds.
PUBLISHED_BASE_V2 = {
    "attention_probs_dropout_prob": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0,
    "embedding_size": 128,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "inner_group_num": 1,
    "down_scale_factor": 1,
    "type_vocab_size": 2,
    "vocab_size": 30000,
    "layers_to_keep": [],
}
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SIZES += ("embedding_size", "hidden_dropout_prob", "cross_layer_sharing")
PUBLISHED_SIZES = {
    "albert_tiny": (312, 4, 12, 1248, 128, 0.0, "all"),
    "albert_small": (384, 6, 12, 1536, 128, 0.0, "all"),
    "albert_base_v1": (768, 12, 12, 3072, 128, 0.1, "all"),
    "albert_large_v1": (1024, 24, 16, 4096, 128, 0.1, "all"),
    "albert_xlarge_v1": (2048, 24, 16, 8192, 128, 0.1, "all"),
    "albert_xxlarge_v1": (4096, 12, 64, 16384, 128, 0.0, "all"),
    "albert_base_v2": (768, 12, 12, 3072, 128, 0.0, "all"),
    "albert_large_v2": (1024, 24, 16, 4096, 128, 0.0, "all"),
    "albert_xlarge_v2": (2048, 24, 16, 8192, 128, 0.0, "all"),
    "albert_xxlarge_v2": (4096, 12, 64, 16384, 128, 0.0, "all"),
    "bert_base": (768, 12, 12, 3072, 768, 0.1, "none"),
    "bert_large": (1024, 24, 16, 4096, 1024, 0.1, "none"),
    "bert_xlarge": (2048, 24, 32, 8192, 2048, 0.1, "none"),
}
ALBERT, PRETRAIN, FINETUNE = AlbertConfig, PretrainConfig, FinetuneConfig
LOOP = r"layer_loop needs .* Use rematerialize=true instead\.$"
# (class, an override as of --set, part of the message)
MISTAKES = [
    (ALBERT, "cross_layer_sharing=al", "'al' is not one of all, attention, ffn, none"),
    (ALBERT, "hidden_act=erf", "'erf' is not one of gelu, relu, tanh, linear"),
    (ALBERT, "num_attention_heads=7", "768 is not a multiple of num_attention_heads 7"),
    (ALBERT, "num_hidden_groups=13", "13 is more than num_hidden_layers 12"),
    (ALBERT, "vocab_size=0", "vocab_size must be at least 1, not 0"),
    (ALBERT, "hidden_dropout_prob=1.0", "hidden_dropout_prob must be below 1, not 1.0"),
    (ALBERT, "classifier_dropout_prob=-0.1", "classifier_dropout_prob must be at least 0"),
    (PRETRAIN, "sentence_task=mlm", "'mlm' is not one of sop, nsp, none"),
    (PRETRAIN, "dtype=float16", "'float16' is not one of float32, mixed_bfloat16"),
    (PRETRAIN, "max_seq_length=513", "513 is more than albert.max_position_embeddings 512"),
    (PRETRAIN, "num_train_steps=0", "num_train_steps must be at least 1"),
    (PRETRAIN, "num_warmup_steps=-1", "num_warmup_steps must be at least 0"),
    (PRETRAIN, "train_batch_size=10000000", "train_batch_size must be at most 1000000"),
    (PRETRAIN, "shuffle_buffer_size=200000000", "shuffle_buffer_size must be at most 100000000"),
    (PRETRAIN, "seed=99999999999999999999", "seed must be at most 2147483647"),
    (PRETRAIN, "max_grad_norm=0", "max_grad_norm must be more than 0, not 0"),
    (PRETRAIN, "max_seq_length=long", "max_seq_length must be a whole number, not 'long'"),
    (PRETRAIN, "num_train_steps=1e5", "num_train_steps must be a whole number, not 100000.0"),
    (PRETRAIN, "seed=true", "seed must be a whole number, not True"),
    (PRETRAIN, "bias_correction=1", "bias_correction must be true or false, not 1"),
    (PRETRAIN, "dtype=null", "dtype must be text, not None"),
    (PRETRAIN, 'jit_compile="yes"', r"jit_compile must be true or false or null, not 'yes'"),
    (PRETRAIN, "learning_rate=[1]", r"learning_rate must be a number, not \[1\]"),
    (PRETRAIN, "albert=3", "albert must be an object, not 3"),
    (PRETRAIN, "albert=albert_huge", r"unknown preset 'albert_huge'\. Known: albert_tiny, "),
    (PRETRAIN, "albert.hidden_size=1.5", "albert: hidden_size must be a whole number, not 1.5"),
    (PRETRAIN, "albert.depth=2", "config: albert: unknown key 'depth'.*num_hidden_layers"),
    (PRETRAIN, "albert.seed.low=3", "albert: unknown key 'seed'"),
    (PRETRAIN, "seed.low=3", "seed must be a whole number, not {'low': 3}"),
    (PRETRAIN, 'phases=[{"last_step":0}]', "config: phases 1: last_step must be at least 1, not 0"),
    (PRETRAIN, 'phases=[{"last_step":9,"sed":1}]', "phases 1: unknown key 'sed'"),
    (PRETRAIN, "phases=[3]", r"phases\[0\] must be an object, not \(3,\)"),
    (PRETRAIN, "phases=[{}]", "phases 1: 'last_step' is missing"),
    (PRETRAIN, "learning_rate=NaN", "learning_rate must be at least 0, not nan"),
    (PRETRAIN, "learning_rate=Infinity", "learning_rate must be at most 1.79"),
    (PRETRAIN, "seed", "--set: 'seed' does not have the form key=value"),
    (PRETRAIN, "=3", "unknown key ''"),
    (PRETRAIN, "layer_loop=true albert.cross_layer_sharing=ffn", LOOP),
    (FINETUNE, "layer_loop=true albert.num_hidden_groups=2", LOOP),
    (FINETUNE, "null_answer=none", "null_answer: 'none' is not one of answer_class, null_score"),
    (FINETUNE, "temperature=0", "temperature must be more than 0"),
    (FINETUNE, "pooling=max", "pooling: 'max' is not one of mean, cls, pooler"),
    (FINETUNE, "learning_rate=-1", "learning_rate must be at least 0"),
    (FINETUNE, "warmup_proportion=1", "warmup_proportion must be below 1."),
    (FINETUNE, "num_train_epochs=0", "num_train_steps and num_train_epochs are both 0"),
    (FINETUNE, "patience=1 eval_steps=0", "patience needs eval_steps: set both"),
    (FINETUNE, "class_weights=even", "class_weights: 'even' is not one of balanced"),
    (FINETUNE, "class_weights=[1,-1]", "class_weights: all must be at least 0, and one more"),
    (FINETUNE, "class_weights=[0,0]", "class_weights: all must be at least 0, and one more"),
    (FINETUNE, 'class_weights=[1,"2"]', r"class_weights\[1\] must be a number, not \[1, '2'\]"),
    (FINETUNE, "class_weights=2", r"class_weights must be text or a list, not 2"),
    (FINETUNE, "sentence_task=sop", "unknown key 'sentence_task'. Known: albert, "),
    (FINETUNE, "num_train_steps=30 num_warmup_steps=30", "30 is not below num_train_steps 30"),
]


def write(path, value):
    path.write_text(json.dumps(value))
    return str(path)


@pytest.mark.parametrize(("cls", "overrides", "message"), MISTAKES)
def test_mistakes_are_one_line(cls, overrides, message):
    with pytest.raises(UserError, match=message) as caught:
        config_io.load(cls, None, overrides.split())
    assert "\n" not in str(caught.value)


def test_a_published_file_is_the_default():
    published = config_io.from_dict(AlbertConfig, PUBLISHED_BASE_V2)
    assert published == PRESETS["albert_base_v2"] == AlbertConfig() == PretrainConfig().albert


def test_fields_are_the_published_keys():
    fields = {field.name for field in dataclasses.fields(AlbertConfig)}
    own = {*config.OWN_KEYS, "classifier_dropout_prob"}
    assert fields - own == set(PUBLISHED_BASE_V2) - config.DEAD_KEYS.keys()
    assert not fields & config.DEAD_KEYS.keys()
    for key in config.DEAD_KEYS:
        assert config_io.from_dict(AlbertConfig, {key: 1}) == AlbertConfig()
        with pytest.raises(UserError, match=f"unknown key '{key}'"):
            config_io.from_dict(PretrainConfig, {key: 1})


def test_sizes_of_presets():
    assert PRESETS.keys() == PUBLISHED_SIZES.keys()
    for name, sizes in PUBLISHED_SIZES.items():
        preset = PRESETS[name]
        assert tuple(getattr(preset, field) for field in SIZES) == sizes
        assert preset.attention_probs_dropout_prob == preset.hidden_dropout_prob
        assert (preset.vocab_size, preset.max_position_embeddings) == (30000, 512)


def test_pretraining_defaults_are_the_papers():
    paper = PretrainConfig()
    assert (paper.train_batch_size, paper.num_train_steps) == (4096, 125_000)
    assert (paper.learning_rate, paper.num_warmup_steps) == (0.00176, 3125)
    assert (paper.optimizer, paper.bias_correction, paper.max_grad_norm) == ("lamb", False, 1.0)
    assert (paper.max_seq_length, paper.max_predictions_per_seq) == (512, 20)


def test_scalars_of_numpy_and_paths_are_plain_values():
    config = FinetuneConfig(learning_rate=np.float64(1e-5), max_seq_length=np.int64(64))
    assert (type(config.learning_rate), type(config.max_seq_length)) == (float, int)
    assert SourceConfig(checkpoint=Path("run")).checkpoint == "run"


def test_what_may_be_zero():
    zeros = ("num_warmup_steps", "eval_steps", "max_eval_examples", "max_rollbacks", "seed")
    assert PretrainConfig(**dict.fromkeys(zeros, 0), layer_loop=True).seed == 0


def test_an_unknown_key_lists_the_known_ones_or_names_the_nearest_one(tmp_path):
    with pytest.raises(UserError, match=r"unknown key 'sed'\. Did you mean 'seed'\?"):
        config_io.load(PretrainConfig, None, ["sed=3"])
    path = write(tmp_path / "config.json", {"sopsop": 3})
    with pytest.raises(UserError) as error:
        config_io.load(PretrainConfig, path)
    known = ", ".join(sorted(field.name for field in dataclasses.fields(PretrainConfig)))
    assert str(error.value) == f"{path}: unknown key 'sopsop'. Known: {known}."


def test_overrides_come_last_and_in_their_order(tmp_path):
    """A preset by its name may be overridden; a whole number is a good float."""
    path = write(tmp_path / "config.json", {"albert": "albert_tiny", "seed": 7})
    assert config_io.load(PretrainConfig, path) == PretrainConfig(
        albert=PRESETS["albert_tiny"], seed=7
    )
    overrides = ["albert.num_hidden_layers=2", "seed=8", "seed=9", "sentence_task=none"]
    loaded = config_io.load(PretrainConfig, path, [*overrides, "learning_rate=1"])
    assert loaded == PretrainConfig(
        albert=dataclasses.replace(PRESETS["albert_tiny"], num_hidden_layers=2),
        seed=9,
        sentence_task="none",
        learning_rate=1.0,
    )
    assert type(loaded.learning_rate) is float
    loaded = config_io.load(PretrainConfig, None, ["albert=bert_base", "albert.vocab_size=5"])
    assert loaded.albert == dataclasses.replace(PRESETS["bert_base"], vocab_size=5)


@pytest.mark.parametrize("text", ["256,64", "[256, 64]"])
def test_lists_of_numbers_need_no_brackets(text):
    loaded = config_io.load(FINETUNE, None, [f"embedding_sizes={text}", f"class_weights={text}"])
    assert loaded.embedding_sizes == (256, 64)
    assert loaded.class_weights == (256, 64)


def test_an_object_is_completed_by_the_defaults(tmp_path):
    path = write(tmp_path / "config.json", {"albert": {"num_hidden_layers": 3}})
    for given in ((path,), (None, ["albert.num_hidden_layers=3"])):
        assert config_io.load(PretrainConfig, *given).albert == AlbertConfig(num_hidden_layers=3)


def test_what_makes_no_sense_names_the_file_once(tmp_path):
    path = write(tmp_path / "config.json", {"albert": {"num_attention_heads": 7}})
    message = "hidden_size 768 is not a multiple of num_attention_heads 7."
    with pytest.raises(UserError) as error:
        config_io.load(PretrainConfig, path)
    assert str(error.value) == f"{path}: albert: {message}"


@pytest.mark.parametrize(
    "saved",
    [
        PRESETS["albert_xxlarge_v1"],
        PretrainConfig(albert=PRESETS["bert_large"], jit_compile=True, learning_rate=1e-5),
        FinetuneConfig(class_weights=(0.0, 2.5)),
        FinetuneConfig(class_weights="balanced"),
    ],
    ids=lambda config: type(config).__name__,
)
def test_what_is_saved_is_loaded(tmp_path, saved):
    path = str(tmp_path / "config.json")
    files.write_json(path, config_io.to_dict(saved))
    assert config_io.load(type(saved), path) == saved


@pytest.mark.parametrize(
    ("path", "overrides", "warmup"),
    [
        ("tiny_english", ("num_train_steps=20",), 2),
        (f"{ROOT}/configs/tiny_english.json", ("num_train_steps=5000",), 500),
        ("tiny_english", (), 100),
        ("tiny_english", ("num_train_steps=500", "num_warmup_steps=100"), 100),
        ("tiny_english", ("num_train_steps=1500", "first_schedule_step=1000"), 50),
        (None, ("num_train_steps=1000",), 25),
        ("own", (), 30),
        ("own", ("num_train_steps=2000",), 30),
    ],
)
def test_the_warm_up_of_a_packaged_config_scales_with_its_steps(
    path, overrides, warmup, tmp_path, capsys
):
    if path == "own":
        values = {"num_train_steps": 1000, "num_warmup_steps": 30}
        path = write(tmp_path / "config.json", values)
    assert config_io.load(PretrainConfig, path, overrides).num_warmup_steps == warmup
    is_scaled = warmup not in (30, 100)
    assert ("num_warmup_steps is" in capsys.readouterr().err) == is_scaled


@pytest.mark.parametrize(
    ("overrides", "num_records", "expected"),
    [
        # SQuAD of the published programs: int(87599 / 48 * 2), int(.1 * that).
        (("num_train_epochs=2", "train_batch_size=48"), 87599, (3649, 364)),
        (("num_train_epochs=3", "train_batch_size=48"), 130319, (8144, 814)),
        (("num_train_steps=70", "num_train_epochs=0"), 87599, (70, 7)),
        (("num_warmup_steps=5", "num_train_epochs=1"), 320, (10, 5)),
        (("warmup_proportion=0", "num_train_epochs=1"), 320, (10, 0)),
        ((), 4, (1, 0)),
    ],
)
def test_steps_from_passes(overrides, num_records, expected):
    config = config_io.load(FinetuneConfig, None, overrides).with_steps(num_records)
    assert (config.num_train_steps, config.num_warmup_steps) == expected
    assert config.with_steps(num_records) == config


def test_steps_that_the_warmup_takes_whole():
    config = FinetuneConfig(num_warmup_steps=30, num_train_epochs=1, num_decay_steps=9)
    assert config.num_train_steps == 0  # not known yet
    with pytest.raises(UserError, match="num_warmup_steps 30 is not below num_train_steps 10"):
        config.with_steps(320)
