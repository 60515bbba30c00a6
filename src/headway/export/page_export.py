"""A student as one HTML file that translates offline in any browser: the engine in WebAssembly and a firefox export.

Bytes are stored as gzip with seven bits per character, which adds a sixth to the size; base64 would add a third.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headway.core.errors import UserError, option
from headway.core.files import write_bytes, write_text
from headway.core.languages import language_name
from headway.core.storage import cache_folder, cache_named, workspace
from headway.export.export_options import PageOptions
from headway.export.exporter import Answering, language_codes
from headway.export.firefox_export import FirefoxExporter
from headway.export.parity import ParityReport, predictor_of
from headway.pages.page import write_page
from headway.predictors.captured_attention import AttentionName
from headway.predictors.output import Example
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import build_aligner
from headway.processing.firefox_files import files_of
from headway.processing.marian_binary import Quantized, embeddings, read_items
from headway.runs.model_card import origin_facts
from headway.runs.run import open_run

PAGE, LICENCE = "index.html", "LICENSE-engine.txt"
ENGINE = "fxtranslate@0.4.2"  # on npm; `engine_worker.js` depends on how this version begins outputs
INTEGRITY = "p1xRwPovv6ej34oMogVCxQkEWErhIQGIM9KdvZYf4ezMT/t87/Fw8XAW6vKWaxmCfVeyUtqK1jzGqckIXHsv/A=="
GLUE_END = "const wasmPath"  # the rest of the glue code reads files, which a page cannot
ESCAPES = "\0\r<~"  # encoded as ~ and a digit; HTML would change the first three
POLICY = (  # the policy of all pages, and permission to compile the engine in its worker
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; "
    "worker-src blob:; img-src data:"
)
BYTES = "application/octet-stream"
HOLDER = '<script type="{kind}" id="{name}">{content}</script>'
SUFFIXES = ("", "-back")  # of the elements of a direction
SCRIPTS = ("answers", "engine_worker", "links_worker")  # the scripts of workers

USAGE = """Open `index.html` in a browser, from a disk or a server; nothing else is needed. The engine in it is
under the Mozilla Public License 2.0 (`LICENSE-engine.txt`)."""


class PageExporter(FirefoxExporter):
    """A page that translates, with the licence of its engine beside it."""

    Config: ClassVar = PageOptions
    name = "page"
    packages = ()
    config: PageOptions

    def _runs(self, run: Run) -> list[Run]:
        """The runs of all directions. Raises UserError if the second one does not translate back, or is no student."""
        if self.config.back is None:
            return [run]
        back = open_run(self.config.back).loaded()
        if language_codes(back) != language_codes(run)[::-1]:
            received, allowed = (" -> ".join(codes) for codes in (language_codes(back), language_codes(run)[::-1]))
            raise UserError(
                "this run does not translate back", where=option("back"), received=received, allowed=allowed
            )
        if reason := self.refusal(back):
            raise UserError(f"this run cannot be exported: {reason}", where=option("back"), received=str(back.path))
        return [run, back]

    def form(self, run: Run) -> str:
        return PAGE

    def write(self, run: Run, folder: Path) -> None:
        runs, engine = self._runs(run), engine_files()
        of_run_alone = {"links": None, "calibration": None}
        others = PageExporter(self.config.model_copy(update=of_run_alone))
        exporters = zip((self, others), runs, SUFFIXES, strict=False)
        parts = [exporter._direction(each, folder, suffix) for exporter, each, suffix in exporters]
        folder.mkdir()
        package = json.loads(engine["package.json"])
        licence = engine["LICENSE"].decode()
        about = {
            "Made by": "headway",
            "Engine": f"{package['name']} {package['version']}",
            "Its licence": "Mozilla Public License 2.0, below",
            "Its source": package["repository"]["url"].removeprefix("git+").removesuffix(".git"),
            "Model": f"{sum(len(file) for _, files in parts for file in files.values()) / 1e6:.1f} MB",
            "Words are linked by": "; ".join(_linked_by(setting["attention"]) for setting, _ in parts),
            **_origins(runs),
        }
        setting = {"directions": [setting for setting, _ in parts], "about": [*about.items()]}
        assets = resources.files(__package__).joinpath("page")
        texts = {name: assets.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS}
        texts["glue"] = "const exports = {};\n" + engine["wasm/fxtranslate_wasm.js"].decode().split(GLUE_END)[0]
        texts["licence-text"] = licence
        packed = {"wasm": engine["wasm/fxtranslate_wasm_bg.wasm"]}
        for _, files in parts:
            packed |= files
        holders = [HOLDER.format(kind="text/plain", name=name, content=text) for name, text in texts.items()]
        holders += [
            HOLDER.format(kind=BYTES, name=name, content=packed_bytes(content)) for name, content in packed.items()
        ]
        arrow = " → " if len(parts) == 1 else " ⇄ "
        write_page(
            folder / PAGE, "translate.html", title=arrow.join(map(language_name, language_codes(run))),
            styles=("palette.css", "translate.css"), scripts=("elements.js", "translate.js"),
            data={"setting": setting}, assets=assets, elements=holders, policy=POLICY,
        )  # fmt: skip
        write_text(folder / LICENCE, licence)

    def _direction(self, run: Run, folder: Path, suffix: str) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The settings of a direction for the page, and its files by the names of their elements."""
        super().write(run, folder)
        files = files_of(folder)
        shutil.rmtree(folder)
        items = read_items(files["model"], "model")
        embedding = items[embeddings(items)[1]]
        assert isinstance(embedding, Quantized)
        offset = files["model"].index(embedding.values.tobytes())
        source, target = ({"code": code, "name": language_name(code)} for code in language_codes(run))
        setting = {
            "source": source, "target": target, "attention": _attention(run), "suffix": suffix,
            "embedding": {"offset": offset, "dim": embedding.values.shape[1]},
        }  # fmt: skip
        return setting, {f"{name}{suffix}": content for name, content in files.items()}

    def open(self, folder: Path, run: Run) -> Answering:
        with self._unpacked(folder, run) as files:
            return super().open(files, run)

    def examined(self, run: Run, folder: Path, report: ParityReport, examples: Sequence[Example]) -> ParityReport:
        with self._unpacked(folder, run) as files:
            return super().examined(run, files, report, examples)

    def finish(self, run: Run, folder: Path, card: str) -> None:
        """Write nothing: the page itself has the files."""

    def usage(self, run: Run) -> str:
        return USAGE

    @contextmanager
    def _unpacked(self, folder: Path, run: Run) -> Iterator[Path]:
        """A temporary folder with the model files that are stored in the page."""
        page = (folder / PAGE).read_text("utf-8")
        with tempfile.TemporaryDirectory() as space:
            for part, name in self.names(run).items():
                if found := re.search(HOLDER.format(kind=BYTES, name=part, content="([^<]*)"), page):
                    write_bytes(Path(space) / name, unpacked_bytes(found[1]))
            yield Path(space)


