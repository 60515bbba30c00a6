"""The options of a server: where it listens, who may ask, and the most that one request, and all together, may take."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headway.core.config import Count, Section
from headway.core.errors import UserError, option
from headway.core.languages import LanguageCode
from headway.formats.lines import read_lines

KEYS_VARIABLE = "HEADWAY_API_KEYS"
LIMITS: dict[str, Any] = {"group": "Limits"}
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ServeOptions(Section):
    """The options of `headway serve`."""

    host: str = Field(default="127.0.0.1", description="The address to listen at; 0.0.0.0 is every one of the machine.")
    port: int = Field(default=5000, description="The port; 0 is a free one.", ge=0, le=65535)
    pivot: LanguageCode | None = Field(
        default=None,
        description="The language by way of which others are translated that no run translates directly.",
        json_schema_extra={"default_text": "none"},
    )
    keys: Path | None = Field(
        default=None,
        description=f"A file of API keys, one a line; {KEYS_VARIABLE} has them separated by commas.",
        json_schema_extra={"default_text": "anybody may ask"},
    )
    characters: Count = Field(default=5000, description="Of the texts of a request.", json_schema_extra=LIMITS)
    sentences: Count = Field(default=200, description="Of the texts of a request.", json_schema_extra=LIMITS)
    file_characters: Count = Field(
        default=100_000, description="Of the texts in a file that is translated.", json_schema_extra=LIMITS
    )
    body: Count = Field(default=2**20, description="Bytes of a request, files included.", json_schema_extra=LIMITS)
    beam: int = Field(
        default=8, description="Hypotheses that a request may ask for.", ge=1, le=1000, json_schema_extra=LIMITS
    )
    concurrent: Count = Field(
        default=32, description="Requests of one address at a time, beyond which its next get 429.",
        json_schema_extra=LIMITS,
    )  # fmt: skip
    queue: Count = Field(
        default=128, description="Requests in all at a time, beyond which the next get 503.", json_schema_extra=LIMITS
    )
    deadline: Seconds = Field(
        default=30.0, description="Seconds for a request, after which it gets 503.", json_schema_extra=LIMITS
    )
    file_deadline: Seconds = Field(
        default=600.0, description="Seconds for the translation of a file.", json_schema_extra=LIMITS
    )

    def allowed_keys(self) -> frozenset[bytes]:
        """The hashes of all keys. Raises UserError for a file that cannot be read, or is empty."""
        keys = os.environ.get(KEYS_VARIABLE, "").split(",")
        if self.keys is not None:
            lines = [line.strip() for line in read_lines(self.keys)]
            if not any(lines):
                raise UserError("this file has no key", where=option("keys"), received=str(self.keys))
            keys += lines
        return frozenset(digest(key.strip()) for key in keys if key.strip())


def digest(key: str) -> bytes:
    """The hash of a key: how long it takes to find one says nothing of the key itself."""
    return hashlib.sha256(key.encode(errors="replace")).digest()
