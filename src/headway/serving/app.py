"""The HTTP interface: LibreTranslate's, and `/v1/predict` for every option of every run."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from asyncio import run_coroutine_threadsafe
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from headway.core.config import explain
from headway.core.errors import RunError, UserError
from headway.core.languages import language_name
from headway.core.version import VERSION
from headway.markup.documents import KINDS, Languages, translate_document
from headway.markup.inline import Aligned
from headway.runs.inspect.pages import page_text
from headway.serving.batching import DeadlineError
from headway.serving.guard import Guard, Numbers, RefusedError, in_time
from headway.serving.models import ServedModel, TooLargeError
from headway.serving.options import ServeOptions, digest
from headway.serving.translation import AUTO, Translator

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
FILES = tuple(suffix for suffixes, _ in KINDS.values() for suffix in suffixes)
MOST_KEPT = 2**26  # bytes of translated files that wait to be fetched
Body = TypeVar("Body", bound=BaseModel)


class Error(BaseModel):
    """Why there is no answer."""

    error: str


class Detection(BaseModel):
    """A language that a text may be in."""

    confidence: float = Field(description="From 0 to 100.")
    language: str


class DetectBody(BaseModel):
    """A text whose language is sought."""

    model_config = ConfigDict(json_schema_extra={"required": ["q"]})

    q: str = Field(default="", description="A text.")
    api_key: str = ""


class TranslateBody(BaseModel):
    """Texts to translate, as LibreTranslate has them."""

    model_config = ConfigDict(json_schema_extra={"required": ["q", "source", "target"]})

    q: str | list[str] = Field(default="", description="A text, or several.")
    source: str = Field(default="", description=f"The code of a language, or {AUTO}.")
    target: str = Field(default="", description="The code of a language.")
    format: str = Field(default="text", description="text or html.", json_schema_extra={"enum": ["text", "html"]})
    alternatives: int = Field(default=0, description="Further translations.", ge=0)
    api_key: str = ""


class FileBody(BaseModel):
    """A file to translate."""

    model_config = ConfigDict(json_schema_extra={"required": ["file", "source", "target"]})

    file: str = Field(default="", description="The file.", json_schema_extra={"format": "binary"})
    source: str = Field(default="", description=f"The code of a language, or {AUTO}.")
    target: str = Field(default="", description="The code of a language.")
    api_key: str = ""


class Translated(BaseModel):
    """Translations, of one text or of several."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's names
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815


class TranslatedFile(BaseModel):
    """Where a translated file can be fetched, once."""

    translatedFileUrl: str  # noqa: N815


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
    """The part of OpenAPI that is about a body which `parsed` reads."""
    schemas = [model.model_json_schema() for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    kinds = forms if forms == FORMS[1:] else ("application/json", *forms)
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


async def parsed(request: Request, model: type[Body]) -> Body:
    """The body of a request, JSON or a form. Raises RefusedError for one that is not as the model says."""
    kind = request.headers.get("content-type", "")
    try:
        if not kind.startswith(FORMS):
            return model.model_validate_json(await request.body())
        async with request.form(max_files=1, max_fields=100) as form:
            many = {name: form.getlist(name) for name in form}
        return model.model_validate({name: each[0] if len(each) == 1 else each for name, each in many.items()})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][:1]))
        if name == "alternatives":
            raise RefusedError(400, "Invalid request: alternatives parameter is not a number") from None
        raise RefusedError(
            400, f"Invalid request: {explain(error, model)}" if name else "Invalid JSON format"
        ) from None


