"""A server of records and their attachments, where a Firefox finds exported models as on Mozilla's server.

It only reads: the collections are fixed when it starts, and no request names a file.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from headway.core.errors import UserError, option, require_installed
from headway.core.log import say
from headway.processing.firefox_files import Collection, read_engine, read_models
from headway.serving.options import ServeOptions, listening

if TYPE_CHECKING:
    from starlette.applications import Starlette

OF_ADDRESS = {"host", "port"}  # the options that this server has


def serve_records(folder: Path, engine: Path | None, options: ServeOptions) -> None:
    """Serve the records of exports until SIGTERM or Ctrl-C.

    Args:
        folder: an export, or a folder of exports.
        engine: a folder with a copy of the record of the engine, and of its file.
        options: the address.

    Raises:
        UserError: packages are missing, records do not match their files, or the address is not available.
    """
    if others := options.model_fields_set - OF_ADDRESS:
        name = min(others)
        what = "a server of records has no such option"
        raise UserError(what, where=option(name), received=getattr(options, name), allowed=f"no {option(name)}")
    require_installed("a server", ["starlette", "uvicorn"], "serve")
    import uvicorn

    collections = [read_models(folder), *([] if engine is None else [read_engine(engine)])]
    with listening(options) as bound:
        host, port = bound.getsockname()[:2]
        address = f"http://{host}:{port}"
        app = build_records(collections, address)
        say(f"serving {', '.join(each.name for each in collections)} at {address}/v1")
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises it again at the end
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[bound])


def build_records(collections: Sequence[Collection], address: str) -> Starlette:
    """Build the application. The first of the collections also answers at `/records`, for `fxtranslate`."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Route

    named = {each.name: each for each in collections}
    files = {location: path for each in collections for location, path in each.files.items()}
    newest = max(each.modified for each in collections)
    changes = [
        {"id": str(uuid5(NAMESPACE_URL, each.name)), "bucket": "main", "collection": each.name, "host": address,
         "last_modified": each.modified}
        for each in collections
    ]  # fmt: skip

    def found(request: Request) -> Collection:
        if (collection := named.get(request.path_params["name"])) is None:
            raise HTTPException(404)
        return collection

    def server(request: Request) -> Response:
        return JSONResponse({"capabilities": {"attachments": {"base_url": f"{address}/attachments/"}}})

    def changed(request: Request) -> Response:
        return JSONResponse({"metadata": {}, "timestamp": newest, "changes": changes})

    def changeset(request: Request) -> Response:
        collection = found(request)
        content = {"metadata": {}, "timestamp": collection.modified, "changes": collection.records}
        return JSONResponse(content)

    def records(request: Request) -> Response:
        return JSONResponse({"data": found(request).records})

    def models(request: Request) -> Response:
        return JSONResponse({"data": collections[0].records})

    def attachment(request: Request) -> Response:
        if (path := files.get(request.path_params["location"])) is None:
            raise HTTPException(404)
        return FileResponse(path, media_type="application/octet-stream")

    collection = "/v1/buckets/main/collections/{name}"
    routes = {
        "/v1/": server, "/v1/buckets/monitor/collections/changes/changeset": changed,
        f"{collection}/changeset": changeset, f"{collection}/records": records, "/records": models,
        "/attachments/{location:path}": attachment,
    }  # fmt: skip
    return Starlette(routes=[Route(path, answer) for path, answer in routes.items()])