def _linked_by(attention: dict[str, Any]) -> str:
    heads = f"head {', '.join(map(str, attention['heads']))}" if attention["heads"] else "the mean of all heads"
    return f"the attention of decoder layer {attention['layer']}, {heads}"


def _origins(runs: Sequence[Run]) -> dict[str, str]:
    """The origins of the runs, for the page, from their manifests."""
    found = dict[str, list[str]]()
    for run in runs:
        for title, text in origin_facts({} if run.path is None else open_run(run.path).manifest).items():
            found.setdefault(title, []).append(text)
    return {title: "; ".join(dict.fromkeys(texts)) for title, texts in found.items()}


def _attention(run: Run) -> dict[str, Any]:
    """The layer and the heads (empty for all) whose attention aligns words."""
    predictor = predictor_of(run)
    assert isinstance(predictor, SequencePredictor)
    aligner = build_aligner(predictor)
    return {"layer": AttentionName.parse(aligner.layer).layer, "heads": list(aligner.heads or ())}


def packed_bytes(content: bytes) -> str:
    """Bytes as text that is safe in HTML: gzip, seven bits per character."""
    bits = np.unpackbits(np.frombuffer(gzip.compress(content, mtime=0), np.uint8))
    sevens = np.packbits(np.pad(bits, (0, -len(bits) % 7)).reshape(-1, 7), axis=1) >> 1
    return re.sub(f"[{ESCAPES}]", lambda found: f"~{ESCAPES.index(found[0])}", sevens.tobytes().decode("ascii"))


def unpacked_bytes(text: str) -> bytes:
    """The inverse of `packed_bytes`."""
    text = re.sub("~([0-3])", lambda escaped: ESCAPES[int(escaped[1])], text)
    bits = np.unpackbits(np.frombuffer(text.encode("ascii"), np.uint8).reshape(-1, 1), axis=1)[:, 1:].ravel()
    return gzip.decompress(np.packbits(bits[: len(bits) // 8 * 8]).tobytes())


def engine_files() -> dict[str, bytes]:
    """The files of the engine's package, by name. The package is downloaded once, and kept in the cache.

    Raises:
        UserError: the download failed, or the package is not the expected version.
    """
    kept = cache_folder() / "npm" / f"{ENGINE.replace('@', '-')}.tgz"
    if not kept.exists():
        _fetch(kept)
    content = kept.read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != INTEGRITY:
        what, allowed = "this is not the package of the engine that was tried", f"what `npm pack {ENGINE}` fetches"
        raise UserError(what, where=str(kept), allowed=allowed)
    with tarfile.open(None, "r:gz", io.BytesIO(content)) as archive:
        files = {each.name: archive.extractfile(each) for each in archive if each.isfile()}
        return {name.removeprefix("package/"): file.read() for name, file in files.items() if file is not None}


def _fetch(kept: Path) -> None:
    """Download the engine's package with npm, from the registry that is configured on this machine."""
    npm = shutil.which("npm")
    error = "npm is not installed here"
    if npm is not None:
        with cache_named(kept.parent), workspace(kept.parent) as space:
            settings = {"npm_config_loglevel": "error", "npm_config_fetch_retries": "0"}
            done = subprocess.run(  # noqa: S603 - npm itself
                [npm, "pack", ENGINE], cwd=space, env=os.environ | settings, capture_output=True, check=False
            )
            found = [*space.glob("*.tgz")]
            if done.returncode == 0 and found:
                found[0].replace(kept)
                return
            error = done.stderr.decode(errors="replace").strip().split("\n")[0]
    what = f"the engine for browsers cannot be fetched ({error})"
    allowed = f"the file of `npm pack {ENGINE}`, made on a machine with npm and network, at this path"
    raise UserError(what, where=str(kept), allowed=allowed)
