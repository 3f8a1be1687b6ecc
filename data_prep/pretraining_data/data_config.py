"""Settings of pre-training records."""

import dataclasses
import locale
from typing import Annotated

from msgspec import Meta

from albert_tf import settings, train_config
from albert_tf.errors import require
from albert_tf.records import features
from albert_tf.settings import Megabytes, Probability, Size, setting

# The codes that Python knows: sentencex uses English rules for unknown languages.
_LANGUAGES = {name[:2] for name in locale.locale_alias if name[2:3] in ("", "_", ".", "@")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings of pre-training records. Defaults are the published ones."""

    masking: str = setting(
        "static stores masks in the records; online draws new masks in each pass of training",
        train_config.STATIC,
        choices=train_config.MASKINGS,
    )
    word_segmenter: str = setting(
        "jieba masks whole Chinese words (needs rjieba); none masks tokens",
        "none",
        choices=("none", "jieba"),
    )
    max_seq_length: Annotated[int, Meta(ge=8, le=1_000_000)] = setting("tokens per example, S", 512)
    max_predictions_per_seq: Size = setting(
        "masked tokens per example, P; 20 caps masked_lm_prob at S = 512", 20
    )
    masked_lm_prob: Probability = setting("share of the tokens to mask", 0.15)
    ngram: Annotated[int, Meta(ge=1, le=1000)] = setting("longest n-gram of words to mask", 3)
    short_seq_prob: Probability = setting("share of documents split into shorter examples", 0.1)
    dupe_factor: Size | None = setting(
        "passes over the text, each with different pairs and masks; default 40, online 1",
        None,
    )
    sentence_task: str = setting(
        "sop, nsp or none; phonemes makes records of phonemes with their words",
        "sop",
        choices=train_config.SENTENCE_TASKS,
    )
    one_segment: str = setting(
        "for chunks of one sentence: split, skip or random (see `segments.make_pairs`)",
        "split",
        choices=("split", "skip", "random"),
    )
    random_from: str = setting(
        "nsp: random second segments come from another document of the shard: any, or one from the "
        "same_file or an other_file of --input",
        "any",
        choices=("any", "same_file", "other_file"),
    )
    split_sentences: bool = setting("lines are paragraphs: split them into sentences", False)
    text_field: str = setting(
        "field with a document's text in each row of .jsonl and .parquet files", "text"
    )
    phonemes_column: str = setting(
        "phonemes: field with the phonemes of the words in --text_field", "phonemes"
    )
    language: str = setting("language of --split_sentences", "en")
    eval_fraction: Annotated[float, Meta(ge=0, le=1)] = setting(
        "share of documents to hold out; 1 makes no training records", 0.0
    )
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = setting(
        "seed of all random choices, except which documents are held out",
        12345,
    )
    gzip: bool = setting("compress the records", False)
    shard_megabytes: Megabytes = setting("megabytes of text per shard", 16.0)

    def __post_init__(self) -> None:
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", 1 if self.is_online else 40)
        settings.check(self)
        require(
            self.language in _LANGUAGES,
            f"language: {self.language!r} is not a two-letter language code (ISO 639-1).",
        )
        require(
            not self.has_words or (self.is_online and not self.split_sentences),
            "sentence_task=phonemes needs masking=online, which masks all phonemes of a word the "
            "same way, and has no sentences to split.",
        )
        if self.is_online:
            most = train_config.LONGEST_ONLINE_NGRAM
            require(self.ngram <= most, f"ngram must be at most {most} with masking=online.")
        require(
            self.max_predictions_per_seq <= self.max_seq_length,
            f"max_predictions_per_seq {self.max_predictions_per_seq} is more than max_seq_length "
            f"{self.max_seq_length}.",
        )
        require(
            self.sentence_task in ("sop", "nsp") or self.one_segment != "random",
            "one_segment=random needs sentence_task sop or nsp, which have labels.",
        )
        require(
            self.random_from == "any" or self.needs_two_documents,
            f"random_from={self.random_from} needs sentence_task=nsp, which draws segments.",
        )

    @property
    def has_words(self) -> bool:
        """Whether records have the word of each token."""
        return self.sentence_task == train_config.WORDS_BEHIND

    @property
    def is_online(self) -> bool:
        return self.masking == train_config.ONLINE

    @property
    def max_num_tokens(self) -> int:
        """The number of tokens in both segments of an example, without [CLS] and [SEP]."""
        return self.max_seq_length - features.NUM_SPECIAL_TOKENS

    @property
    def needs_two_documents(self) -> bool:
        return self.sentence_task == "nsp" or self.one_segment == "random"

    @property
    def uncapped_predictions(self) -> int:
        return round(self.max_seq_length * self.masked_lm_prob)

    @property
    def predictions_are_capped(self) -> bool:
        return self.max_predictions_per_seq < self.uncapped_predictions
