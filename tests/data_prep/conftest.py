"""Fixtures of this folder: a vocabulary, a long text, and what makes records of a text."""

import tiny_records

create, long_text = tiny_records.create, tiny_records.long_text
vocabulary_dir = tiny_records.vocabulary_dir
