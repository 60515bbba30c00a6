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
from typing import Any

import numpy as np

from headway.core.errors import UserError
from headway.core.files import write_bytes, write_text
from headway.core.languages import language_name
from headway.core.storage import cache_folder, cache_named, workspace
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
from headway.processing.marian_binary import EMBEDDING, Quantized, read_items

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
SCRIPTS = ("answers", "engine_worker", "links_worker")  # the scripts of workers

USAGE = """Open `index.html` in a browser, from a disk or a server; nothing else is needed. The engine in it is
under the Mozilla Public License 2.0 (`LICENSE-engine.txt`)."""


class PageExporter(FirefoxExporter):
    """A page that translates, with the licence of its engine beside it."""

    name = "page"
    packages, split = (), False

    def form(self, run: Run) -> str:
        return PAGE

    def write(self, run: Run, folder: Path) -> None:
        engine = engine_files()
        super().write(run, folder)
        files = files_of(folder)
        shutil.rmtree(folder)
        folder.mkdir()
        embedding = read_items(files["model"], "model")[EMBEDDING]
        assert isinstance(embedding, Quantized)
        offset = files["model"].index(embedding.values.tobytes())
        package = json.loads(engine["package.json"])
        licence = engine["LICENSE"].decode()
        attention = _attention(run)
        heads = f"head {', '.join(map(str, attention['heads']))}" if attention["heads"] else "the mean of all heads"
        about = {
            "Made by": "headway",
            "Engine": f"{package['name']} {package['version']}",
            "Its licence": "Mozilla Public License 2.0, below",
            "Its source": package["repository"]["url"].removeprefix("git+").removesuffix(".git"),
            "Model": f"{sum(map(len, files.values())) / 1e6:.1f} MB",
            "Words are linked by": f"the attention of decoder layer {attention['layer']}, {heads}",
        }
        names = [language_name(code) for code in language_codes(run)]
        source, target = ({"code": code, "name": name} for code, name in zip(language_codes(run), names, strict=True))
        setting = {
            "source": source, "target": target, "about": [*about.items()], "attention": attention,
            "embedding": {"offset": offset, "dim": embedding.values.shape[1]},
        }  # fmt: skip
        assets = resources.files(__package__).joinpath("page")
        texts = {name: assets.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS}
        texts["glue"] = "const exports = {};\n" + engine["wasm/fxtranslate_wasm.js"].decode().split(GLUE_END)[0]
        texts["licence-text"] = licence
        packed = {"wasm": engine["wasm/fxtranslate_wasm_bg.wasm"], **files}
        holders = [HOLDER.format(kind="text/plain", name=name, content=text) for name, text in texts.items()]
        holders += [
            HOLDER.format(kind=BYTES, name=name, content=packed_bytes(content)) for name, content in packed.items()
        ]
        write_page(
            folder / PAGE, "translate.html", title=" → ".join(names), styles=("palette.css", "translate.css"),
            scripts=("elements.js", "translate.js"), data={"setting": setting}, assets=assets, elements=holders,
            policy=POLICY,
        )  # fmt: skip
        write_text(folder / LICENCE, licence)

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
