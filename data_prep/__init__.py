"""Text to records, offline. Nothing here needs Keras."""
