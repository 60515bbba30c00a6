"""A server on this machine that answers as the hub of Hugging Face does, or as none should."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalHub(ThreadingHTTPServer):
    """The repositories: for each name the files of its only branch.

    Attributes:
        repositories: by `OWNER/NAME`, the content of each file.
        answer: what is done in the place of an answer, if anything.
        tokens: the Authorization of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.answer: Callable[[Handler], None] | None = None
        self.tokens: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LocalHub

    def log_message(self, *arguments: Any) -> None:
        pass

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, content: Any, status: int = 200, **headers: str) -> None:
        self.send(status, json.dumps(content).encode(), Content_Type="application/json", **headers)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        hub.tokens.append(self.headers.get("Authorization"))
        if hub.answer is not None:
            hub.answer(self)
        elif found := re.fullmatch(r"/api/(?:models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/[^/]+)?", path):
            self._describe(found[1], found[2])
        elif (found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)) and found[1] in hub.repositories:
            content = hub.repositories[found[1]].get(found[2])
            if content is None:
                self.send_json({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")
                return
            tag = f'"{hashlib.sha1(content).hexdigest()}"'
            self.send(200, content, ETag=tag, X_Repo_Commit="1" * 40)
        else:
            self.send_json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

    def _describe(self, name: str, what: str | None) -> None:
        files = self.server.repositories.get(name)
        if files is None:
            self.send_json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        elif what == "tree":
            self.send_json([{"type": "file", "path": file, "size": len(files[file]), "oid": ""} for file in files])
        else:
            siblings = [{"rfilename": file, "size": len(files[file])} for file in files]
            self.send_json({"id": name, "modelId": name, "sha": "1" * 40, "siblings": siblings, "tags": []})


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """A hub as long as the context lasts."""
    with LocalHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
