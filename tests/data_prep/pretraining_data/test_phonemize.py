import ctypes.util
import json
from collections import Counter

import pytest
import tiny_records
from input_files import write_rows
from refusals import one_line

from albert_tf.data_prep.corpus.shards import Workers
from albert_tf.data_prep.pretraining_data import phonemize
from albert_tf.data_prep.pretraining_data.phonemize import PhonemesConfig
from albert_tf.tokenizers import tokenization

needs_espeak = pytest.mark.skipif(
    not ctypes.util.find_library("espeak-ng"), reason="espeak-ng is not installed"
)
COLUMNS = PhonemesConfig(phonemes_column="phonemes", shard_megabytes=0.001)


def make(tmp_path, rows, config=COLUMNS, name="out", workers=tiny_records.ALONE, vocabulary=None):
    path = write_rows(tmp_path / "rows.jsonl", rows)
    files = {"input_files": [path], "output_dir": str(tmp_path / name)}
    phonemize.phonemize(config, workers=workers, vocabulary=vocabulary, **files)
    return tmp_path / name


@needs_espeak
@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en-us", "It was of the men’s.", "ɪt |wˈʌz |ʌv |ðə |mˈɛnz|."),
        ("en-us", "42 dogs--42", "fˈoːɹɾi tˈuː |dˈɑːɡz|-|-|fˈoːɹɾi tˈuː"),
        ("de", "Ja, „ich“!", "jˈɑː|, |„|ɪç|“|!"),
        ("ko", "농민 시위를", "nˈoŋmin |sˈiwiɾˌɯɫ"),
        ("hi", "नमस्ते\x00😀", None),
    ],
)
def test_words_are_read_together_and_keep_their_phonemes(language, text, expected):
    counts = Counter()
    words, phonemes = phonemize.read_aloud(text, phonemize.load_espeak(language), counts)
    assert len(words) == len(phonemes)
    if expected:
        assert phonemes == expected.split("|")
        assert "".join(words) == "".join(text.split())


@needs_espeak
def test_words_of_another_language_are_counted():
    counts = Counter()
    _, phonemes = phonemize.read_aloud("我 hello 爱", phonemize.load_espeak("cmn"), counts)
    assert counts["words_of_another_language"] and not any("(" in x for x in phonemes)


@pytest.mark.full
def test_columns_make_the_same_folder_however_many_work(tmp_path):
    rows = [
        {"text": ["Hello", ",", "World"], "phonemes": ["hɛlˈo", ", ", "wˈɜld"]},
        {"text": "hello world", "phonemes": "hɛlˈo wˈɜld"},
        {"text": ["hello"], "phonemes": ["hɛlˈo\n"]},
    ] * 40
    out = make(tmp_path, rows)
    assert (out / "words.txt").read_text() == "hello\nworld\n"
    assert json.loads((out / "phonemes-00000-000.jsonl").read_text().split("\n")[0]) == rows[0]
    tokenizer = tokenization.load(str(out / "vocabulary"))
    assert tokenizer.encode("ɜ")[0] > tokenizer.mask_id == 2
    content = tiny_records.contents(out)
    assert len([name for name in content if name.endswith("jsonl")]) > 1
    (out / "phonemes.json").unlink()
    (out / "phonemes-00000-001.jsonl").unlink()
    (out / "done-00000.json").unlink()
    make(tmp_path, rows)  # goes on
    make(tmp_path, rows)  # has nothing to do
    assert tiny_records.contents(out) == content
    two = make(tmp_path, rows, name="two", workers=Workers(num_processes=2))
    assert tiny_records.contents(two) == content


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "one two", "phonemes": "wˈʌn"}, "row 1: it has 2 words, but phonemes of 1"),
        ({"text": ["one"], "phonemes": [3]}, "row 1: it lacks 'text' and 'phonemes'"),
        ({"text": "one"}, "row 1: it lacks 'text' and 'phonemes'"),
        ({"text": [","], "phonemes": [","]}, "the text has no words with letters"),
    ],
)
def test_bad_rows_are_one_line(tmp_path, row, message):
    with one_line(message):
        make(tmp_path, [row])


def test_symbols_that_the_list_lacks_are_counted_or_refused(tmp_path):
    (tmp_path / "symbols.txt").write_text("<pad>\n<unk>\n<mask>\nw\nʌ\n")
    rows = [{"text": "one won", "phonemes": "wʌn wʌn"}]
    out = make(tmp_path, rows, vocabulary=str(tmp_path))
    assert json.loads((out / "phonemes.json").read_text())["lacking"] == {"n": 2, " ": 2}
    assert not (out / "vocabulary").exists()
    config = PhonemesConfig(phonemes_column="phonemes", refuse_unknown=True)
    with one_line(r"lacks 2 symbols, .*: 'n' 2, ' ' 2.* Add them"):
        make(tmp_path, rows, config, name="other", vocabulary=str(tmp_path))
    (tmp_path / "symbols.txt").unlink()
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    with one_line("phonemes need a list of symbols, not pieces"):
        make(tmp_path, rows, config, name="other", vocabulary=str(tmp_path))


def test_what_is_missing_names_what_installs_it(monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(phonemize, "_ESPEAK", "libno-such.so.1")
        with one_line("apt-get install espeak-ng"):
            phonemize.load_espeak("en-us")
    if ctypes.util.find_library("espeak-ng"):
        with one_line("espeak-ng --voices has no 'xx-none'"):
            phonemize.load_espeak("xx-none")
