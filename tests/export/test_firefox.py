"""Students for the engine of Firefox: run, engine and headway's own integers agree, and what cannot be is refused."""

import hashlib
import io
import json
import math
import random
import shutil
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import yaml

import headway
from headway.augment.link_annotation import annotate_links
from headway.core.errors import UserError
from headway.export.export_options import ExportOptions, FirefoxOptions
from headway.export.exporting import export_run
from headway.export.firefox_export import FirefoxExporter, FirefoxReport, translator_of
from headway.export.int8_reference import LONGEST, Partial, Reference, saturating
from headway.export.parity import answering_of
from headway.export.rounding_causes import rounding_causes
from headway.importing.importing import import_run
from headway.models import build_model
from headway.models.components import model_section
from headway.parses.links import LinksConfig, store_of_links
from headway.processing.firefox_files import files_of
from headway.processing.marian_binary import Quantized, quantized, read_items, write_items
from headway.processing.marian_npz import CONFIG
from headway.processing.shortlist import read_shortlist, shortlist_of, write_shortlist
from headway.processing.text.text_processor import TextConfig, train_processors
from headway.processing.text.vocabulary import VocabularyConfig
from headway.runs.run import open_run
from headway.tasks.student import END, factor_name, student_items, student_options
from headway.tensors.batch import EOS, UNKNOWN, collate
from headway.tensors.saturation import unsaturated
from tests.conftest import Command
from tests.shared_runs import shared_run

WORDS = ["rano", "temi", "kulas", "ovib", "pe", "zorut", "lim", "dafe", "si", "wuko", "ybar", "neg"]
RECIPE = {
    "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}},
    "text": {"source": {"language": "en"}, "target": {"language": "de"}},
    "vocabulary": {"kind": "unigram", "size": 45, "shared": True},
    "model": {
        "preset": "student-tiny", "dim": 32, "feed_forward": 64, "heads": 4, "dropout": 0.0, "encoder": {"layers": 1},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 30},
    "training": {"updates": 300, "batch_tokens": 768, "checkpoint_every": 300},
    "decoding": {"beam": 1},
}  # fmt: skip
MODEL, VOCABULARY, LISTS = "model.ende.intgemm.alphas.bin", "vocab.ende.spm", "lex.4.2.ende.s2t.bin"


@dataclass(frozen=True)
class Student:
    """A run that writes each word with its letters turned round, and links of its training pairs."""

    run: Path
    links: Path


