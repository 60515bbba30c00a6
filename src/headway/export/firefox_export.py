"""Students for the translation engine of Firefox, and other engines that read Marian's files with int8 weights.

A folder has the model, the vocabulary, a shortlist if there are links, and an entry for a registry of models. Three
outputs are compared: the run's, the engine's, and headway's own computation with the same integers.
"""

from __future__ import annotations

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
from headway.processing.marian_binary import Floats, Items, read_items, write_items
from headway.processing.shortlist import read_shortlist, shortlist_of, write_shortlist
from headway.processing.text.subwords import SPACE, SubwordVocabulary, scored_pieces
from headway.processing.text.text_processor import TextProcessor
from headway.tasks.student import engine_rows, engine_vocabulary, student_items, vocabulary_fault, with_factors

MULTIPLE = 16  # engines are fast if sizes are multiples of this
REGISTRY = "registry.json"
ENGINE = "fxtranslate"
LEAST_EQUAL, LEAST_EXACT, MOST_BLEU = 0.95, 0.99, 0.3

USAGE = """```python
from pathlib import Path

from fxtranslate import Translator  # pip install fxtranslate

model, vocabulary = Path("FOLDER/MODEL").read_bytes(), Path("FOLDER/VOCABULARY").read_bytes()
translator = Translator(model=model, src_vocab=vocabulary, trg_vocab=vocabularySHORTLIST)
print(translator.translate("..."))
```

`registry.json` has names, sizes and checksums of the files, as registries of models for browsers want them."""


