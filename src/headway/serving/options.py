"""The options of a server: its address, its keys, and the limits of one request and of all together."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from headway.core.config import Count, Section
from headway.core.errors import UserError, option
from headway.core.languages import LanguageCode
from headway.core.system import WINDOWS
from headway.formats.lines import read_lines

KEYS_VARIABLE = "HEADWAY_API_KEYS"
Seconds = Annotated[float, Field(gt=0, le=86_400)]


def _limit(default: float, description: str, **bounds: Any) -> Any:
    return Field(default=default, description=description, json_schema_extra={"group": "Limits"}, **bounds)


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
    names: tuple[str, ...] = Field(default=(), description="Names that may reach it without keys, beside localhost.")
    characters: Count = _limit(5000, "Of the texts of a request, its terms and prefixes included.")
    sentences: Count = _limit(200, "Texts of a request, and their sentences.")
    terms: Count = _limit(200, "Terms of a request.")
    file_characters: Count = _limit(100_000, "Of the texts in a file that is translated.")
    body: Count = _limit(2**20, "Bytes of a request, files included.")
    beam: int = _limit(8, "Hypotheses that a request may ask for.", ge=1, le=1000)
    work: Count = _limit(2**18, "Inputs times hypotheses times longest output of a request.")
    weights: Count = _limit(2**23, "Weights of attention for a request.")
    answer: Count = _limit(2**23, "Bytes of an answer.")
    concurrent: Count = _limit(32, "Requests of one address at a time, beyond which its next get 429.")
    queue: Count = _limit(128, "Requests in all at a time, beyond which the next get 503.")
    connections: Count = _limit(512, "Open connections, beyond which the one that asks nothing for longest is closed.")
    head_deadline: Seconds = _limit(10.0, "Seconds for the header of a request to arrive.")
    deadline: Seconds = _limit(30.0, "Seconds for a request, after which it gets 503.")
    file_deadline: Seconds = _limit(600.0, "Seconds for the translation of a file.")
    drain: int = _limit(5, "Seconds that requests have to end after SIGTERM, before they get 503.", ge=0, le=86_400)

    def allowed_keys(self) -> frozenset[bytes]:
        """The hashes of all keys. Raises UserError if a file or variable has no key, which would open the server."""
        keys = os.environ.get(KEYS_VARIABLE, "").split(",")
        if KEYS_VARIABLE in os.environ and not any(map(str.strip, keys)):
            raise UserError("this variable has no key; unset it to serve anybody", where=KEYS_VARIABLE)
        if self.keys is not None:
            lines = [line.strip() for line in read_lines(self.keys)]
            if not any(lines):
                raise UserError("this file has no key", where=option("keys"), received=str(self.keys))
            keys += lines
        return frozenset(digest(key.strip()) for key in keys if key.strip())


def digest(key: str) -> bytes:
    """The hash of a key. Comparing hashes leaks no timing information about the key."""
    return hashlib.sha256(key.encode(errors="replace")).digest()


def listening(options: ServeOptions) -> socket.socket:
    """Bind the socket of a server. Raises UserError if it cannot be bound."""
    try:
        family, kind, *_, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        if not WINDOWS:  # on Windows, this would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        return bound
    except OSError as error:
        what = f"this address cannot be had ({error.strerror})"
        raise UserError(what, where=option("port"), received=f"{options.host}:{options.port}") from error