def write_student(folder: Path) -> Path:
    drawn = random.Random(1)
    lines = [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 5))) for _ in range(600)]
    for name, part in (("dev", lines[:60]), ("train", lines[60:])):
        rows = "".join(f"{line}\t{' '.join(word[::-1] for word in line.split())}\n" for line in part)
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    links = "".join(" ".join(f"{place}-{place}" for place in range(len(line.split()))) + "\n" for line in lines[60:])
    (folder / "links.txt").write_text(links, encoding="utf-8")
    (folder / "student.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return folder / "student.yaml"


@pytest.fixture(scope="session")
def student(pytestconfig: pytest.Config) -> Student:
    folder = shared_run(pytestconfig.cache.mkdir("runs"), "student", write_student)
    return Student(folder / "run", folder / "links.txt")


@pytest.fixture(scope="module")
def exported(student: Student, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FirefoxReport]:
    folder = tmp_path_factory.mktemp("firefox") / "export"
    report = export_run("firefox", student.run, ExportOptions(output=folder), {})
    assert isinstance(report, FirefoxReport)
    return folder, report


def test_engine_and_integers_answer_as_the_run_does(exported: tuple[Path, FirefoxReport]) -> None:
    folder, report = exported
    pytest.importorskip("fxtranslate")
    assert report.engine is not None
    assert report.engine.startswith("fxtranslate ")
    assert report.lines == 60
    assert min(report.share("engine", "run"), report.share("int8", "run")) >= 0.85
    assert report.share("engine", "int8") >= 0.95
    assert report.scores["BLEU"]["run"] > 40
    stored = json.loads((folder / "parity.json").read_text(encoding="utf-8"))
    assert stored["shares"]["engine equal to run"] == report.share("engine", "run")
    assert stored["scores"] == report.scores


@pytest.mark.parametrize(
    ("differing", "bleu", "passed"),
    [
        ([], 40.0, True),
        ([{"run": "a", "int8": "b", "engine": "b"}] * 3, 39.7, True),
        ([{"run": "a", "int8": "b", "engine": "b"}] * 4, 40.0, False),
        ([{"run": "a", "int8": "a", "engine": "b"}], 40.0, False),
        ([], 39.6, False),
    ],
)
def test_parity_has_three_conditions(
    exported: tuple[Path, FirefoxReport], differing: list[dict[str, str]], bleu: float, passed: bool
) -> None:
    scores = {"BLEU": {"run": 40.0, "int8": bleu, "engine": bleu}}
    report = replace(exported[1], lines=60, engine="an engine", scores=scores, differing=tuple(differing))
    assert report.passed == passed


def test_the_folder_has_what_a_registry_wants(exported: tuple[Path, FirefoxReport]) -> None:
    folder, _ = exported
    described = {"registry.json", "metadata.json", "remote-settings", "parity.json", "README.md"}
    assert {path.name for path in folder.iterdir()} == {MODEL, VOCABULARY, *described}
    registry = json.loads((folder / "registry.json").read_text(encoding="utf-8"))
    assert (registry["from"], registry["to"]) == ("en", "de")
    for kind, name in (("model", MODEL), ("vocab", VOCABULARY)):
        content = (folder / name).read_bytes()
        assert registry["files"][kind] == {
            "name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()
        }  # fmt: skip
    assert registry["scores"]["BLEU"] > 40


def test_the_vocabulary_has_the_ids_that_engines_want(student: Student, exported: tuple[Path, FirefoxReport]) -> None:
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(exported[0] / VOCABULARY))
    assert (pieces.eos_id(), pieces.unk_id(), pieces.bos_id(), pieces.pad_id()) == (0, 1, -1, -1)
    own = open_run(student.run).source
    assert len(pieces) % 8 == 0
    assert len(pieces) - (own.size - 2) in range(8)
    for text in ("rano temi", "xq zorut", "lim  si wuko"):
        ids = own.encode(text).values
        assert pieces.encode(text) == [id - 2 for id in ids]
        assert pieces.decode(pieces.encode("rano temi")) == "rano temi"
    assert not {*pieces.encode("<unused-43>")} & {*range(own.size - 2, len(pieces))}


def test_floats_without_rounding_are_those_of_the_run(student: Student, exported: tuple[Path, FirefoxReport]) -> None:
    """The reference that rounds no activations writes what the run writes, with its log probabilities."""
    run, exporter = open_run(student.run), FirefoxExporter()
    lines = [f"{one} {other} {one}" for one in WORDS for other in WORDS[:3]]

    reference = Partial(exporter.reference(exported[0], run).items, "model.bin")
    state = dict(run.model.named_parameters())
    with np.errstate(all="raise"):
        import_run(["firefox", str(exported[0] / MODEL), str(exported[0] / VOCABULARY)], exported[0].parent / "floats")
    dequantised = open_run(exported[0].parent / "floats")
    expected = answering_of(dequantised)(lines, exporter.search(run, None, 0))
    ids = [[id - 2 for id in run.source.encode(line).values] for line in lines]
    assert state.keys() == dict(dequantised.model.named_parameters()).keys()
    for (best,), written in zip(expected, reference.translate(ids), strict=True):
        assert [id - 2 for id in best.ids] == list(written.ids)
        assert sum(written.log_probabilities) == pytest.approx(best.score, abs=1e-3)


