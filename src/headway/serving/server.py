"""A server from its start to its end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from threading import Timer
from types import FrameType
from typing import Any

from headway.core.errors import UserError, not_installed, option
from headway.core.log import say
from headway.core.system import WINDOWS
from headway.runs.load import load
from headway.serving.options import ServeOptions

LEFT = 3.0  # seconds after those to drain, in which threads may end
PACKAGES = ("fastapi", "uvicorn", "multipart", "prometheus_client", "py3langid")


def serve(runs: Sequence[str], options: ServeOptions, **loading: Any) -> None:
    """Serve runs until SIGTERM, or Ctrl-C, after which requests that came before have `drain` seconds to end.

    Args:
        runs: folders or packs, or `NAME=RUN`; the name of a run that translates is its direction, such as en-de.
        options: of the server.
        loading: what `load` is given for each.

    Raises:
        UserError: packages that are missing, runs that cannot be served, or an address that cannot be had.
    """
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise not_installed("a server", missing, "serve")
    import uvicorn

    from headway.serving.app import build_app
    from headway.serving.guard import JsonLines, configured
    from headway.serving.models import check_names, named_runs, served_model

    class Ending(uvicorn.Server):
        """A server that ends in time, whatever its threads do: nothing that they do is kept."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            last = Timer(options.drain + LEFT, _leave, (0 if sig == signal.SIGTERM else 128 + sig,))
            last.daemon = True
            last.start()
            super().handle_exit(sig, frame)

    with _listening(options) as listening:
        models = [served_model(name, path, load(path, **loading), options) for name, path in named_runs(runs)]
        check_names(models)
        app = build_app(models, options)
        host, port = listening.getsockname()[:2]
        say(f"serving {', '.join(f'{model.name} ({model.task})' for model in models)} at http://{host}:{port}")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        for name in ("headway.serving", "uvicorn.error"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [handler], False
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises it once more when all is done
        sys.setswitchinterval(1e-5)  # a search waits so long, at each operation, for threads that read documents
        Ending(configured(app, options)).run(sockets=[listening])


def _leave(code: int) -> None:
    logging.getLogger("headway.serving").error("threads did not end in time, and are left")
    os._exit(code)


def _listening(options: ServeOptions) -> socket.socket:
    """The socket, which is bound before anything is loaded. Raises UserError where it cannot be."""
    try:
        family, kind, *_, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        if not WINDOWS:  # where it would share the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        return bound
    except OSError as error:
        what = f"this address cannot be had ({error.strerror})"
        raise UserError(what, where=option("port"), received=f"{options.host}:{options.port}") from error
