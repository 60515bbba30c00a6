"""Students for the translation engine of Firefox, and other engines that read Marian's files with int8 weights.

A folder has the model, the vocabulary, a shortlist if there are links, and an entry for a registry of models. Three
outputs are compared: the run's, the engine's, and headway's own computation with the same integers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from headway.core.errors import UserError, option
from headway.core.files import sha256, write_bytes, write_json
from headway.core.log import say, warn
from headway.export.export_options import FirefoxOptions
from headway.export.exporter import (
    Answer,
    Answering,
    Exporter,
    Search,
    language_codes,
    sentencepiece_of,
    text_processors,
)
from headway.export.int8_reference import LONGEST, Reference, Written, calibrated, longest_of, saturating
from headway.export.marian_export import marian_needs
from headway.export.parity import ParityReport
from headway.export.rounding_causes import Cause, rounding_causes
from headway.formats.alignments import LinksFrom, parse_pharaoh
from headway.formats.lines import read_lines
from headway.formats.pairs import open_source
from headway.metrics import as_metrics
from headway.models.transformer import TransformerConfig
from headway.parses.aligners import links_of_file
from headway.parses.links import LinkLabeller, store_of_links, token_links
from headway.predictors.output import Example
from headway.predictors.predictor import Run
from headway.processing.firefox_files import (
    METADATA,
    SHARED,
    SHORTLIST,
    SPLIT,
    architecture_of,
    files_of,
    vocabularies_of,
    write_records,
)
from headway.processing.marian_binary import Floats, Items, read_items, write_items
from headway.processing.shortlist import read_shortlist, shortlist_of, write_shortlist
from headway.processing.text.subwords import SPACE, SubwordVocabulary, scored_pieces
from headway.processing.text.text_processor import TextProcessor
from headway.runs.model_card import licences_of
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tasks.student import (
    engine_rows,
    engine_vocabulary,
    refactored,
    statistics_of,
    student_items,
    student_options,
    vocabulary_fault,
    with_factors,
)

MULTIPLE = 16  # engines are fast if sizes are multiples of this
LISTS = re.compile(r"lex\.(\d+)\.(\d+)\.")  # the beginning of the name of a shortlist
HUB = "en"  # the language by way of which a Firefox translates
REGISTRY = "registry.json"
ENGINE = "fxtranslate"
LEAST_EQUAL, LEAST_EXACT, MOST_BLEU = 0.95, 0.99, 0.3

USAGE = """```python
from pathlib import Path

from fxtranslate import Translator  # pip install fxtranslate

model, source, target = (Path("FOLDER", name).read_bytes() for name in ("MODEL", "SOURCE", "TARGET"))
translator = Translator(model=model, src_vocab=source, trg_vocab=targetSHORTLIST)
print(translator.translate("..."))
```

