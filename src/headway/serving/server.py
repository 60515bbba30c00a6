"""The lifecycle of a server."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from threading import Timer
from types import FrameType
from typing import Any

from headway.core.errors import require_installed
from headway.core.log import say
from headway.runs.load import load
from headway.serving.options import ServeOptions, listening

LEFT = 3.0  # seconds after draining for threads to end
PACKAGES = ("fastapi", "uvicorn", "multipart", "prometheus_client", "py3langid")


def serve(runs: Sequence[str], options: ServeOptions, **loading: Any) -> None:
    """Serve runs until SIGTERM or Ctrl-C. Requests that came before have `drain` seconds to finish.

    Args:
        runs: folders or packed runs, or `NAME=RUN`; a translation run is named by its direction, such as en-de.
        options: of the server.
        loading: keyword arguments of `load` for each run.

    Raises:
        UserError: packages are missing, runs cannot be served, or the address is not available.
    """
    require_installed("a server", PACKAGES, "serve")
    import uvicorn

    from headway.serving.app import build_app
    from headway.serving.guard import JsonLines, configured
    from headway.serving.models import check_names, named_runs, served_model

    class Ending(uvicorn.Server):
        """A server that exits in time, whatever its threads are doing: nothing that they do is persistent."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            last = Timer(options.drain + LEFT, _leave, (0 if sig == signal.SIGTERM else 128 + sig,))
            last.daemon = True
            last.start()
            super().handle_exit(sig, frame)

    with listening(options) as bound:  # before models are loaded
        models = [served_model(name, path, load(path, **loading), options) for name, path in named_runs(runs)]
        check_names(models)
        app = build_app(models, options)
        host, port = bound.getsockname()[:2]
        say(f"serving {', '.join(f'{model.name} ({model.task})' for model in models)} at http://{host}:{port}")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        for name in ("headway.serving", "uvicorn.error"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [handler], False
        signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises it again at the end
        sys.setswitchinterval(1e-5)  # at each operation, a search may wait this long for threads that parse documents
        Ending(configured(app, options)).run(sockets=[bound])


def _leave(code: int) -> None:
    logging.getLogger("headway.serving").error("threads did not end in time, and are left")
    os._exit(code)
