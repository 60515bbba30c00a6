"""A server on this machine that speaks as the hub of Hugging Face does: repositories, commits, files by revision."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalHub(ThreadingHTTPServer):
    """The repositories: for each name the files of its only branch.

    Attributes:
        repositories: by `OWNER/NAME`, the content of each file.
        commits: the names of the repositories that were committed to, in their order.
        broken: whether every request fails.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.commits: list[str] = []
        self.broken = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def revision(self, name: str) -> str:
        """A commit's hash, of the content."""
        files = self.repositories[name]
        return hashlib.sha1(b"".join(key.encode() + value for key, value in sorted(files.items()))).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LocalHub

    def log_message(self, *arguments: Any) -> None:
        pass

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, content: Any, status: int = 200, **headers: str) -> None:
        self._send(status, json.dumps(content).encode(), Content_Type="application/json", **headers)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_POST(self) -> None:
        body, hub, path = self._body(), self.server, self.path.partition("?")[0]
        if hub.broken:
            self._json({"error": "out of order"}, 500)
        elif path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            hub.repositories.setdefault(name, {})
            self._json({"url": f"{hub.address}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+/.+)/preupload/main", path):
            files = json.loads(body)["files"]
            modes = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in files]
            self._json({"files": modes})
        elif found := re.fullmatch(r"/api/models/(.+/.+)/commit/main", path):
            name = found[1]
            for line in filter(None, body.decode().split("\n")):
                entry = json.loads(line)
                if entry["key"] == "file":
                    hub.repositories[name][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            hub.commits.append(name)
            revision = hub.revision(name)
            url = f"{hub.address}/{name}/commit/{revision}"
            self._json({"success": True, "commitUrl": url, "commitOid": revision})
        else:
            self._json({"error": path}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        if hub.broken:
            self._json({"error": "out of order"}, 500)
            return
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path):
            self._describe(found[1], found[2], found[3])
        elif (found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)) and found[1] in hub.repositories:
            content = hub.repositories[found[1]].get(found[3])
            if content is None:
                self._json({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")
                return
            tag = f'"{hashlib.sha1(content).hexdigest()}"'
            self._send(200, content, ETag=tag, X_Repo_Commit=hub.revision(found[1]))
        else:
            self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

    def _describe(self, name: str, what: str | None, revision: str | None) -> None:
        hub = self.server
        if name not in hub.repositories:
            self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            return
        files = hub.repositories[name]
        if revision not in (None, "main", hub.revision(name)):
            self._json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
            return
        if what == "tree":
            entries = [{"type": "file", "path": file, "size": len(each), "oid": ""} for file, each in files.items()]
            self._json(entries)
            return
        siblings = [{"rfilename": file} for file in files]
        self._json({"id": name, "modelId": name, "sha": hub.revision(name), "siblings": siblings, "tags": []})


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
