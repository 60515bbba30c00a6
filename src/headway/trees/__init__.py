"""Constituency trees: files of them, their linear form, the repair of broken ones, and trees made of dependencies."""
