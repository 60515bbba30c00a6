"""The layer between connections and handlers: limits, deadlines, headers, metrics for Prometheus, and a log.

The log has a line of JSON per request, without the request's text.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from math import inf
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as Count
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from headway.core.processes import WAITED_FOR
from headway.serving.options import ServeOptions

Result = TypeVar("Result")
log = logging.getLogger("headway.serving")
HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}
GRACE = 10.0  # seconds after a deadline for the client to read the answer
LONG = 1000  # longer texts (in characters) are prepared by the single thread of TURNS
TURNS = ThreadPoolExecutor(1, "headway-long")
GONE = 499  # the logged status if the client disconnected, as in nginx
OWN, PORT = re.compile(r"localhost|[0-9.]+|\[[0-9a-f:.]+\]"), re.compile(r":[0-9]*$")


def _deadline(path: str, options: ServeOptions) -> float:
    return options.file_deadline if path == "/translate_file" else options.deadline


class RefusedError(Exception):
    """A request that is refused with a status and a message."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}

    def response(self) -> JSONResponse:
        """The HTTP response, in LibreTranslate's form."""
        again = {"retry-after": "1"} if self.status in (429, 503) else {}
        return JSONResponse({"error": str(self)}, self.status, {**again, **self.headers})


class Numbers:
    """The metrics for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of = ("path", "status")
        self.requests = Count("headway_requests", "Requests.", of, registry=self.registry)
        self.seconds = Histogram("headway_request_seconds", "Seconds of a request.", of[:1], registry=self.registry)
        self.active = Gauge("headway_requests_active", "Requests under way.", registry=self.registry)
        sizes = [2**power for power in range(8)]
        self.batches = Histogram(
            "headway_batch_inputs", "Inputs of a batch.", ["model"], buckets=sizes, registry=self.registry
        )
        self.waiting = Gauge("headway_jobs_waiting", "Jobs in a queue.", ["model", "queue"], registry=self.registry)


class Guard:
    """The outermost layer of the server. `open` means that requests need no key."""

    def __init__(self, app: ASGIApp, options: ServeOptions, numbers: Numbers, *, open: bool) -> None:
        self.app, self.options, self.numbers, self.open = app, options, numbers, open
        self._by_client = Counter[str]()  # active requests for work, without those to /health or /metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, client, status = time.monotonic(), (scope.get("client") or ("",))[0], 0
        work = Counter([client]) if scope["method"] == "POST" else Counter[str]()
        scope["facts"] = {}

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] += [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in own]
            await send(message)

        self._by_client += work
        self.numbers.active.inc()
        seconds = _deadline(scope["path"], self.options)
        try:
            async with asyncio.timeout(seconds + GRACE):  # a limit for slow readers
                try:
                    self._check_name(scope)
                    if work:
                        receive = await self._admitted(scope, receive, client)
                    await self.app(scope, receive, sent)
                except RefusedError as error:
                    await error.response()(scope, receive, sent)
        except TimeoutError:
            status = status or GONE
        except asyncio.CancelledError:  # by uvicorn, after the time to drain
            if not status:
                await RefusedError(503, "the server is ending; ask another one").response()(scope, receive, sent)
        finally:
            self._by_client -= work
            self.numbers.active.dec()
            # The path of the route, because the path of the request may be anything.
            path = getattr(scope.get("route"), "path", "other")
            self.numbers.requests.labels(path, str(status)).inc()
            self.numbers.seconds.labels(path).observe(time.monotonic() - begun)
            facts = {"method": scope["method"], "path": path, "status": status, "client": client, **scope["facts"]}
            facts["milliseconds"] = round(1000 * (time.monotonic() - begun), 1)
            log.info("request", extra={"facts": facts})

    def _check_name(self, scope: Scope) -> None:
        """Raise RefusedError for an unknown host name, which a foreign page may have pointed here (DNS rebinding)."""
        name = PORT.sub("", dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1").lower())
        if self.open and not OWN.fullmatch(name) and name not in (self.options.host, *self.options.names):
            raise RefusedError(421, f"names: without keys, the server has no name {name[:100]!r}")

    async def _admitted(self, scope: Scope, receive: Receive, client: str) -> Receive:
        """A function that returns the body, which is already in memory. Raises RefusedError if a limit is exceeded."""
        if self._by_client.total() > self.options.queue:
            raise RefusedError(503, "the server has more requests than it can answer; try again")
        if self._by_client[client] > self.options.concurrent:
            raise RefusedError(429, f"Slowdown: more than {self.options.concurrent} requests at a time")
        most, too_large = self.options.body, RefusedError(413, f"request exceeds {self.options.body} bytes")
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > most:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self.options.deadline):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(GONE, "the client has gone")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise RefusedError(408, "the request did not arrive in time") from None
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return whole.pop() if whole else await receive()

        return replayed


async def aside(texts: Sequence[str], work: Callable[[], Result]) -> Result:
    """Run work on texts in a thread. Requests with long texts take turns, so that short ones are not delayed."""
    many = sum(map(len, texts)) + LONG // 8 * len(texts) > LONG
    return await asyncio.get_running_loop().run_in_executor(TURNS if many else None, copy_context().run, work)


async def in_time(request: Request, work: Awaitable[Result], seconds: float) -> Result:
    """Await work until the deadline, or until the client leaves; `WAITED_FOR` then stops it. Raises RefusedError."""
    until = time.monotonic() + seconds

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    WAITED_FOR.set(lambda: time.monotonic() < until)
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if watch.done():
            raise RefusedError(GONE, "the client has gone")
        raise RefusedError(503, f"not done in {seconds:g} seconds; try again")
    finally:
        until = -inf
        task.cancel()
        watch.cancel()


def configured(app: Guard, options: ServeOptions, **given: Any) -> Config:
    """The configuration of a uvicorn server whose connections keep the limits of `options`."""
    idle = dict[asyncio.Transport, None]()  # idle connections, the oldest first

    class Connection(H11Protocol):
        """A connection that is closed if a request's header is late, or the answer is not read."""

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
                self._expect(_deadline(self.scope["path"], options) + 2 * GRACE)

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


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON. Errors have their type and location; a message might quote a text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": record.levelname.lower(),
            "event": record.getMessage() if record.exc_info is None else "error", **getattr(record, "facts", {}),
        }  # fmt: skip
        if record.exc_info is not None and record.exc_info[0] is not None:
            places = traceback.extract_tb(record.exc_info[2])
            line |= {"error": record.exc_info[0].__name__, "places": [f"{p.filename}:{p.lineno}" for p in places]}
        return json.dumps(line, ensure_ascii=False)
