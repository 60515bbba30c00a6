"""The version of headway in pyproject.toml, run folders and records."""

VERSION = "0.2.0"
