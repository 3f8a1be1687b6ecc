import pytest
import tensorflow as tf
import tiny_texts
from vocabularies import PUBLISHED, SETTINGS

from albert_tf.export.graph_tokenizer import code_points, normalization_ops
from albert_tf.tokenizers import normalization
from albert_tf.tokenizers.tokenization import TokenizerConfig


def assert_same(config, lines):
    clean = normalization_ops.make_normalize(config)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def traced(texts):
        chars = clean(code_points.decode(texts))
        columns = (chars.starts, chars.ends)
        spans = [code_points.to_ragged(column, chars.rows, chars.num_rows) for column in columns]
        return code_points.encode(chars), *spans

    cleaned, starts, ends = traced(tf.constant(lines))
    rows = zip(lines, cleaned.numpy().tolist(), starts.to_list(), ends.to_list(), strict=True)
    for line, actual, begins, afters in rows:
        text = line.decode(errors="replace")
        expected, origin = normalization.normalize_with_origin(text, config)
        assert actual.decode() == expected, text
        assert begins == (origin.starts if origin else [*range(len(text))]), text
        assert afters == (origin.ends if origin else [*range(1, len(text) + 1)]), text


@pytest.mark.parametrize("config", [PUBLISHED, TokenizerConfig(keep_accents=True)], ids=str)
def test_text_and_origins_are_those_of_python(config):
    assert_same(config, tiny_texts.texts(0, 400))


@pytest.mark.full
@pytest.mark.parametrize("config", SETTINGS[::3], ids=str)
def test_all_settings(config):
    assert_same(config, tiny_texts.texts(1, 700))


@pytest.mark.full
@pytest.mark.parametrize("config", [PUBLISHED, TokenizerConfig(keep_accents=True)], ids=str)
def test_every_character(config):
    every = [*code_points.iterate_characters()][:: 11 if config.keep_accents else 5]
    assert_same(config, [f"a{c}\u0301 {c}Σ{c}Α".encode() for c in every])
