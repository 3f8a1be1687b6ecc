"""Exports models in int8 for CPUs."""
