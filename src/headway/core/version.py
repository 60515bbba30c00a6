"""The version of headway, which pyproject.toml, run folders and records name."""

VERSION = "0.2.0"
