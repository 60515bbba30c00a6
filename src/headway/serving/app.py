"""The HTTP interface: LibreTranslate's, and `/v1/predict` for every option of every run."""

from __future__ import annotations

import asyncio
import base64
import codecs
import hashlib
import json
import secrets
from asyncio import run_coroutine_threadsafe
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from importlib import resources
from itertools import chain
from pathlib import PureWindowsPath
from threading import Lock
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_json
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from headway.core.config import explain
from headway.core.errors import RunError, UserError
from headway.core.languages import language_name
from headway.core.processes import AbandonedError, check_waited_for
from headway.core.version import VERSION
from headway.markup.documents import KINDS, Counts, Languages, is_short, lines, translate_document
from headway.markup.inline import Aligned
from headway.markup.placeholders import same_placeholders
from headway.pages.page import page_text
from headway.predictors.captured_attention import patterns_of
from headway.serving.guard import Guard, Numbers, RefusedError, aside, in_time
from headway.serving.models import ServedModel, TooLargeError, check_limit
from headway.serving.options import ServeOptions, digest
from headway.serving.translation import AUTO, Translator

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
FILES = tuple(suffix for suffixes, _ in KINDS.values() for suffix in suffixes)
MOST_KEPT = 2**26  # bytes of translated files that wait for download
FILE_BYTES = 2**10  # of memory per file, without its content
Body = TypeVar("Body", bound=BaseModel)


class Error(BaseModel):
    """Why there is no answer."""

    error: str


class Detection(BaseModel):
    """A language that a text may be in."""

    confidence: float = Field(description="From 0 to 100.")
    language: str


class LenientBody(BaseModel):
    """A body in which null means that a field is missing, as LibreTranslate has it."""

    api_key: str = ""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Any) -> Any:
        return {name: each for name, each in values.items() if each is not None} if isinstance(values, dict) else values


class DetectBody(LenientBody):
    """A text whose language is sought, or several in one language."""

    model_config = ConfigDict(json_schema_extra={"required": ["q"]})

    q: str | list[str] = Field(default="", description="A text, or several.")


class TranslateBody(LenientBody):
    """Texts to translate, as LibreTranslate has them."""

    model_config = ConfigDict(json_schema_extra={"required": ["q", "source", "target"]})

    q: str | list[str] = Field(default="", description="A text, or several.")
    source: str = Field(default="", description=f"The code of a language, or {AUTO}.")
    target: str = Field(default="", description="The code of a language.")
    format: str = Field(default="text", description="text or html.", json_schema_extra={"enum": ["text", "html"]})
    alternatives: Annotated[int, AfterValidator(partial(max, 0))] = Field(
        default=0, description="Further translations."
    )


class FileBody(LenientBody):
    """A file to translate."""

    model_config = ConfigDict(json_schema_extra={"required": ["file", "source", "target"]})

    file: str = Field(default="", description="The file.", json_schema_extra={"format": "binary"})
    source: str = Field(default="", description=f"The code of a language, or {AUTO}.")
    target: str = Field(default="", description="The code of a language.")


class Characters(BaseModel):
    """The numbers of characters of a document's text."""

    seen: int
    translated: int
    left: int = Field(description="As they are: code, and what must not or could not be translated.")


class Translated(BaseModel):
    """Translations, of one text or of several."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's names
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    characters: Characters | list[Characters] | None = Field(default=None, description="Of HTML.")


class TranslatedFile(BaseModel):
    """Where a translated file can be fetched, once."""

    translatedFileUrl: str  # noqa: N815
    characters: Characters


class Language(BaseModel):
    """A language, with those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Model(BaseModel):
    """A run that is served."""

    name: str
    task: str
    source: str | None
    target: str | None
    alignment: bool = Field(description="Whether it says where a word looks.")
    context: bool = Field(description="Whether it reads the sentences before each.")


class Answers(BaseModel):
    """The outputs of a model, in the order of the inputs."""

    model: str
    outputs: list[dict[str, Any]]


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in (400, 403, 408, 413, 429, 503)}


