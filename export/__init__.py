"""Exports trained models, which then run without this code."""