def test_integers_are_multiplied_and_added_as_the_equation_says(exported: tuple[Path, FirefoxReport]) -> None:
    items = read_items((exported[0] / MODEL).read_bytes(), "model.bin")
    reference, drawn = Reference(items, "model.bin"), np.random.default_rng(1)
    for name, bias in (("encoder_l1_ffn_W1", "encoder_l1_ffn_b1"), ("decoder_l2_rnn_W", None), ("Wemb", None)):
        x = drawn.normal(size=(3, 32)).astype(np.float32)
        matrix, factor = items[name], float(items[factor_name(name)][0])
        for row, found in zip(x, reference.product(x, name, bias), strict=True):
            rounded = [max(-127, min(127, int(np.rint(np.float32(value) * np.float32(factor))))) for value in row]
            for column, value in enumerate(found):
                total = sum(one * int(other) for one, other in zip(rounded, matrix.values[column], strict=True))
                added = float(items[bias][0, column]) if bias else 0.0
                assert value == pytest.approx(total / (factor * float(matrix.factor)) + added, abs=1e-4)


def test_an_output_of_the_longest_length_has_logits_for_its_end(exported: tuple[Path, FirefoxReport]) -> None:
    reference = Reference(read_items((exported[0] / MODEL).read_bytes(), "model.bin"), "model.bin")
    ((row, logits),) = reference.logits([[5, 6]], [[5] * LONGEST])
    assert (row, logits.shape) == (0, (LONGEST + 1, reference.size))


def test_what_would_saturate_is_spread_or_has_seven_bits() -> None:
    """127 * 120 twice, and 100 more for each activation, pass 32767 from activations of 12 on."""
    values = np.array([[120, 120, 0, 0], [5, -120, 120, -120]], dtype=np.int8)
    assert unsaturated(np.array([[100.0, -100.0, 127.0, 127.0]], dtype=np.float32), values) == 1.0
    scale = unsaturated(np.array([[100.0, 100.0, 0.0, 0.0], [0.0, 0.0, 127.0, -127.0]], dtype=np.float32), values)
    assert 120 * 2 * (127 + round(100 * scale)) <= 32767 < 120 * 2 * (127 + 100)
    assert scale == pytest.approx((32767 - 127.5 * 240) / 24000)
    negative = unsaturated(np.array([[100.0, 100.0, 0.0, 0.0]], dtype=np.float32), -values)
    assert negative == scale
    assert unsaturated(np.full((1, 4), 127.0, np.float32), np.full((2, 4), 64, np.int8)) == 1.0


@pytest.fixture(scope="module")
def fixed(student: Student, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, FirefoxReport]:
    """A student that learned with fixed factors, its export, and the comparison of both."""
    folder = tmp_path_factory.mktemp("fixed")
    data = {name: getattr(headway.load_recipe(student.run / "recipe.yaml").data, name) for name in ("train", "dev")}
    recipe = {
        "data": {name: corpus.model_dump(mode="json") for name, corpus in data.items()},
        "optimizer": {"learning_rate": 1e-3, "schedule": "linear", "warmup": 0},
        "training": {
            "from": str(student.run), "updates": 30, "checkpoint_every": 30, "batch_tokens": 768,
            "int8_rounding": "fixed",
        },
    }  # fmt: skip
    headway.train(recipe, folder / "run")
    report = export_run("firefox", folder / "run", ExportOptions(output=folder / "export"), {})
    assert isinstance(report, FirefoxReport)
    return folder / "run", folder / "export", report


def test_a_run_with_fixed_factors_is_what_its_integers_compute(fixed: tuple[Path, Path, FirefoxReport]) -> None:
    run, folder, report = fixed
    assert report.share("int8", "run") >= 0.98
    assert report.scores["BLEU"]["run"] > 40
    items, model = read_items((folder / MODEL).read_bytes(), MODEL), open_run(run).model
    weights = dict(model.named_parameters())
    for weight, matrix, factors in (
        ("encoder.0.feed_forward.inner", "encoder_l1_ffn_W1", "encoder.0.feed_forward.inner"),
        ("source_embedding.tokens", "Wemb", "source_embedding.tokens"),
    ):
        fixed_range = model.get_submodule(f"{factors}.input_range")
        assert items[factor_name(matrix)][0] == pytest.approx(127 / float(fixed_range.largest))
        found, stored = items[matrix].floats, weights[f"{weight}.weight"].detach().numpy()
        rows = stored[[EOS, UNKNOWN, *range(4, len(stored))]] if matrix == "Wemb" else stored
        np.testing.assert_allclose(found[: len(rows)], rows, atol=1e-6)
    for name, cause in report.causes.items():
        assert cause.equal == 1.0 or name != "weights"
    assert report.causes["weights"].deviation == pytest.approx(0, abs=1e-5)


