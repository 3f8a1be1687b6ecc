import functools
import json
import re
from collections import Counter

import numpy as np
import pytest
import tiny_records
from refusals import one_line
from repository import ROOT

from albert_tf.data_prep import vocabulary
from albert_tf.data_prep.vocabulary import VocabularyConfig
from albert_tf.errors import UserError
from albert_tf.tokenizers import normalization, tokenization
from albert_tf.tokenizers.tokenization import TokenizerConfig

CORPUS = str(tiny_records.CORPUS)
PUBLISHED = [
    *("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    *("(", ")", '"', "-", ".", "–", "£", "€"),
]


def train(directory, inputs=(CORPUS,), may_keep_accents=True, **changes):
    config = VocabularyConfig(**{"vocab_size": 211, **changes})
    options = {"output_dir": str(directory), "may_keep_accents": may_keep_accents}
    vocabulary.train(config, input_files=inputs, **options)
    return tokenization.load(str(directory))


def test_first_ids_as_published(tmp_path):
    tokenizer = train(tmp_path)
    assert tokenizer.size == 211
    assert [tokenizer.id_to_piece(i) for i in range(13)] == PUBLISHED
    rows = (tmp_path / "spiece.vocab").read_text().split("\n")
    assert [row.split("\t")[0] for row in rows[:13]] == PUBLISHED
    assert len(rows) == 212
    assert tokenizer.unk_id not in tokenizer.encode("The CAFÉ opened, Zoë said: £2.")
    assert tokenizer.decode(tokenizer.encode("The CAFÉ")) == "the cafe"
    assert not any(c.isupper() for i in range(13, 211) for c in tokenizer.id_to_piece(i))
    report = vocabulary.measure_fit(tokenizer, ["the ΩΩ", "of ж"])
    assert report["character_coverage"] == pytest.approx(5 / 8)
    assert report["unknown_rate"] > 0.2


def test_korean_stays_whole(tmp_path):
    text = "한국어 문장을 읽고 쓴다.\n책을 읽고 문장을 쓴다.\n" * 9
    (tmp_path / "ko.txt").write_text(text)
    config = TokenizerConfig(unicode_form="NFKC", keep_accents=True, lower_case=False)
    tokenizer = train(tmp_path / "v", [str(tmp_path / "ko.txt")], vocab_size=25, tokenizer=config)
    assert tokenizer.config == config
    assert tokenizer.decode(tokenizer.encode("한국어 책")) == "한국어 책"


def test_report(tmp_path, capsys):
    train(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())["report"]
    assert report["sampled_lines"] == 36
    assert report["lost_marks"]["lost"] == 2  # é and ë
    assert report["character_coverage"] == 1 - 2 / 1496
    assert report["unknown_rate"] == 0
    assert 1.5 < report["pieces_per_word"] < 3
    # "▁" is a piece of length 0.
    assert sum(report["pieces_by_length"].values()) == 211 - 5
    assert report["pieces_by_length"]["0"] == 1
    first, second, third, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("36 lines: 99.8663% of the characters covered")
    assert third.startswith("normalization drops marks from 2 of ")
    assert third.endswith("; --keep_accents keeps them")
    assert second.startswith("pieces by length: 0: 1; 1: ")
    assert second.count(";") == len(report["pieces_by_length"]) - 1


THAI = "ปู่ ย่า ตา ยาย ไปตลาด และซื้อผลไม้สด เด็ก ชอบเล่นน้ำในแม่น้ำ ที่นี่มีต้นไม้ใหญ่"
HINDI = "हिन्दी में लिखा हुआ यह पाठ बहुत सरल है। विद्यालय में बच्चे पढ़ते हैं। क़लम मेज़ पर है"
JAPANESE = "ガギグゲゴ だから これは が です。"
LATIN = "Voilà un café où l'élève a été. Þór og Über die Straße. Tiếng Việt rất hay. ёлка йод"


@pytest.mark.parametrize(("text", "word"), [(THAI, "ปู่"), (HINDI, "हिन्दी"), (JAPANESE, "ガ")])
def test_marks_that_are_parts_of_letters_are_kept(tmp_path, capsys, text, word):
    (tmp_path / "text").write_text(f"{text}\n" * 30)
    make = functools.partial(train, inputs=[CORPUS, str(tmp_path / "text")])
    tokenizer = make(tmp_path / "kept")
    captured = capsys.readouterr()
    assert tokenizer.config == TokenizerConfig(keep_accents=True)
    assert tokenizer.decode(tokenizer.encode(word)) == word
    assert "100.0000% of the characters covered" in captured.out
    assert "normalization drops" not in captured.out
    assert ": accents are kept, as with --keep_accents. " in captured.err
    make(tmp_path / "kept")  # the same command again
    dropped = make(tmp_path / "dropped", may_keep_accents=False)
    assert dropped.config == TokenizerConfig()
    report = json.loads((tmp_path / "dropped" / "report.json").read_text())["report"]
    lines = [*tiny_records.CORPUS.read_text().split("\n"), *[text] * 30]
    losses = normalization.count_losses(lines, dropped.normalize)
    assert report["lost_marks"]["lost"] == losses.lost
    assert report["character_coverage"] < 0.98
    assert f"normalization drops marks from {losses.lost:,} of " in capsys.readouterr().out


def test_latin_text_stays_as_published(tmp_path):
    (tmp_path / "text").write_text(f"{LATIN}\n" * 200 + f"{HINDI}\n")
    tokenizer = train(tmp_path / "v", [str(tmp_path / "text")], vocab_size=75)
    assert tokenizer.config == TokenizerConfig()
    assert tokenizer.normalize("Voilà Tiếng") == "voila tieng"


@pytest.mark.parametrize(
    ("lines", "changes", "expected"),
    [
        (["ปู่ดี"], {}, (5, 2, 2, ["ปู่ดี -> ปดี"])),
        (["Café né né", "e\u0301"], {}, (10, 4, 0, ["né -> ne", "Café -> cafe", "e\u0301 -> e"])),
        (["Café ปู่"], {"keep_accents": True}, (7, 0, 0, [])),
        (["Café e\u0301"], {"unicode_form": "none"}, (6, 1, 0, ["e\u0301 -> e"])),
        (["plain 12."], {}, (5, 0, 0, [])),
    ],
)
def test_what_normalization_takes(lines, changes, expected):
    normalize = functools.partial(normalization.normalize, config=TokenizerConfig(**changes))
    assert normalization.count_losses(lines, normalize) == expected


def test_sample_is_bounded_and_uniform():
    lines = [str(i) for i in range(100_000)]
    sample = []
    assert list(vocabulary.draw_sample(iter(lines), sample)) == lines
    assert len(set(sample)) == 20_000
    assert sum(map(int, sample)) / 20_000 == pytest.approx(50_000, rel=0.02)


def test_long_lines_are_split_not_dropped(tmp_path):
    (tmp_path / "long.txt").write_text(tiny_records.CORPUS.read_text().replace("\n", " ") * 5)
    assert train(tmp_path / "v", [str(tmp_path / "long.txt")]).size == 211
    line = "wort " * 900 + "x" * 2500
    parts = list(vocabulary.split_long_lines(iter([line])))
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
    assert max(map(len, parts)) <= 1000


def test_same_command_again_changes_nothing_and_another_is_refused(tmp_path, capsys):
    train(tmp_path)
    before = tiny_records.contents(tmp_path)
    train(tmp_path)
    assert "already holds this vocabulary" in capsys.readouterr().err
    (tmp_path / "spiece.model").unlink()  # as if killed after the hashes
    train(tmp_path)
    assert tiny_records.contents(tmp_path) == before
    with one_line(r"holds work with settings.vocab_size=211, not 212"):
        train(tmp_path, vocab_size=212)
    (tmp_path / "identity.json").unlink()
    with one_line("holds another vocabulary"):
        train(tmp_path)


def test_a_sample_has_the_same_share_of_each_file(tmp_path, capsys):
    counts = {"a": 100, "b": 700, "c": 1, "d": 199}
    for name, count in counts.items():
        lines = [f"{name} {i} {name}{name}\n\n" for i in range(count)]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    paths = [str(tmp_path / f"{name}.txt") for name in counts]

    def sample(**settings):
        return list(vocabulary.sample_lines(paths, vocabulary.VocabularyConfig(**settings)))

    chosen = sample(max_sentences=500)
    assert Counter(line[0] for line in chosen) == {"a": 50, "b": 350, "d": 100}
    assert "using 500 of 1000 lines" in capsys.readouterr().err
    assert chosen == sample(max_sentences=500) != sample(max_sentences=500, seed=1)
    numbers = [int(line.split()[1]) for line in chosen if line[0] == "b"]
    assert numbers == sorted(set(numbers))
    assert np.mean(numbers) == pytest.approx(350, abs=20)
    every = sample(max_sentences=1000)
    assert len(set(every)) == 1000
    assert every == sample()  # small files are not counted
    assert train(tmp_path / "v", paths, max_sentences=101, vocab_size=40).size == 40


@pytest.mark.parametrize(
    ("size", "pattern"),
    [(5000, r"--vocab_size=(\d+) or less"), (20, r"at least --vocab_size=(\d+)")],
)
def test_an_error_about_the_size_names_one_that_fits(tmp_path, size, pattern):
    with pytest.raises(UserError, match=pattern) as caught:
        train(tmp_path / "v", vocab_size=size)
    assert not (tmp_path / "v").exists()
    fitting = int(re.search(pattern, str(caught.value))[1])
    assert train(tmp_path / "v", vocab_size=fitting).size == fitting


def test_program(run_program, tmp_path, capfd):
    (tmp_path / "latin.txt").write_bytes("fünf".encode("latin-1"))
    program = (ROOT / "bin/train_vocabulary", f"--output_dir={tmp_path / 'v'}")
    message = run_program(*program, f"--input={CORPUS}", "--vocab_size=13")
    assert message == "train_vocabulary: vocab_size must be at least 14, not 13."
    message = run_program(*program, f"--input={tmp_path}/latin.txt", "--vocab_size=211")
    assert message.startswith("train_vocabulary: ")
    assert "line 1: byte 2 is not UTF-8" in message
    assert not run_program(*program, f"--input={CORPUS}", "--vocab_size=211")
    output = capfd.readouterr()
    assert output.out.splitlines()[-1].endswith("v: 211 pieces")
    assert "LOG(INFO)" not in output.err  # of SentencePiece