class FirefoxExporter(Exporter):
    """A folder with the files of Firefox's translation engine."""

    Config: ClassVar = FirefoxOptions
    name, integers = "firefox", True
    config: FirefoxOptions

    @property
    def exact(self) -> bool:
        return False

    def refusal(self, run: Run) -> str | None:
        needs = ", ".join(dict.fromkeys(_needs(run)))
        return f"it is no model such as the presets student and student-tiny; it needs {needs}" if needs else None

    def form(self, run: Run) -> str:
        return " and ".join(self.names(run)[:2])

    def names(self, run: Run) -> list[str]:
        """The file names of the model, the vocabulary and the shortlist, as in Firefox."""
        pair, first, best = "".join(language_codes(run)), self.config.shortlist_first, self.config.shortlist_best
        return [f"model.{pair}.intgemm.alphas.bin", f"vocab.{pair}.spm", f"lex.{first}.{best}.{pair}.s2t.bin"]

    def write(self, run: Run, folder: Path) -> None:
        (source, _), (model, vocabulary, shortlist) = text_processors(run), self.names(run)
        ids, (items, matrices) = engine_ids(run), _student(run)
        sources = [[ids[id] for id in each] for each in self._calibration(run, source)]
        if run.recipe.training.int8_rounding == "fixed":
            items = with_factors(items, matrices, run.model)
            if full := saturating(items, sources):
                what = "sums of two products pass 16 bits on processors without VNNI, which cut them"
                warn(f"{what}: {', '.join(full)}")
        else:
            items = calibrated(items, matrices, sources, largest=self.config.activations == "largest")
        folder.mkdir()
        write_bytes(folder / vocabulary, engine_vocabulary(SubwordVocabulary(sentencepiece_of(source))))
        write_bytes(folder / model, write_items(items))
        if (file := self._links(run)) is not None:
            links = _linked_ids(run, file, self.config.links_from) if self.config.links else _stored_ids(run, file)
            lists = shortlist_of(
                ((ids[source], ids[target]) for source, target in links), len(engine_rows(source.size)),
                self.config.shortlist_first, self.config.shortlist_best,
            )  # fmt: skip
            write_bytes(folder / shortlist, write_shortlist(lists))
        else:
            say("without links there is no shortlist: the engine looks at all target tokens")

    def _links(self, run: Run) -> Path | None:
        """The file of links of the options, or else the store of the run's training links if it exists."""
        if self.config.links is not None or run.recipe.data.links is None:
            return self.config.links
        store = store_of_links(run.recipe.data.train, run.recipe.data.links)
        return store if store.exists() else None

    def _calibration(self, run: Run, source: TextProcessor) -> list[Sequence[int]]:
        """The encoded sources that the range of activations is measured on."""
        count, data, file = self.config.calibration_lines, run.recipe.data, self.config.calibration
        lines = [] if file is None else [*islice(read_lines(file), count)]
        for corpus, where in ((data.train, "data.train"), (data.dev, "data.dev")):
            if file is None and corpus is not None and not lines:
                with suppress(UserError):  # the file may have moved
                    lines = [each.source for each in islice(open_source(corpus, where), count)]
        ids = [source.encode(line, data.truncation()).values for line in lines]
        if not (found := [each for each in ids if 0 < len(each) < LONGEST]):
            what = "there are no lines to measure activations on"
            allowed = f"headway export firefox RUN {option('calibration')}=FILE, a file with source lines"
            raise UserError(what, where=option("calibration"), received=file and str(file), allowed=allowed)
        return found

    def open(self, folder: Path, run: Run) -> Answering:
        reference, (source, target) = self.reference(folder, run), text_processors(run)
        rows = engine_rows(source.size)

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
        model, _, lists = (folder / name for name in self.names(run))
        items = read_items(model.read_bytes(), str(model))
        size = len(engine_rows(text_processors(run)[0].size))
        shortlist = read_shortlist(lists.read_bytes(), size, str(lists)) if lists.exists() else None
        return Reference(items, str(model), shortlist)

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
        names = dict(zip(("model", "vocab", "lex"), self.names(run), strict=True))
        files = {
            kind: {"name": name, "size": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
            for kind, name in names.items()
            if (folder / name).exists()
        }
        source, target = language_codes(run)
        own = {label: round(by["engine" if engine else "int8"], 2) for label, by in scores.items()}
        write_json(folder / REGISTRY, {"from": source, "to": target, "files": files, "scores": own})
        return whole

    def _by_engine(self, run: Run, folder: Path, examples: Sequence[Example]) -> tuple[list[str], str]:
        """The engine's outputs, and its name and version."""
        from fxtranslate import Translator

        model, vocabulary, *lists = (path.read_bytes() for name in self.names(run) if (path := folder / name).exists())
        translator = Translator(
            model=model, src_vocab=vocabulary, trg_vocab=vocabulary, shortlist=next(iter(lists), None)
        )
        source, _ = text_processors(run)
        texts = [translator.translate(source.prepare(each.source).replace(SPACE, " ")) for each in examples]
        return texts, f"{ENGINE} {metadata.version(ENGINE)} ({translator.backend()})"

    def usage(self, run: Run) -> str:
        model, vocabulary, shortlist = self.names(run)
        given = f', shortlist=Path("FOLDER/{shortlist}").read_bytes()' if self._links(run) else ""
        return USAGE.replace("MODEL", model).replace("VOCABULARY", vocabulary).replace("SHORTLIST", given)


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


def engine_ids(run: Run) -> dict[int, int]:
    """The engine's ids by the ids of the run's vocabulary, for tokens that the engine has."""
    rows = engine_rows(text_processors(run)[0].size)
    return {id: row for row, id in enumerate(rows) if id >= 0}


def _encoded(run: Run, lines: Iterable[str]) -> list[list[int]]:
    """The engine's ids of source lines."""
    (source, _), ids = text_processors(run), engine_ids(run)
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
        linked = token_links(links, [token.word for token in source], [token.word for token in target])
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
        if section.tied not in (None, "all"):
            yield "model.tied: all"
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
    if not all(each.shares_ids_with(vocabularies[0]) for each in vocabularies):  # a tagger has no shared ids
        yield "vocabulary.shared: true"