def test_formats_of_floats_export_the_twin_of_a_run_with_fixed_factors(
    fixed: tuple[Path, Path, FirefoxReport], tmp_path: Path
) -> None:
    report = export_run("marian", fixed[0], ExportOptions(output=tmp_path / "marian"), {})
    assert report.passed


def test_each_cause_is_counted_and_predicted_alone(
    student: Student, exported: tuple[Path, FirefoxReport], fixed: tuple[Path, Path, FirefoxReport]
) -> None:
    report = exported[1]
    assert report.causes.keys() == {"weights", "activations", "both"}
    for cause in report.causes.values():
        assert cause.predicted is not None
        assert abs(cause.equal - cause.predicted) < 0.15
    deviations = {name: cause.deviation for name, cause in report.causes.items()}
    assert 0 < max(deviations["weights"], deviations["activations"]) < 1.5 * deviations["both"]
    stored = json.loads((exported[0] / "parity.json").read_text(encoding="utf-8"))
    assert stored["causes"]["both"] == report.causes["both"]._asdict()
    assert stored["shares"]["floats equal to run"] == report.twin / report.lines >= 0.98
    assert " predicted, e = " in report.text()


def test_gaps_are_those_of_the_two_best_logits(student: Student, exported: tuple[Path, FirefoxReport]) -> None:
    """The logits of forced outputs are those of the run, and a prediction follows from them."""
    run, exporter = open_run(student.run), FirefoxExporter()
    reference = exporter.reference(exported[0], run)
    floats = student_items(dict(run.model.named_parameters()), run.recipe.model.heads)[1]
    lines = [run.source.encode(f"{one} {other}").values for one, other in pairwise(WORDS)]
    sources = [[id - 2 for id in line] for line in lines]
    found = rounding_causes(reference, floats, sources)
    gaps = []
    for line, written in zip(lines, found.floats, strict=True):
        target = np.array([id + 2 for id in written.ids], dtype=np.int64)
        logits = run.model(collate([np.asarray(line)], [target])).logits[0][
            :, [EOS, UNKNOWN, *range(4, run.target.size)]
        ]
        first, second = logits.topk(2).values.T
        gaps.append((first - second).detach().numpy())
    assert found.gap == pytest.approx(np.median(np.concatenate(gaps)), rel=1e-3)
    both = found.causes["both"]
    stays = [math.prod(NormalDist().cdf(g / both.deviation) for g in each.tolist()) for each in gaps]
    assert both.predicted == pytest.approx(np.mean(stays), rel=1e-3)


def test_matrices_whose_sums_pass_16_bits_are_named(fixed: tuple[Path, Path, FirefoxReport]) -> None:
    run, folder, _ = fixed
    items, source = read_items((folder / MODEL).read_bytes(), MODEL), open_run(run).source
    sources = [[id - 2 for id in source.encode(word).values] for word in WORDS]
    before, name = saturating(items, sources), "encoder_l1_ffn_W1"
    assert name not in before
    items[name] = Quantized(np.full_like(items[name].values, 127), items[name].factor)
    items[factor_name(name)] = items[factor_name(name)] * 9
    assert name in saturating(items, sources)