def body_of(*models: type[BaseModel], forms: Sequence[str] = ()) -> dict[str, Any]:
    """The OpenAPI description of a request body that `parsed` reads."""
    schemas = [model.model_json_schema() for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    kinds = forms if forms == FORMS[1:] else ("application/json", *forms)
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


async def parsed(request: Request, model: type[Body], most: int) -> Body:
    """The body of a request, JSON with `most` commas or a form, to which parameters of the address belong.

    Raises RefusedError if it does not fit the model.
    """
    kind = request.headers.get("content-type", "").lower()
    try:
        if not kind.startswith(FORMS) and (raw := await _small(request, most)):
            return model.model_validate_json(raw)
        async with request.form(max_files=1, max_fields=100) as form:
            many = {name: _texts(given.getlist(name)) for given in (form, request.query_params) for name in given}
        values = {name: each if name == "q" and each[1:] else each[0] for name, each in many.items() if each}
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][:1]))
        if name == "alternatives":
            raise RefusedError(400, "Invalid request: alternatives parameter is not a number") from None
        raise RefusedError(
            400, f"Invalid request: {explain(error, model)}" if name else "Invalid JSON format"
        ) from None


class Server:
    """The handlers of all requests."""

    def __init__(self, models: Sequence[ServedModel], options: ServeOptions) -> None:
        self.models = {model.name: model for model in models}
        self.options, self.keys, self.translator = options, options.allowed_keys(), Translator(models, options)
        # Separate threads, because they wait for texts that other threads encode.
        self.documents = ThreadPoolExecutor(options.queue, "headway-document")
        self.turns = Lock(), Lock()  # one short and one long document at a time, because Python runs one thread
        self.files: OrderedDict[str, tuple[str, str, bytes]] = OrderedDict()  # by token: client, name and content
        self.values = options.characters + 4 * options.sentences + 2 * options.terms + 100

    def check_key(self, request: Request, given: str) -> None:
        """Raise RefusedError if a required key is missing, or a key is wrong."""
        key = given or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.keys and digest(key) not in self.keys:
            missing = "Please contact the server operator to get an API key"
            raise RefusedError(403 if key else 400, "Invalid API key" if key else missing)

    def check_size(self, texts: Sequence[str], most: int) -> None:
        """Raise RefusedError if the texts have more than `most` characters."""
        if (size := sum(map(len, texts))) > most:
            raise RefusedError(413, f"Invalid request: request ({size}) exceeds text limit ({most})")

    async def translate(self, request: Request) -> Translated:
        """Translate one text or several."""
        body = await parsed(request, TranslateBody, self.values)
        self.check_key(request, body.api_key)
        for name in ("q", "source", "target"):
            if not getattr(body, name):
                raise RefusedError(400, f"Invalid request: missing {name} parameter")
        if body.format not in ("", "text", "html"):
            raise RefusedError(400, f"{body.format} format is not supported")
        body.source, body.target = map(self.translator.code, (body.source, body.target))
        texts = [body.q] if isinstance(body.q, str) else body.q
        check_limit("sentences", "texts", len(texts), self.options.sentences)
        self.check_size(texts, self.options.characters)
        if body.alternatives >= self.options.beam:
            raise RefusedError(400, f"Invalid request: alternatives parameter is above {self.options.beam - 1}")
        request.scope["facts"] |= {"texts": len(texts), "characters": sum(map(len, texts))}
        return await in_time(request, self._translated(body, texts), self.options.deadline)

    async def _translated(self, body: TranslateBody, texts: Sequence[str]) -> Translated:
        found = None
        if body.source == AUTO:
            found = await aside(texts, lambda: [self.translator.detect(text)[0] for text in texts])
        sources = [body.source] * len(texts) if found is None else [each["language"] for each in found]
        answers, characters = [list[str]() for _ in texts], dict[int, Characters]()
        for source in dict.fromkeys(sources):
            rows = [row for row, each in enumerate(sources) if each == source]
            some = [texts[row] for row in rows]
            if body.format == "html":
                pages = await asyncio.gather(*(self._document("q.html", q.encode(), source, body.target) for q in some))
                written = [[page.decode()] for page, _ in pages]
                characters |= {row: counts for row, (_, counts) in zip(rows, pages, strict=True)}
            else:
                plain = await self.translator.translate(some, source, body.target, body.alternatives)
                pairs = zip(some, plain, strict=True)
                whole = [self._with_placeholders(text, answers, source, body.target) for text, answers in pairs]
                written = await asyncio.gather(*whole)
            for row, answer in zip(rows, written, strict=True):
                answers[row] = answer
        best, others = [answer[0] for answer in answers], [answer[1:] for answer in answers]
        detected = None if found is None else [Detection(**each) for each in found]
        counts = [characters[row] for row in sorted(characters)]
        if isinstance(body.q, str):
            return Translated(
                translatedText=best[0], alternatives=others[0] if body.alternatives else None,
                detectedLanguage=detected[0] if detected else None, characters=counts[0] if counts else None,
            )  # fmt: skip
        alternatives = others if body.alternatives else None
        return Translated(
            translatedText=best, alternatives=alternatives, detectedLanguage=detected, characters=counts or None
        )

    async def _with_placeholders(self, text: str, answers: list[str], source: str, target: str) -> list[str]:
        """The translations of a text that keep its placeholders. The first is translated again if it does not."""
        kept = [answer for answer in answers if same_placeholders(text, answer)]
        if answers[0] in kept or self.translator.reads_context(source, target):
            return [answers[0], *(answer for answer in kept if answer != answers[0])]
        content, _ = await self._document("q.txt", text.encode(), source, target)
        best = content.decode()
        return [best, *(answer for answer in kept if answer != best)]

    async def detect(self, request: Request) -> list[Detection]:
        """Say in which languages a text may be."""
        body = await parsed(request, DetectBody, self.values)
        self.check_key(request, body.api_key)
        if not body.q:
            raise RefusedError(400, "Invalid request: missing q parameter")
        text = body.q if isinstance(body.q, str) else "\n".join(body.q)
        self.check_size([text], self.options.characters)
        work = aside([text], lambda: self.translator.detect(text))
        return [Detection(**each) for each in await in_time(request, work, self.options.deadline)]

    async def translate_file(self, request: Request) -> TranslatedFile:
        """Translate a file."""
        async with request.form(max_files=1, max_fields=100) as form:
            values = request.query_params, form
            given = {
                key: str(values[1].get(key) or values[0].get(key) or "") for key in ("source", "target", "api_key")
            }
            self.check_key(request, given["api_key"])
            file = form.get("file")
            if not isinstance(file, UploadFile) or not (name := PureWindowsPath(file.filename or "").name):
                raise RefusedError(400, "Invalid request: missing file parameter")
            data = await file.read()
        for key in ("source", "target"):
            if not given[key]:
                raise RefusedError(400, f"Invalid request: missing {key} parameter")
        if PureWindowsPath(name).suffix.lower() not in FILES:
            raise RefusedError(400, "Invalid request: file format not supported")
        source, target = map(self.translator.code, (given["source"], given["target"]))
        if source != AUTO:
            self.translator.route(source, target)
        work = self._document(name, data, source, target)
        written, characters = await in_time(request, work, self.options.file_deadline)
        stem, _, ending = name.rpartition(".")
        token = secrets.token_urlsafe(24)
        self.keep(token, request.client.host if request.client else "", f"{stem}.{target}.{ending}", written)
        address = f"{request.base_url}download_file/{token}"
        return TranslatedFile(translatedFileUrl=address, characters=characters)

    def keep(self, token: str, client: str, name: str, content: bytes) -> None:
        """Keep a file for download. Beyond the limit, the client that holds most loses its oldest files."""
        self.files[token], held = (client, name, content), Counter[str]()
        for owner, _, kept in self.files.values():
            held[owner] += len(kept) + FILE_BYTES
        while held.total() > MOST_KEPT:
            [(most, _)] = held.most_common(1)
            oldest = next(each for each, (owner, *_) in self.files.items() if owner == most)
            held[most] -= len(self.files.pop(oldest)[2]) + FILE_BYTES

    async def _document(self, name: str, data: bytes, source: str, target: str) -> tuple[bytes, Characters]:
        """Translate a document, and count its characters. The thread that parses it stops when nobody waits for it."""
        loop, text = asyncio.get_running_loop(), data.decode(errors="ignore")
        turn = self.turns[len(text) > self.options.characters]

        def translate(sentences: Sequence[str]) -> Sequence[Aligned]:
            self.check_size(sentences, self.options.file_characters)
            check_waited_for()
            turn.release()
            try:
                return run_coroutine_threadsafe(self.translator.aligned(sentences, source, target), loop).result()
            finally:
                turn.acquire()

        def translated() -> tuple[bytes, Characters]:
            counts = list[Counts]()
            route, languages = self.translator.route(source, target), Languages(source, target)
            fit = route[0].fits if route else is_short
            with turn:
                done = translate_document(data, name, translate, languages, final=False, report=counts.append, fits=fit)
            return done, Characters(**counts[0]._asdict())

        self.check_size([text], self.options.file_characters)
        # The time for splitting sentences is quadratic in the length of a line.
        self.check_size([max(lines(text), key=len, default="")], self.options.characters)
        if source == AUTO:
            source = (await aside([text], lambda: self.translator.detect(text)))[0]["language"]
        return await loop.run_in_executor(self.documents, copy_context().run, translated)

    async def predict(self, request: Request) -> Response:
        """Predict with one run; what stands beside `model` and `inputs` are its options, and those of search."""
        name, key = _fields(await _small(request, self.values), "model", "api_key")
        self.check_key(request, key)
        if name not in self.models:
            allowed = ", ".join(self.models)
            raise RefusedError(400, f"Invalid request: model: there is no such model; allowed: {allowed}")
        model = self.models[name]
        body = await parsed(request, model.body, self.values)
        texts = [body.inputs] if isinstance(body.inputs, str) else [*body.inputs]
        terms, capture = getattr(body, "terms", None) or {}, patterns_of(getattr(body, "capture", None) or ())
        check_limit("terms", "terms", len(terms), self.options.terms)
        before = getattr(body, "before", None) or ()
        check_limit("sentences", "texts", len(texts) + len(before), self.options.sentences)
        others = [*chain(*before), *(getattr(body, "prefixes", None) or ()), *terms, *terms.values(), *capture]
        self.check_size([*texts, *others], self.options.characters)
        request.scope["facts"] |= {"model": name, "texts": len(texts), "characters": sum(map(len, texts))}

        async def answered() -> bytes:
            most = min(self.options.weights, self.options.answer // 9) if capture else None  # a weight takes 9 bytes
            outputs = await model.outputs(texts, model.options(body), most)
            answers = await aside(texts, lambda: [model.answer(output, body) for output in outputs])
            content = to_json({"model": name, "outputs": answers}, inf_nan_mode="null")  # engines may have no scores
            check_limit("answer", "bytes", len(content), self.options.answer)
            return content

        return Response(await in_time(request, answered(), self.options.deadline), media_type="application/json")

    def settings(self) -> dict[str, Any]:
        """The settings that a page needs, in LibreTranslate's form."""
        pair = next(iter(self.translator.directions), ("", ""))
        source, target = ({"code": code, "name": language_name(code)} for code in pair)
        return {
            "apiKeys": bool(self.keys), "keyRequired": bool(self.keys), "charLimit": self.options.characters,
            "filesTranslation": bool(self.translator.directions), "frontendTimeout": 500, "suggestions": False,
            "language": {"source": source, "target": target}, "supportedFilesFormat": list(FILES),
        }  # fmt: skip

    def models_shown(self) -> list[Model]:
        """All runs that are served."""
        return [
            Model(
                name=each.name, task=each.task, source=each.direction[0] if each.direction else None,
                target=each.direction[1] if each.direction else None, alignment=each.aligner is not None,
                context=each.predictor.recipe.data.context.most > 0,
            )
            for each in self.models.values()
        ]  # fmt: skip

    def download(self, token: str, request: Request) -> Response:
        """A translated file, which is forgotten once it is fetched."""
        if token not in self.files:
            raise RefusedError(404, "there is no such file")
        _, name, content = self.files[token] if request.method == "HEAD" else self.files.pop(token)
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return Response(content, media_type="application/octet-stream", headers={"content-disposition": disposition})

    def ready(self) -> Response:
        """Whether all models can compute."""
        alive = all(each.thread.is_alive() for model in self.models.values() for each in model.batchers)
        return JSONResponse({"status": "ready" if alive else "broken"}, 200 if alive else 503)


async def _small(request: Request, most: int) -> bytes:
    """A JSON body. Raises TooLargeError if it has more than `most` commas, because parsing each value takes time."""
    raw = await request.body()
    check_limit("values", "values", raw.count(b","), most)
    return raw.removeprefix(codecs.BOM_UTF8)


def _texts(values: Sequence[str | UploadFile]) -> list[str]:
    """The texts of a form's field, whose line breaks a browser writes as CR LF."""
    return [value.replace("\r\n", "\n") for value in values if isinstance(value, str)]


def _fields(raw: bytes, *names: str) -> list[str]:
    """The text fields `names` of a JSON object; empty if missing. Raises RefusedError if `raw` is not JSON."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise RefusedError(400, "Invalid JSON format") from None
    values = [content.get(name) if isinstance(content, dict) else None for name in names]
    return [value if isinstance(value, str) else "" for value in values]


def page(server: Server) -> tuple[str, str]:
    """The HTML page, and its content security policy: inline styles and script, and no other servers."""
    text = page_text(
        "serving/page/serve.html", title="Translate" if server.translator.directions else "Predict",
        styles=("palette.css", "export/page/translate.css", "serving/page/serve.css"),
        scripts=("elements.js", "serving/page/serve.js"), assets=resources.files("headway"),
        policy="", data={"models": [each.model_dump() for each in server.models_shown()]},
    )  # fmt: skip
    parts = {name: text.split(f"<{name}>", 1)[1].split(f"</{name}>", 1)[0] for name in ("style", "script")}
    hashes = {name: base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for name, part in parts.items()}
    none = [f"{name} 'none'" for name in ("default-src", "base-uri", "form-action", "frame-ancestors")]
    own = [f"{name}-src 'sha256-{value}'" for name, value in hashes.items()]
    return text, "; ".join([*none, "img-src data:", "connect-src 'self'", *own])


def build_app(models: Sequence[ServedModel], options: ServeOptions) -> Guard:
    """Build the application. Raises UserError if the options do not match the runs."""
    server, numbers = Server(models, options), Numbers()
    for model in models:
        for lane, batcher in zip(("short", "long"), model.batchers, strict=True):
            batcher.on_batch = numbers.batches.labels(model.name).observe
            numbers.waiting.labels(model.name, lane).set_function(batcher.waiting)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        for batcher in (each for model in models for each in model.batchers):
            await asyncio.to_thread(batcher.close)

    app = FastAPI(
        title="headway", version=VERSION, docs_url=None, redoc_url=None, lifespan=life, redirect_slashes=False
    )
    index, policy = page(server)

    async def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = RefusedError(error.status_code, str(error.detail), error.headers)
        elif isinstance(error, UserError):
            error = RefusedError(413 if isinstance(error, TooLargeError) else 400, str(error))
        elif isinstance(error, RunError):
            late, what = isinstance(error, AbandonedError), "the model could not compute this; try again with less"
            error = RefusedError(503, "not done in time; try again" if late else what)
        elif not isinstance(error, RefusedError):
            error = RefusedError(500, "Cannot answer: an error of the server, which its log has")
        return error.response()

    async def suggested() -> None:
        raise RefusedError(403, "Suggestions are disabled on this server.")

    for kind in (RefusedError, HTTPException, UserError, RunError, Exception):
        app.add_exception_handler(kind, failed)

    def post(path: str, answer: Any, model: Any, body: dict[str, Any]) -> None:
        app.post(path, response_model=model, response_model_exclude_none=True, responses=ERRORS, openapi_extra=body)(
            answer
        )

    post("/translate", server.translate, Translated, body_of(TranslateBody, forms=FORMS))
    post("/detect", server.detect, list[Detection], body_of(DetectBody, forms=FORMS))
    post("/translate_file", server.translate_file, TranslatedFile, body_of(FileBody, forms=FORMS[1:]))
    post("/v1/predict", server.predict, Answers, body_of(*(model.body for model in models)))
    app.get("/v1/models", response_model=list[Model])(server.models_shown)
    app.get("/languages", response_model=list[Language])(lambda: server.translator.languages)
    app.get("/frontend/settings")(server.settings)
    app.get("/download_file/{token}", response_class=Response, responses={404: {"model": Error}})(server.download)
    app.get("/health")(lambda: {"status": "ok"})
    app.get("/ready")(server.ready)

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        """Numbers for Prometheus."""
        return Response(generate_latest(numbers.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", response_class=HTMLResponse)
    def root() -> Response:
        """The page that translates."""
        return HTMLResponse(index, headers={"content-security-policy": policy})

    app.post("/suggest", include_in_schema=False)(suggested)
    app.get("/spec", include_in_schema=False)(app.openapi)
    app.openapi()  # describes GET alone; it is made once
    for route in app.routes:
        if isinstance(route, APIRoute) and route.methods == {"GET"}:
            route.methods = {"GET", "HEAD"}
    return Guard(app, options, numbers, open=not server.keys)