class Server:
    """The answers to all requests."""

    def __init__(self, models: Sequence[ServedModel], options: ServeOptions) -> None:
        self.models = {model.name: model for model in models}
        self.options, self.keys, self.translator = options, options.allowed_keys(), Translator(models, options)
        # Threads of their own: they wait for texts that others encode.
        self.documents = ThreadPoolExecutor(options.queue, "headway-document")
        self.files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def check_key(self, request: Request, given: str) -> None:
        """Raise RefusedError for a request without a key, where one is needed, or with a wrong one."""
        key = given or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.keys and digest(key) not in self.keys:
            missing = "Please contact the server operator to get an API key"
            raise RefusedError(403 if key else 400, "Invalid API key" if key else missing)

    def check_size(self, texts: Sequence[str], most: int) -> None:
        """Raise RefusedError for more characters than that."""
        if (size := sum(map(len, texts))) > most:
            raise RefusedError(413, f"Invalid request: request ({size}) exceeds text limit ({most})")

    async def translate(self, request: Request) -> Translated:
        """Translate one text or several."""
        body = await parsed(request, TranslateBody)
        self.check_key(request, body.api_key)
        for name in ("q", "source", "target"):
            if not getattr(body, name):
                raise RefusedError(400, f"Invalid request: missing {name} parameter")
        if body.format not in ("text", "html"):
            raise RefusedError(400, f"{body.format} format is not supported")
        texts = [body.q] if isinstance(body.q, str) else body.q
        self.check_size(texts, self.options.characters)
        if body.alternatives >= self.options.beam:
            raise RefusedError(400, f"Invalid request: alternatives parameter is above {self.options.beam - 1}")
        request.scope["facts"] |= {"texts": len(texts), "characters": sum(map(len, texts))}
        found = [self.translator.detect(text)[0] for text in texts] if body.source == AUTO else None
        sources = [body.source] * len(texts) if found is None else [each["language"] for each in found]
        return await in_time(request, self._translated(body, texts, sources, found), self.options.deadline)

    async def _translated(
        self, body: TranslateBody, texts: Sequence[str], sources: Sequence[str], found: list[dict[str, Any]] | None
    ) -> Translated:
        answers: list[list[str]] = [[] for _ in texts]
        for source in dict.fromkeys(sources):
            rows = [row for row, each in enumerate(sources) if each == source]
            some = [texts[row] for row in rows]
            if body.format == "html":
                pages = [self._document("q.html", q.encode(), source, body.target, self.options.deadline) for q in some]
                written = [[page.decode()] for page in await asyncio.gather(*pages)]
            else:
                written = await self.translator.translate(
                    some, source, body.target, self.options.deadline, body.alternatives
                )
            for row, answer in zip(rows, written, strict=True):
                answers[row] = answer
        best, others = [answer[0] for answer in answers], [answer[1:] for answer in answers]
        detected = None if found is None else [Detection(**each) for each in found]
        if isinstance(body.q, str):
            return Translated(
                translatedText=best[0], alternatives=others[0] if body.alternatives else None,
                detectedLanguage=detected[0] if detected else None,
            )  # fmt: skip
        alternatives = others if body.alternatives else None
        return Translated(translatedText=best, alternatives=alternatives, detectedLanguage=detected)

    async def detect(self, request: Request) -> list[Detection]:
        """Say in which languages a text may be."""
        body = await parsed(request, DetectBody)
        self.check_key(request, body.api_key)
        if not body.q:
            raise RefusedError(400, "Invalid request: missing q parameter")
        self.check_size([body.q], self.options.characters)
        return [Detection(**each) for each in self.translator.detect(body.q)]

    async def translate_file(self, request: Request) -> TranslatedFile:
        """Translate a file."""
        async with request.form(max_files=1, max_fields=100) as form:
            given = {key: str(form.get(key) or "") for key in ("source", "target", "api_key")}
            self.check_key(request, given["api_key"])
            if not isinstance(file := form.get("file"), UploadFile):
                raise RefusedError(400, "Invalid request: missing file parameter")
            name, data = file.filename or "", await file.read()
        for key in ("source", "target"):
            if not given[key]:
                raise RefusedError(400, f"Invalid request: missing {key} parameter")
        if not name.lower().endswith(FILES):
            raise RefusedError(400, "Invalid request: file format not supported")
        if given["source"] != AUTO:
            self.translator.route(given["source"], given["target"])
        work = self._document(name, data, given["source"], given["target"], self.options.file_deadline)
        written = await in_time(request, work, self.options.file_deadline)
        stem, _, ending = name.rpartition(".")
        token = secrets.token_urlsafe(24)
        self.files[token] = f"{stem}.{given['target']}.{ending}", written
        while sum(len(content) for _, content in self.files.values()) > MOST_KEPT:
            self.files.popitem(last=False)
        return TranslatedFile(translatedFileUrl=f"{request.base_url}download_file/{token}")

    async def _document(self, name: str, data: bytes, source: str, target: str, seconds: float) -> bytes:
        """A document, translated; the thread that reads it ends when nobody waits for it any more."""
        loop, asked = asyncio.get_running_loop(), list[Future[list[Aligned]]]()

        def translate(sentences: Sequence[str]) -> Sequence[Aligned]:
            self.check_size(sentences, self.options.file_characters)
            if asked and asked[-1].cancelled():
                raise CancelledError
            asked.append(run_coroutine_threadsafe(self.translator.aligned(sentences, source, target, seconds), loop))
            return asked[-1].result()

        text = data.decode(errors="ignore")
        self.check_size([text], self.options.file_characters)
        # The time that sentences are looked for in grows with the square of a line.
        self.check_size([max(text.splitlines(), key=len, default="")], self.options.characters)
        if source == AUTO:
            source = self.translator.detect(text)[0]["language"]
        try:
            return await loop.run_in_executor(
                self.documents, translate_document, data, name, translate, Languages(source, target)
            )
        finally:
            for each in asked[-1:]:
                each.cancel()

    async def predict(self, request: Request) -> Response:
        """Predict with one run; what stands beside `model` and `inputs` are its options, and those of search."""
        raw = await request.body()
        self.check_key(request, str(_field(raw, "api_key") or ""))
        name = _field(raw, "model")
        if name not in self.models:
            raise RefusedError(
                400, f"Invalid request: model: there is no such model; allowed: {', '.join(self.models)}"
            )
        model = self.models[name]
        body = await parsed(request, model.body)
        texts = [body.inputs] if isinstance(body.inputs, str) else [*body.inputs]
        self.check_size([*texts, *(getattr(body, "prefixes", None) or ())], self.options.characters)
        if len(texts) > self.options.sentences:
            raise RefusedError(413, f"Invalid request: inputs ({len(texts)}) exceed limit ({self.options.sentences})")
        request.scope["facts"] |= {"model": name, "texts": len(texts), "characters": sum(map(len, texts))}
        options = model.options(body)
        outputs = await in_time(request, model.outputs(texts, options, self.options.deadline), self.options.deadline)

        def written() -> bytes:
            answers = {"model": name, "outputs": [model.answer(output, body) for output in outputs]}
            return json.dumps(answers, ensure_ascii=False, allow_nan=False).encode()

        return Response(await asyncio.to_thread(written), media_type="application/json")

    def settings(self) -> dict[str, Any]:
        """All that a page needs to know, as LibreTranslate says it."""
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

    def download(self, token: str) -> Response:
        """A translated file, which is forgotten then."""
        name, content = self.files.pop(token, (None, b""))
        if name is None:
            raise RefusedError(404, "there is no such file")
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return Response(content, media_type="application/octet-stream", headers={"content-disposition": disposition})

    def ready(self) -> Response:
        """Whether all models can compute."""
        alive = all(model.batcher.thread.is_alive() for model in self.models.values())
        return JSONResponse({"status": "ready" if alive else "broken"}, 200 if alive else 503)