def test_a_shortlist_holds_the_engine_to_the_linked_tokens(student: Student, tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate")
    given = {"links": student.links, "shortlist_first": 4, "shortlist_best": 2}
    report = export_run("firefox", student.run, ExportOptions(output=tmp_path / "export"), given)
    assert isinstance(report, FirefoxReport)
    assert report.share("engine", "int8") >= 0.98
    run = open_run(student.run)
    size = -(-(run.source.size - 2) // 8) * 8
    lists = read_shortlist((tmp_path / "export" / LISTS).read_bytes(), size, LISTS)
    assert (lists.first, lists.best) == (4, 2)
    own = {id - 2 for word in WORDS for id in run.target.encode(word[::-1]).values}
    assert set(lists.ids.tolist()) <= own | {END}
    assert "shortlist=" in (tmp_path / "export" / "README.md").read_text(encoding="utf-8")
    # Lists without a target token of the pairs: run and engine part, engine and reference do not.
    other = tmp_path / "other.txt"
    other.write_text("\n" * 540, encoding="utf-8")
    report = export_run("firefox", student.run, ExportOptions(output=tmp_path / "empty"), given | {"links": other})
    assert isinstance(report, FirefoxReport)
    assert report.share("engine", "run") < 0.5
    assert report.causes["shortlist"].equal < 0.5 < report.causes["both"].equal
    assert report.share("engine", "int8") >= 0.9
    assert not report.passed
    assert all({"run", "int8", "engine", "source", "line"} == set(each) for each in report.differing)
    assert f"line {report.differing[-1]['line']}: " in report.text()


def test_two_embeddings_may_have_one_vocabulary_whose_source_pieces_are_allowed(
    student: Student, tmp_path: Path
) -> None:
    pytest.importorskip("fxtranslate")
    stored = open_run(student.run).loaded()
    section = model_section(stored.recipe.model.model_dump(mode="json") | {"tied": "target"})
    model, weights = build_model(section, stored.source.size, stored.source.size, True), stored.model.state_dict()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name])
    recipe = stored.recipe.model_copy(update={"model": section})
    run: Any = SimpleNamespace(source=stored.source, target=stored.target, model=model, recipe=recipe, path=None)
    exporter = FirefoxExporter(FirefoxOptions(links=student.links, shortlist_first=4, shortlist_best=1))
    exporter.write(run, tmp_path / "export")
    files = files_of(tmp_path / "export")
    assert files.keys() == {"model", "vocab", "lex"}
    assert {"encoder_Wemb", "decoder_Wemb"} <= read_items(files["model"], MODEL).keys()
    lines = [f"{one} {other} {one}" for one in WORDS for other in WORDS[:3]]
    answers = exporter.open(tmp_path / "export", run)(lines, exporter.search(run, None, 0))
    engine = translator_of(files)
    assert sum(engine.translate(line) == best.text for line, (best,) in zip(lines, answers, strict=True)) >= 35


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0-0\n", "links are of all pairs"),
        ("0-9\n" * 540, "do not have"),
        ("0+0\n" * 540, "no link"),
        ("1-1\n" * 540, "links_from 1"),
    ],
)
def test_links_of_other_pairs_are_refused(student: Student, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "links.txt").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        export_run("firefox", student.run, ExportOptions(output=tmp_path / "export"), {"links": tmp_path / "links.txt"})
    assert not (tmp_path / "export").exists()


