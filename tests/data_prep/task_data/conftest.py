"""Fixtures of this folder: a tokenizer, rows of tables, and task datasets made of them."""

import tiny_task_data

tokenizer, prepare = tiny_task_data.tokenizer, tiny_task_data.prepare
write_rows, write_questions = tiny_task_data.write_rows, tiny_task_data.write_questions
