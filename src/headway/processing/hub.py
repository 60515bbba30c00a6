"""Checks of repositories on the Hugging Face hub, or the server in HF_ENDPOINT, before libraries download from them.

The libraries themselves have no time limit, accept any page as an answer, and write files of any size.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import AbstractContextManager
from http.client import HTTPException
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from headway.core.documents import parse_json
from headway.core.errors import RunError, UserError
from headway.core.system import file_size_limited

WAIT, LONGEST_WAIT = 10.0, 60.0  # timeouts in seconds: for the next bytes, and for the whole answer
LARGEST_ANSWER = 1 << 25
LARGEST_FILE = 1 << 34
NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?", re.ASCII)
LONGEST_NAME = 96
ON = ("1", "ON", "YES", "TRUE")  # values of environment variables that the libraries read as true


def check_on_hub(name: str, where: str, kind: Literal["models", "datasets"] = "models") -> None:
    """Check that a repository exists on the hub with safe file names. With HF_HUB_OFFLINE, only check the name itself.

    Args:
        name: `OWNER/NAME`.
        where: the recipe key that names the repository.
        kind: the type of repository.

    Raises:
        UserError: the repository does not exist or is not accessible.
        RunError: the hub does not answer in time, or not as a hub does.
    """
    if not NAME.fullmatch(name) or ".." in name or len(name) > LONGEST_NAME:
        what = "this is no folder, and no name of a repository on the hub"
        raise UserError(what, where=where, received=name, allowed="OWNER/NAME")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ON:
        return
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    address = f"{endpoint}/api/{kind}/{name}?blobs=true"
    try:
        answer = parse_json(_read(address), address, dict, what="the answer")
        _check_files(answer)
    except (OSError, HTTPException, ValueError, UserError) as error:
        if isinstance(error, HTTPError):
            error.close()
            if error.code in (401, 403, 404):
                what = f"the hub ({endpoint}) has no such repository that you may read (HTTP {error.code})"
                raise UserError(what, where=where, received=name) from error
        what = f"the hub ({endpoint}) does not answer as it should ({str(error) or type(error).__name__})"
        raise RunError(f"{where}: {what}; HF_HUB_OFFLINE=1 takes what was downloaded before") from error


def _read(address: str) -> str:
    """Download the text at a URL. Raises OSError, HTTPException or ValueError if this fails or takes too long."""
    from huggingface_hub import get_token

    if not address.startswith(("http://", "https://")):
        raise ValueError("its address begins with neither http:// nor https://")
    request, until, content = Request(address), time.monotonic() + LONGEST_WAIT, b""  # noqa: S310
    if token := get_token():
        request.add_unredirected_header("Authorization", f"Bearer {token}")  # not sent to other hosts on redirects
    with urlopen(request, timeout=WAIT) as answer:  # noqa: S310
        while block := answer.read1(1 << 16):
            content += block
            if len(content) > LARGEST_ANSWER or time.monotonic() > until:
                raise ValueError("its answer does not end")
    return content.decode()


def _check_files(answer: dict[str, Any]) -> None:
    """Raise ValueError if a repository has files with unsafe names (such as `..`) or invalid sizes."""
    files = answer.get("siblings")
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise ValueError("it lists no files")
    for file in files:
        name, size = file.get("rfilename"), file.get("size") or 0
        if not isinstance(name, str) or {"", ".", ".."} & set(name.split("/")) or "\\" in name or "\0" in name:
            raise ValueError(f"it has a file that leads elsewhere: {name!r}")
        if not isinstance(size, int) or size > LARGEST_FILE:
            raise ValueError(f"{name} is larger than {LARGEST_FILE:,} bytes")


def files_of_bounded_size() -> AbstractContextManager[None]:
    """A context in which writing a file larger than `LARGEST_FILE` raises OSError, whatever a server sends."""
    return file_size_limited(LARGEST_FILE)
