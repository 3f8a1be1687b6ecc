"""Turns text into records, offline. Nothing here needs Keras."""
