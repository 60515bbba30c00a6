"""Connections: how many are open, and how long one may wait for the header of its next request."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from headway.serving.guard import GRACE, Guard, deadline_of
from headway.serving.options import ServeOptions


def configured(app: Guard, options: ServeOptions, **given: Any) -> Config:
    """The configuration of a uvicorn server, whose connections keep the limits of `options`."""
    idle = dict[asyncio.Transport, None]()  # connections without a request under way, the oldest first

    class Connection(H11Protocol):
        """A connection that is closed if the header of a request is late, or an answer is not read."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.late = self.loop.call_later(options.head_deadline, transport.abort)
            idle[transport] = None
            if len(self.connections) > options.connections:
                next(iter(idle)).abort()

        def _expect(self, seconds: float) -> None:
            idle.pop(self.transport, None)
            self.late.cancel()
            self.late = self.loop.call_later(seconds, self.transport.abort)

        def handle_events(self) -> None:
            super().handle_events()
            if self.transport in idle and self.cycle is not None and not self.cycle.response_complete:
                self._expect(deadline_of(self.scope["path"], options) + 2 * GRACE)

        def on_response_complete(self) -> None:
            self._expect(options.deadline)
            idle[self.transport] = None
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            idle.pop(self.transport, None)
            self.late.cancel()
            super().connection_lost(exc)

    return Config(
        app, http=Connection, ws="none", log_config=None, access_log=False, server_header=False,
        timeout_graceful_shutdown=options.drain, **given,
    )  # fmt: skip
