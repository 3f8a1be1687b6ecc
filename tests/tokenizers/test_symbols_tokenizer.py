import numpy as np
import pytest
from refusals import one_line

from albert_tf.tokenizers import tokenization, vocabulary_uses
from albert_tf.tokenizers.symbols_tokenizer import SymbolsConfig

ROWS = ["<pad>", "t", "ʃ", "tʃ", "<unk>", " ", "ɪ", "ː", ",", "M"]
CONFIG = SymbolsConfig(mask="M")


def make(rows=ROWS, config=CONFIG):
    return tokenization.make_tokenizer("".join(f"{row}\n" for row in rows).encode(), config)


def test_ids_are_the_lines_and_the_longest_symbol_is_taken():
    tokenizer = make()
    text = "tʃɪːt, ʃM"
    ids, spans = tokenizer.encode_batch_with_offsets([text])[0]
    assert ids == [3, 6, 7, 1, 8, 5, 2, 4]  # what is special elsewhere is unknown in a text
    assert "".join(text[begin:end] for begin, end in spans) == text
    assert tokenizer.decode([0, *ids, 0]) == "tʃɪːt, ʃ"
    special = tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id
    assert (*special, tokenizer.mask_id) == (0, 4, 0, 0, 9)
    assert [ROWS[i] for i in tokenizer.replacement_ids] == ["t", "ʃ", "tʃ", "ɪ", "ː", ","]
    np.testing.assert_array_equal(tokenizer.is_word_start[ids][4:6], [True, True])


def test_unknown_symbols_are_left_out_where_there_is_only_padding_for_them():
    tokenizer = make(config=SymbolsConfig(mask="M", unk="<pad>"))
    [row] = tokenizer.encode_batch_with_offsets(["t?M, ʃ"])
    assert row == ([1, 8, 5, 2], [(0, 1), (3, 4), (4, 5), (5, 6)])


def test_it_is_for_phonemes_alone():
    for use in (vocabulary_uses.GRAPH, vocabulary_uses.GROWTH, vocabulary_uses.PRETRAINING):
        assert "a list of symbols" in vocabulary_uses.find_problem(use, make())


def test_the_order_and_the_special_places_are_in_the_checksum():
    others = [make(ROWS[::-1]), make(config=SymbolsConfig(mask="M", sep=","))]
    assert len({x.sha256 for x in (make(), *others)}) == 3
    assert make().sha256 == make().sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a\n\nb\n", "line 2 is empty"),
        ("a\nb\na\n", "line 3 repeats line 1, 'a'"),
        ("".join(f"{i}\n" for i in range(65_537)), "has 65,537 lines, more than 65,536"),
        ("a\nb\n", "lacks the special tokens <pad>, <unk>, <mask>"),
    ],
)
def test_a_bad_list_is_one_line(tmp_path, content, message):
    (tmp_path / "symbols.txt").write_text(content)
    with one_line(message):
        tokenization.load(str(tmp_path))
