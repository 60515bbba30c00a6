"""Recordings: from a file or an array to frames that a model reads."""