`registry.json` has names, sizes and checksums of the files, as registries of models for browsers want them, and
`metadata.json` the sizes of the model. `headway serve` serves the records in `remote-settings/` to a Firefox."""


class FirefoxExporter(Exporter):
    """A folder with the files of Firefox's translation engine."""

    Config: ClassVar = FirefoxOptions
    name, integers = "firefox", True
    packages: ClassVar[tuple[str, ...]] = ("zstandard",)
    config: FirefoxOptions

    @property
    def exact(self) -> bool:
        return False

    def refusal(self, run: Run) -> str | None:
        needs = ", ".join(dict.fromkeys(_needs(run)))
        return f"it is no model such as the presets firefox-tiny and student; it needs {needs}" if needs else None

    def form(self, run: Run) -> str:
        return " and ".join(name for part, name in self.names(run).items() if part != "lex")

    def names(self, run: Run) -> dict[str, str]:
        """The file names of the model, the vocabularies and the shortlist, as in Firefox, by the type of the file."""
        pair, first, best = "".join(language_codes(run)), self.config.shortlist_first, self.config.shortlist_best
        if (kept := self._kept_lists(run)) and (found := LISTS.match(kept.name)):
            first, best = map(int, found.groups())
        kinds = (SHARED,) if _shares(run) else SPLIT
        vocabularies = {kind: f"{kind}.{pair}.spm" for kind in kinds}
        model, lex = f"model.{pair}.intgemm.alphas.bin", f"lex.{first}.{best}.{pair}.s2t.bin"
        return {"model": model, **vocabularies, "lex": lex}

    def write(self, run: Run, folder: Path) -> None:
        names, processors = self.names(run), text_processors(run)
        ids = [engine_ids(processor) for processor in processors]
        whole = self._items(run)
        folder.mkdir()
        kinds = [kind for kind in names if kind in (SHARED, *SPLIT)]
        for kind, processor in zip(kinds, processors, strict=False):  # the first alone if the sides share one
            vocabulary = engine_vocabulary(SubwordVocabulary(sentencepiece_of(processor)))
            write_bytes(folder / names[kind], vocabulary)
        write_bytes(folder / names["model"], write_items(whole))
        if (kept := self._kept_lists(run)) is not None:
            write_bytes(folder / names["lex"], kept.read_bytes())
        elif (file := self._links(run)) is not None:
            links = _linked_ids(run, file, self.config.links_from) if self.config.links else _stored_ids(run, file)
            source_size, target_size = (len(engine_rows(processor.size)) for processor in processors)
            lists = shortlist_of(
                ((ids[0][source], ids[1][target]) for source, target in links), source_size,
                self.config.shortlist_first, self.config.shortlist_best, targets=target_size,
            )  # fmt: skip
            write_bytes(folder / names["lex"], write_shortlist(lists))
        else:
            say("without links there is no shortlist: the engine looks at all target tokens")

    def finish(self, run: Run, folder: Path, card: str) -> None:
        """Write the metadata and the records by which a Firefox finds the files."""
        names, languages = self.names(run), language_codes(run)
        model = folder / names["model"]
        items = read_items(model.read_bytes(), str(model))
        options = student_options(items, str(model))
        width = options["dim-emb"]
        described = {
            "architecture": architecture_of(width), "byteSize": model.stat().st_size, "hash": sha256(model),
            "modelConfig": options, "modelStatistics": statistics_of(items), "sourceLanguage": languages[0],
            "targetLanguage": languages[1], "version": f"{self.config.records}.0",
        }  # fmt: skip
        if (licences := licences_of(open_run(run.path).manifest if run.path is not None else {})) is not None:
            described["licences"] = licences
        write_json(folder / METADATA, described)
        write_records(folder, names, languages, width, self.config.records)
        if HUB not in languages:
            pair = "-".join(languages)
            say(f"Firefox asks for pairs with English alone, and joins others through it; it does not ask for {pair}")

    def _items(self, run: Run) -> Items:
        """The items of the model file, with the factors of a run that has its own, or else with measured ones."""
        items, matrices = _student(run)
        if (kept := refactored(items, matrices, _imported_factors(run))) is not None:
            return kept
        sources = self._calibration(run)
        if run.recipe.training.int8_rounding != "fixed":
            return calibrated(items, matrices, sources, largest=self.config.activations == "largest")
        items = with_factors(items, matrices, run.model)
        if full := saturating(items, sources):
            what = "sums of two products pass 16 bits on processors without VNNI, which cut them"
            warn(f"{what}: {', '.join(full)}")
        return items

    def _kept_lists(self, run: Run) -> Path | None:
        """The shortlist that a run was imported with, unless the options name links for another one."""
        if self.config.links is not None or run.path is None:
            return None
        return next(RunFolder(run.path).vocabulary.glob(f"*{SHORTLIST}"), None)

    def _links(self, run: Run) -> Path | None:
        """The file of links of the options, or else the store of the run's training links if it exists."""
        if self.config.links is not None or run.recipe.data.links is None:
            return self.config.links
        store = store_of_links(run.recipe.data.train, run.recipe.data.links)
        return store if store.exists() else None

    def _calibration(self, run: Run) -> list[list[int]]:
        """The sources that the range of activations is measured on, as the engine's ids."""
        count, data, file = self.config.calibration_lines, run.recipe.data, self.config.calibration
        lines = [] if file is None else [*islice(read_lines(file), count)]
        for corpus, where in ((data.train, "data.train"), (data.dev, "data.dev")):
            if file is None and corpus is not None and not lines:
                with suppress(UserError):  # the file may have moved
                    lines = [each.source for each in islice(open_source(corpus, where), count)]
        if not (found := [each for each in _encoded(run, lines) if 0 < len(each) < LONGEST]):
            what = "there are no lines to measure activations on"
            allowed = f"headway export firefox RUN {option('calibration')}=FILE, a file with source lines"
            raise UserError(what, where=option("calibration"), received=file and str(file), allowed=allowed)
        return found

    def open(self, folder: Path, run: Run) -> Answering:
        reference, (_, target) = self.reference(folder, run), text_processors(run)
        rows = engine_rows(target.size)

        def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
            answers = []
            for each in reference.translate(_encoded(run, lines)):
                written = tuple(rows[id] for id in each.ids)
                score = sum(each.log_probabilities)
                answers.append([Answer(tuple(target.tokens(written)), score, target.decode(written), written)])
            return answers

        return answer

    def reference(self, folder: Path, run: Run) -> Reference:
        """headway's own computation with the files of a folder."""
        names = self.names(run)
        model, lists = folder / names["model"], folder / names["lex"]
        items = read_items(model.read_bytes(), str(model))
        size, targets = (len(engine_rows(processor.size)) for processor in text_processors(run))
        shortlist = None
        if lists.exists():
            shortlist = read_shortlist(lists.read_bytes(), size, str(lists), targets=targets)
        return Reference(items, str(model), shortlist, shared=_shares(run))

    def search(self, run: Run, beam: int | None, longest: int) -> Search:
        if beam not in (None, 1):
            raise UserError("the engine has no beam", where=option("beam"), received=beam, allowed="1")
        return Search(1, longest_of(1), 2.0)

    def examined(self, run: Run, folder: Path, report: ParityReport, examples: Sequence[Example]) -> ParityReport:
        """The report with the engine's outputs, if it is installed. Writes the entry for a registry."""
        texts = {"run": [own for own, _ in report.outputs], "int8": [other for _, other in report.outputs]}
        engine = None
        if find_spec(ENGINE) is None:
            warn(f"{ENGINE} is not installed: headway's own computation with the same integers is compared alone")
        else:
            texts["engine"], engine = self._by_engine(run, folder, examples)
        language, scores = run.recipe.text.target.language, dict[str, dict[str, float]]()
        if all(example.references for example in examples):
            assert isinstance(run.target, TextProcessor)
            written = [example.as_written(run.target.config).references for example in examples]
            references = [list(each) for each in zip(*written, strict=True)]
            for metric in as_metrics(("bleu", "chrf"), language):
                scores[metric.label] = {name: metric.score(said, references).value for name, said in texts.items()}
        rows = zip(examples, *texts.values(), strict=True)
        differing = tuple(
            dict(zip(("line", "source", *texts), (number, example.source, *said), strict=True))
            for number, (example, *said) in enumerate(rows, start=1)
            if len(set(said)) > 1
        )
        causes = rounding_causes(
            self.reference(folder, run), _student(run)[1], _encoded(run, [each.source for each in examples])
        )
        whole = FirefoxReport(
            **vars(report), engine=engine, scores=scores, differing=differing, causes=causes.causes, gap=causes.gap,
            twin=sum(own == _decoded(run, each) for own, each in zip(texts["run"], causes.floats, strict=True)),
        )  # fmt: skip
        files = {
            kind: {"name": name, "size": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
            for kind, name in self.names(run).items()
            if (folder / name).exists()
        }
        source, target = language_codes(run)
        own = {label: round(by["engine" if engine else "int8"], 2) for label, by in scores.items()}
        write_json(folder / REGISTRY, {"from": source, "to": target, "files": files, "scores": own})
        return whole

    def _by_engine(self, run: Run, folder: Path, examples: Sequence[Example]) -> tuple[list[str], str]:
        """The engine's outputs, and its name and version."""
        translator = translator_of(files_of(folder))
        source, _ = text_processors(run)
        texts = [translator.translate(source.prepare(each.source).replace(SPACE, " ")) for each in examples]
        return texts, f"{ENGINE} {metadata.version(ENGINE)} ({translator.backend()})"

    def usage(self, run: Run) -> str:
        names = self.names(run)
        source, target = (names.get(kind, names.get(SHARED, "")) for kind in SPLIT)
        given = (
            f', shortlist=Path("FOLDER/{names["lex"]}").read_bytes()'
            if self._kept_lists(run) or self._links(run)
            else ""
        )
        words = {"MODEL": names["model"], "SOURCE": source, "TARGET": target, "SHORTLIST": given}
        return re.sub("|".join(words), lambda found: words[found[0]], USAGE)


@dataclass(frozen=True, kw_only=True)
class FirefoxReport(ParityReport):
    """The comparison of the run, the engine, and headway's own computation with the engine's integers, `int8`.

    Attributes:
        engine: its name, version and instruction set; None if it is not installed.
        scores: by metric, the scores of all three.
        differing: the lines whose outputs are not all equal, with the outputs.
        causes: by name, the effect of each rounding, and of the shortlist, on the outputs of floats.
        gap: the median difference of the two best logits of a token, in floats.
        twin: the number of lines for which floats have the run's output.
    """

    engine: str | None
    scores: dict[str, dict[str, float]]
    differing: tuple[dict[str, Any], ...]
    causes: Mapping[str, Cause]
    gap: float
    twin: int

    def share(self, one: str, other: str) -> float:
        """The share of lines for which both have the same output."""
        return 1 - sum(bool(each[one] != each[other]) for each in self.differing) / self.lines

    @property
    def passed(self) -> bool:
        judged = "engine" if self.engine else "int8"
        exact = not self.engine or self.share("engine", "int8") >= LEAST_EXACT
        bleu = self.scores.get("BLEU", {judged: 0.0, "run": 0.0})
        return exact and self.share(judged, "run") >= LEAST_EQUAL and bleu["run"] - bleu[judged] <= MOST_BLEU

    def to_json(self) -> dict[str, Any]:
        pairs = [("engine", "run"), ("engine", "int8"), ("int8", "run")] if self.engine else [("int8", "run")]
        shares = {f"{one} equal to {other}": self.share(one, other) for one, other in pairs}
        shares["floats equal to run"] = self.twin / self.lines
        causes = {name: cause._asdict() for name, cause in self.causes.items()}
        return super().to_json() | {"differing": list(self.differing), "shares": shares, "causes": causes}

    def text(self) -> str:
        shown = self.to_json()
        lines = [f"{self.format}: {self.lines} lines, {self.engine or 'without the engine'}"]
        lines += [f"  {share:.1%} of outputs: {name}" for name, share in shown["shares"].items()]
        for name, cause in self.causes.items():
            told = "" if cause.predicted is None else f" ({cause.predicted:.1%} predicted, e = {cause.deviation:.3f})"
            lines.append(f"  {cause.equal:.1%} of the outputs of floats stay with {name}{told}")
        lines.append(f"  the median gap of the two best logits is {self.gap:.2f}")
        for label, by in self.scores.items():
            lines.append(f"  {label}: " + ", ".join(f"{name} {value:.2f}" for name, value in by.items()))
        for each in self.differing:
            lines.append(f"  line {each['line']}: {each['source']}")
            lines += [f"    {name:7} {each[name]}" for name in ("run", "int8", "engine") if name in each]
        return "\n".join(lines)


def translator_of(files: Mapping[str, bytes]) -> Any:
    """The engine with the files of a firefox export, by `PARTS`."""
    from fxtranslate import Translator

    return Translator(files["model"], *vocabularies_of(files), files.get("lex"))


def engine_ids(processor: TextProcessor) -> dict[int, int]:
    """The engine's ids by the ids of a vocabulary, for tokens that the engine has."""
    return {id: row for row, id in enumerate(engine_rows(processor.size)) if id >= 0}


def _shares(run: Run) -> bool:
    """Whether both sides share a vocabulary."""
    source, target = text_processors(run)
    return source.vocabulary.shares_ids_with(target.vocabulary)


def _imported_factors(run: Run) -> dict[str, float]:
    """The factors in the file that a run was imported from; empty for other runs."""
    if run.path is None:
        return {}
    origin = RunFolder(run.path).read_manifest().get("imported", {})
    return origin.get("factors", {}) if origin.get("format") == "firefox" else {}


def _encoded(run: Run, lines: Iterable[str]) -> list[list[int]]:
    """The engine's ids of source lines."""
    source, _ = text_processors(run)
    ids = engine_ids(source)
    return [[ids[id] for id in source.encode(line, run.recipe.data.truncation()).values] for line in lines]


def _decoded(run: Run, output: Written) -> str:
    """The text of an output of the engine."""
    _, target = text_processors(run)
    rows = engine_rows(target.size)
    return target.decode(tuple(rows[id] for id in output.ids))


def _student(run: Run) -> tuple[Items, dict[str, Floats]]:
    """The items and the matrices of a run, as of `student_items`."""
    assert isinstance(run.recipe.model, TransformerConfig)
    return student_items(dict(run.model.named_parameters()), run.recipe.model.heads)


def _linked_ids(run: Run, file: Path, first: LinksFrom) -> Iterator[tuple[int, int]]:
    """The (source, target) ids of training pairs linked in a file. Raises UserError if the links are of other pairs."""
    processors = text_processors(run)
    corpus = open_source(run.recipe.data.train, "data.train", run.recipe.data.broken)

    def words() -> Iterator[tuple[list[str], list[str]]]:
        for pair in corpus:
            yield processors[0].prepare(pair.source).split(), processors[1].prepare(pair.target).split()

    for pair, line in zip(corpus, links_of_file(file, words, option("links"), first), strict=True):
        texts = zip(processors, (pair.source, pair.target), strict=True)
        source, target = (processor.encode_with_spans(text) for processor, text in texts)
        links = dict.fromkeys(parse_pharaoh(line, str(file)).possible)
        linked = token_links(links, *([(token.word,) for token in side] for side in (source, target)))
        for row, column in zip(*linked.nonzero(), strict=True):
            yield source[column].id, target[row].id


def _stored_ids(run: Run, store: Path) -> Iterator[tuple[int, int]]:
    """The (source, target) ids that a store links. Raises UserError if it is damaged, or of other pairs."""
    processors, labeller = text_processors(run), LinkLabeller(store, run.recipe.text)
    counts = Counter[str]()
    for pair in open_source(run.recipe.data.train, "data.train", run.recipe.data.broken):
        texts = (pair.source, pair.target)
        source, target = (processor.encode(text).values for processor, text in zip(processors, texts, strict=True))
        rows, found = labeller.label(texts, processors)
        if all(map(str.strip, texts)):
            counts.update(dict(zip(labeller.counted, found, strict=True)))
        for row in rows:
            yield source[row[1]], target[row[0]]
    labeller.check(counts)


def _needs(run: Run) -> Iterator[str]:
    """The changes to its recipe that a run would need, as `key: value`."""
    yield from marian_needs(run)
    section = run.recipe.model
    if isinstance(section, TransformerConfig):
        if section.norm != "post":
            yield "model.norm: post"
        if section.tied == "none":
            yield "model.tied: target, or all if the vocabulary is shared"
        if any(mixer != {"kind": "ssru"} for mixer in section.decoder.mixers()):
            yield "model.decoder.mixer: ssru"
        network = section.feed_forward_options()
        if network["kind"] != "relu":
            yield "model.activation: relu"
        for key, size in (("dim", section.dim), ("feed_forward", network["hidden"])):
            if size % MULTIPLE:
                yield f"model.{key}: a multiple of {MULTIPLE}"
    vocabularies = [each.vocabulary for each in (run.source, run.target) if isinstance(each, TextProcessor)]
    for vocabulary in vocabularies:
        if not isinstance(vocabulary, SubwordVocabulary) or scored_pieces(vocabulary)[0] != "unigram":
            yield "vocabulary.kind: unigram"
        elif (fault := vocabulary_fault(vocabulary)) is not None:
            yield fault
