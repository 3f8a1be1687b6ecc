"""Fixtures of this folder: a checkpoint, and bin/run_finetuning that starts from it."""

import tiny_program

checkpoint, run = tiny_program.checkpoint, tiny_program.run
