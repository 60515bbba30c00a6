"""Dependency parses of a corpus: made once by a parser, kept by sentence, carried over to pieces of a vocabulary."""
