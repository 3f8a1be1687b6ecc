"""Fixtures of this folder: a vocabulary, rows of tables, and task datasets made of them."""

import tiny_records
import tiny_task_data

vocabulary_dir, tokenizer = tiny_records.vocabulary_dir, tiny_task_data.tokenizer
write_rows, prepare = tiny_task_data.write_rows, tiny_task_data.prepare
write_questions = tiny_task_data.write_questions