def test_links_that_a_store_lacks_are_told(student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned = list[str]()
    monkeypatch.setattr("headway.parses.links.warn", warned.append)
    run = open_run(student.run)
    links = LinksConfig(kind="pharaoh", file=student.links, folder=tmp_path)
    data = run.recipe.data.model_copy(update={"links": links})
    run.recipe = run.recipe.model_copy(update={"data": data})
    annotate_links(run.recipe)
    FirefoxExporter().write(run, tmp_path / "whole")
    assert not warned
    store = store_of_links(run.recipe.data.train, links)
    header, *lines = store.read_text(encoding="utf-8").splitlines(keepends=True)
    store.write_text(header + "".join(lines[9:]), encoding="utf-8")
    FirefoxExporter().write(run, tmp_path / "part")
    assert [" pairs have none in " in each for each in warned] == [True]
    store.write_text(header, encoding="utf-8")
    with pytest.raises(UserError, match="none of the pairs has links here"):
        FirefoxExporter().write(run, tmp_path / "none")


def test_without_the_engine_the_integers_alone_are_compared(
    student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = list[str]()
    monkeypatch.setattr("headway.export.firefox_export.warn", warned.append)
    monkeypatch.setitem(sys.modules, "fxtranslate", None)
    monkeypatch.setattr("headway.export.firefox_export.find_spec", lambda name: None)
    report = export_run("firefox", student.run, ExportOptions(output=tmp_path / "export", sentences=20), {})
    assert isinstance(report, FirefoxReport)
    assert (report.engine, report.scores["BLEU"].keys()) == (None, {"run", "int8"})
    assert [each.startswith("fxtranslate is not installed") for each in warned] == [True]


def test_an_export_is_imported_and_exported_again_with_the_same_integers(
    student: Student, exported: tuple[Path, FirefoxReport], run_headway: Command, tmp_path: Path
) -> None:
    places = exported[0] / MODEL, exported[0] / VOCABULARY
    code, _, err = run_headway("import", "firefox", *places, "--output", tmp_path / "run")
    assert code == 0, err
    imported = open_run(tmp_path / "run")
    assert (imported.recipe.text.source.language, imported.recipe.text.target.language) == ("en", "de")
    lines = [" ".join(WORDS[start : start + 3]) for start in range(9)]
    said = [prediction.text for prediction in headway.load(tmp_path / "run").predict(lines)]
    expected = [prediction.text for prediction in headway.load(student.run).predict(lines, beam=1)]
    assert sum(one == other for one, other in zip(said, expected, strict=True)) >= 8
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    options = ExportOptions(output=tmp_path / "again", input=tmp_path / "lines.txt")
    export_run("firefox", tmp_path / "run", options, {})
    for place in places:
        assert (tmp_path / "again" / place.name).read_bytes() == place.read_bytes(), place.name


def test_a_file_that_says_sizes_alone_is_what_the_engine_computes(
    exported: tuple[Path, FirefoxReport], tmp_path: Path
) -> None:
    items = read_items((exported[0] / MODEL).read_bytes(), MODEL)
    options = student_options(items, MODEL)
    sizes = ("dim-emb", "transformer-heads", "enc-depth", "dec-depth", "transformer-dim-ffn", "dim-vocabs")
    items[CONFIG] = yaml.safe_dump({key: options[key] for key in sizes}).encode() + b"\0"
    (tmp_path / MODEL).write_bytes(write_items(items))
    runs = []
    for folder in (exported[0], tmp_path):
        runs.append(tmp_path / f"run{len(runs)}")
        import_run(["firefox", str(folder / MODEL), str(exported[0] / VOCABULARY)], runs[-1])
    first, second = (open_run(run).recipe.model for run in runs)
    assert first == second


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "pre"}, "it is no model such as the presets firefox-tiny and student; it needs model.norm: post"),
        ({"decoder": {"layers": 1, "mixer": "attention"}}, "it needs model.decoder.mixer: ssru"),
        ({"first_input": "bos"}, 'it needs model.first_input: "zero"'),
        ({"position": {"kind": "sinusoidal", "arrangement": "interleaved"}}, '"arrangement": "halves"}'),
        ({"norm_kind": {"kind": "layer", "eps": 1e-5}}, 'model.norm_kind: {"kind": "layer", "eps": 1e-06}'),
        ({"dim": 24}, "it needs model.dim: a multiple of 16"),
        ({"feed_forward": 40}, "it needs model.feed_forward: a multiple of 16"),
        ({"tied": "none"}, "it needs model.tied: target, or all if the vocabulary is shared"),
        ({"output_bias": False}, "it needs model.output_bias: true"),
        ({"activation": "gelu"}, "it needs model.activation: relu"),
        ({"bias": False}, "it needs model.bias: true"),
        ({"head_dim": 4}, "it needs model.head_dim: 8"),
        ({"encoder": {"layers": 1, "mixer": "local"}}, "it needs model.encoder.mixer: attention, in all layers"),
        ({"encoder": {"layers": 1, "canon": "A"}}, "it needs model.encoder without canon"),
        ({"kind": "decoder_only"}, "it needs model.kind: transformer"),
    ],
)
def test_a_model_that_is_no_student_is_refused_by_the_key(
    student: Student, changes: dict[str, object], message: str
) -> None:
    stored = open_run(student.run)
    sizes = {"dim": 32, "feed_forward": 64, "heads": 4}
    section = sizes | ({} if "kind" in changes else {"preset": "student", "encoder": {"layers": 1}}) | changes
    checked = model_section(section)
    model = build_model(checked, stored.source.size, stored.source.size, True)
    recipe = stored.recipe.model_copy(update={"model": checked})
    run: Any = SimpleNamespace(source=stored.source, target=stored.target, model=model, recipe=recipe)
    assert message in str(FirefoxExporter().refusal(run))
    assert FirefoxExporter().refusal(stored.loaded()) is None


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"vocabulary": {"kind": "bpe"}}, "vocabulary.kind: unigram"),
        (
            {"vocabulary": {}, "text": {"source": {"normalise": ["lower"]}}},
            "text.source without normalise and segment",
        ),
    ],
)
def test_text_that_the_engine_cannot_cut_is_refused(
    student: Student, sections: dict[str, dict[str, object]], message: str
) -> None:
    vocabulary = VocabularyConfig.model_validate(
        {"kind": "unigram", "size": 34, "shared": True} | sections["vocabulary"]
    )
    pairs = [(" ".join(WORDS), " ".join(word[::-1] for word in WORDS))] * 9
    source, target = train_processors(TextConfig.model_validate(sections.get("text", {})), vocabulary, lambda: pairs)
    stored = open_run(student.run)
    run: Any = SimpleNamespace(source=source, target=target, model=stored.loaded().model, recipe=stored.recipe)
    assert message in str(FirefoxExporter().refusal(run))


