"""Exports trained models; their users need none of this code."""