def _field(raw: bytes, name: str) -> Any:
    """A field of a JSON object; None where there is none, or no object. Raises RefusedError for what is no JSON."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        raise RefusedError(400, "Invalid JSON format") from None
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, str) else None


def page(server: Server) -> tuple[str, str]:
    """The page, and the policy of its content: it has its own styles and script, and asks nobody else."""
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
    """The application. Raises UserError for options that do not go with the runs."""
    server, numbers = Server(models, options), Numbers()
    for model in models:
        model.batcher.on_batch = numbers.batches.labels(model.name).observe
        numbers.waiting.labels(model.name).set_function(model.batcher.waiting)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        for model in models:
            await asyncio.to_thread(model.batcher.close)

    app = FastAPI(title="headway", version=VERSION, docs_url=None, redoc_url=None, lifespan=life)
    index, policy = page(server)

    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Response:
        return error.response()

    @app.exception_handler(UserError)
    async def mistaken(request: Request, error: UserError) -> Response:
        return RefusedError(413 if isinstance(error, TooLargeError) else 400, str(error)).response()

    @app.exception_handler(DeadlineError)
    async def late(request: Request, error: DeadlineError) -> Response:
        return RefusedError(503, "not done in time; try again").response()

    @app.exception_handler(RunError)
    async def failed(request: Request, error: RunError) -> Response:
        return RefusedError(503, "the model could not compute this; try again with less").response()

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        return RefusedError(error.status_code, str(error.detail)).response()

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        return RefusedError(500, "Cannot answer: an error of the server, which its log has").response()

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

    return Guard(app, options, numbers)
