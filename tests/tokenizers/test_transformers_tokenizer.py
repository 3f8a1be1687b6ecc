"""The tokenizers of transformers against ours: they differ by named rules alone."""

import random

import pytest
import tokenizer_rules
from optional import transformers
from sentencepiece import sentencepiece_model_pb2 as pb

from albert_tf.data_prep import vocabulary
from albert_tf.tokenizers import tokenization

ENGLISH = [
    "The cat, the dog and the difficult office were found in 2011, as 40,000 others.",
    "He said: (well-known) figures - 1,234, 56, and 7.5 - cost £3 or €4.",
    "Nobody's cafe sold it; everybody knew that.",
]
CHINESE = ["我爱北京天安门，天安门上太阳升。", "猫坐在垫子上 3,000 年。"]
KOREAN = ["한국어 문장을 읽고 쓴다. 책을 읽고 문장을 쓴다.", "고양이가 40, 마리 (다섯) 있다."]
TEXT = "the cat dog office 2011, x40, 1,234, café Ünï ÅÅ ﬁn (x) a-b . -- 我爱 天安门 猫 한국어 읽고"
WORDS = [*TEXT.split(" "), "e\u0301", "İ", "''", "``", "ΟΣ", "हिन्दी", "[MASK]", "\x1c"]
NUMBERS = ["▁2011,", "40,"]


def generated(count):
    rng = random.Random(0)
    for _ in range(count):
        yield "".join(rng.choice(WORDS) + rng.choice(["", " ", " "]) for _ in range(9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vocabulary")
    text = directory / "text.txt"
    lines = [*ENGLISH, *CHINESE, *KOREAN, "Ο Σίσυφος και ο λόγος ο हिन्दी में लिखा"]
    text.write_text("\n".join(lines * 9))
    config = vocabulary.VocabularyConfig(vocab_size=135, character_coverage=1.0)
    vocabulary.train(config, input_files=[str(text)], output_dir=str(directory))
    model = pb.ModelProto.FromString((directory / "spiece.model").read_bytes())
    for piece in NUMBERS:
        model.pieces.add(piece=piece, score=-1)
    (directory / "spiece.model").write_bytes(model.SerializeToString())
    tokenization.write_hashes(str(directory))
    return str(directory)


@pytest.fixture(scope="module")
def pair(folder):
    """Ours, theirs and the rules."""
    ours = tokenization.load(folder)
    theirs = transformers.AlbertTokenizer.from_pretrained(folder)
    return ours, theirs, tokenizer_rules.rules(ours, tokenization.load(folder, compat="hf_fast"))


def explained_by(text, pair):
    ours, theirs, known = pair
    ids = theirs.encode(text, add_special_tokens=False)
    return tokenizer_rules.explain(text, ids, ours.encode, known)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("the cat [MASK] dog", "SPECIAL"),
        ("the (cat", "SYMBOLS"),
        ("the ``cat''", "QUOTES"),
        ("हिन्दी में", "MARKS"),
        ("λόγΟΣ", "SIGMA"),
        ("cat\x1cdog", "SPACES"),
        ("in 2011, the", "DIGITS"),
        ("cat40,", "DIGITS"),
    ],
)
def test_each_rule_explains_a_difference(pair, text, rule):
    assert explained_by(text, pair) == [getattr(tokenizer_rules, rule)]


@pytest.mark.parametrize(
    "text", ["the cat and the dog", *CHINESE[:1], "한국어 문장을", "Café ÅÅ ﬁx", ""]
)
def test_other_text_agrees(pair, text):
    assert explained_by(text, pair) == []


def test_every_difference_has_a_name(pair):
    for text in [*ENGLISH, *CHINESE, *KOREAN, *generated(150)]:
        assert explained_by(text, pair) is not None, text


PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s office 我 爱 猫 cafe a ##a ( ) - . , ' x"


def test_wordpieces(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*PIECES.split(), "\u2028", "dog"]) + "\n")
    ours = tokenization.load(str(tmp_path))
    theirs = transformers.BertTokenizer.from_pretrained(str(tmp_path))
    known = tokenizer_rules.rules(ours, tokenization.load(str(tmp_path), compat="hf"))
    pair = ours, theirs, known
    assert explained_by("the " + "a" * 150, pair) == [tokenizer_rules.LONG_WORDS]
    assert explained_by("the [MASK].", pair) == [tokenizer_rules.SPECIAL]
    for text in [*ENGLISH, *CHINESE, *KOREAN, "dog\u2028cats"]:
        assert explained_by(text, pair) == []
    for text in generated(150):
        assert explained_by(text, pair) is not None, text
