"""Constituency trees: files of them, their linear form, how a broken one is mended, and trees made of dependencies."""