def test_the_engine_has_no_beam(student: Student, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the engine has no beam"):
        export_run("firefox", student.run, ExportOptions(output=tmp_path / "export", beam=4), {})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("vocabulary", "is not that of such a model"),
        ("name", "no weights of these names"),
        ("missing", "is not that of such a model"),
        ("option", "headway computes no such model of Marian"),
        ("cut", "damaged"),
        ("two", "one model is imported at a time"),
        ("table", "with SentencePiece models"),
        ("lists", "another vocabulary"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    exported: tuple[Path, FirefoxReport], tmp_path: Path, damage: str, message: str
) -> None:
    folder = shutil.copytree(exported[0], tmp_path / "files")
    items, places = read_items((folder / MODEL).read_bytes(), MODEL), [folder / MODEL, folder / VOCABULARY]
    if damage == "vocabulary":
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(WORDS * 9), model_writer=model, vocab_size=40, model_type="unigram", eos_id=0,
            unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2, hard_vocab_limit=False,
        )  # fmt: skip
        (folder / VOCABULARY).write_bytes(model.getvalue())
    elif damage == "name":
        items["encoder_l1_self_W9"] = quantized(np.eye(32, dtype=np.float32))
    elif damage == "missing":
        del items["encoder_l1_self_Wq"]
    elif damage == "option":
        items["special:model.yml"] = items["special:model.yml"].replace(b"dec-cell: ssru", b"dec-cell: gru")
    elif damage == "two":
        places.append(shutil.copy(folder / MODEL, folder / "other.bin"))
    elif damage == "table":
        places.append(folder / "vocab.yml")
    elif damage == "lists":
        (folder / LISTS).write_bytes(write_shortlist(shortlist_of([(1, 1)], 8, 2, 2)))
        places.append(folder / LISTS)
    content = write_items(items)
    (folder / MODEL).write_bytes(content[:-9] if damage == "cut" else content)
    with pytest.raises(UserError, match=message):
        import_run(["firefox", *map(str, places)], tmp_path / "run")
    assert not (tmp_path / "run").exists()
