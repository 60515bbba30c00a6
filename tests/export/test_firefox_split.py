"""Students with two vocabularies: the engine takes their files, and an import gives them back, byte for byte."""

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import headway
from headway.core.errors import UserError
from headway.export.export_options import ExportOptions, FirefoxOptions
from headway.export.exporting import export_run
from headway.export.firefox_export import FirefoxExporter, FirefoxReport, engine_ids, translator_of
from headway.export.int8_reference import saturating
from headway.importing.importing import import_run
from headway.processing.firefox_files import files_of
from headway.processing.marian_binary import Quantized, read_items, write_items
from headway.processing.shortlist import read_shortlist
from headway.processing.text.text_processor import TextConfig
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tasks.student import engine_rows, student_options
from tests.export.test_firefox import RECIPE, WORDS
from tests.serving.record_server import serving_records
from tests.shared_runs import shared_run

MODEL, SOURCE, TARGET = "model.enja.intgemm.alphas.bin", "srcvocab.enja.spm", "trgvocab.enja.spm"
LISTS, SIDES = "lex.4.2.enja.s2t.bin", ("source", "target")
SPLIT: dict[str, Any] = RECIPE | {
    "text": {"source": {"language": "en"}, "target": {"language": "ja"}},
    "vocabulary": {
        "kind": "unigram", "size": 286, "byte_fallback": True, "split_digits": True,
        "target": {"kind": "unigram", "size": 36},
    },
    "model": RECIPE["model"] | {"preset": "firefox-tiny"},
}  # fmt: skip
PROVENANCE = {
    "data": {"files": {"train.tsv": "0" * 64}, "licence": "MPL-2.0"}, "filter": {"kept": 540},
    "teacher": {"name": "a system", "licence": None}, "outputs": {"kept": 540, "read": 540, "sha256": "0" * 64},
}  # fmt: skip


def write_split(folder: Path) -> Path:
    drawn = random.Random(1)
    lines = [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 5))) for _ in range(600)]
    for name, part in (("dev", lines[:60]), ("train", lines[60:])):
        rows = "".join(f"{line}\t{' '.join(word[::-1].upper() for word in line.split())}\n" for line in part)
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    links = "".join(" ".join(f"{place}-{place}" for place in range(len(line.split()))) + "\n" for line in lines[60:])
    (folder / "links.txt").write_text(links, encoding="utf-8")
    (folder / "split.yaml").write_text(yaml.safe_dump(SPLIT), encoding="utf-8")
    return folder / "split.yaml"


@pytest.fixture(scope="session")
def split(pytestconfig: pytest.Config) -> Path:
    return shared_run(pytestconfig.cache.mkdir("runs"), "split", write_split)


@pytest.fixture(scope="module")
def exported(split: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FirefoxReport]:
    folder = tmp_path_factory.mktemp("split") / "export"
    run = RunFolder(Path(shutil.copytree(split / "run", folder.with_name("run"))))
    run.write_manifest({"provenance": PROVENANCE})
    given = {"links": split / "links.txt", "shortlist_first": 4, "shortlist_best": 2}
    report = export_run("firefox", run.path, ExportOptions(output=folder), given)
    assert isinstance(report, FirefoxReport)
    return folder, report


def test_engine_and_integers_agree_with_two_vocabularies_and_a_shortlist(exported: tuple[Path, FirefoxReport]) -> None:
    pytest.importorskip("fxtranslate")
    folder, report = exported
    assert report.share("engine", "int8") >= 0.98
    assert report.scores["BLEU"]["engine"] > 20, "and it writes words of the target"
    assert {MODEL, SOURCE, TARGET, LISTS} <= {path.name for path in folder.iterdir()}
    assert not [*folder.glob("vocab.*")]


def test_each_side_has_its_own_size_and_names(split: Path, exported: tuple[Path, FirefoxReport]) -> None:
    items = read_items((exported[0] / MODEL).read_bytes(), MODEL)
    run = open_run(split / "run")
    sizes = [len(engine_rows(processor.size)) for processor in (run.source, run.target)]
    assert sizes == [288, 40]
    assert [items[name].values.shape for name in ("encoder_Wemb", "decoder_Wemb")] == [(size, 32) for size in sizes]
    assert items["decoder_ff_logit_out_b"].shape == (1, sizes[1])
    options = student_options(items, MODEL)
    assert (options["dim-vocabs"], options["tied-embeddings"], options["tied-embeddings-all"]) == (sizes, True, False)
    assert "none_QuantMultA" in items
    assert not {"Wemb", "encoder_Wemb_QuantMultA", "decoder_Wemb_QuantMultA"} & items.keys()


def test_source_pieces_are_not_allowed_by_themselves(exported: tuple[Path, FirefoxReport]) -> None:
    content = (exported[0] / LISTS).read_bytes()
    lists = read_shortlist(content, 288, LISTS, targets=40)
    assert lists.allowed([31, 0], 40, shared=True)[31]
    assert not lists.allowed([31, 0], 40, shared=False)[31]
    with pytest.raises(UserError, match="another vocabulary"):
        read_shortlist(content, 40, LISTS, targets=40)
    with pytest.raises(UserError, match="another vocabulary of the target"):
        read_shortlist(content, 288, LISTS, targets=8)


def test_the_engine_reads_unknown_characters_as_the_run_does(split: Path, exported: tuple[Path, FirefoxReport]) -> None:
    pytest.importorskip("fxtranslate")
    lines = [f"{word} 日本 {word} 😀é" for word in WORDS]
    run, engine = open_run(split / "run"), translator_of(files_of(exported[0]))
    ids = [[engine_ids(run.source)[id] for id in run.source.encode(line).values] for line in lines]
    rows = engine_rows(run.target.size)
    expected = (
        FirefoxExporter(FirefoxOptions(shortlist_first=4, shortlist_best=2)).reference(exported[0], run).translate(ids)
    )
    said = [run.target.decode([rows[id] for id in each.ids]) for each in expected]
    assert [engine.translate(line) for line in lines] == said


def test_an_import_has_the_same_integers_and_its_export_the_same_bytes(
    split: Path, exported: tuple[Path, FirefoxReport], tmp_path: Path
) -> None:
    folder = exported[0]
    names = (TARGET, MODEL, "metadata.json", SOURCE, LISTS)
    import_run(["firefox", *(str(folder / name) for name in names)], tmp_path / "run")
    imported = open_run(tmp_path / "run")
    assert (imported.recipe.text.source.language, imported.recipe.text.target.language) == ("en", "ja")
    assert (imported.recipe.model.tied, imported.recipe.vocabulary.shared) == ("target", False)
    lines = [" ".join(WORDS[start : start + 3]) for start in range(9)]
    said = [prediction.text for prediction in headway.load(tmp_path / "run").predict(lines)]
    expected = [prediction.text for prediction in headway.load(split / "run").predict(lines, beam=1)]
    assert sum(one == other for one, other in zip(said, expected, strict=True)) >= 8
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    options = ExportOptions(output=tmp_path / "again", input=tmp_path / "lines.txt")
    export_run("firefox", tmp_path / "run", options, {})
    before, after = (files_in(each) for each in (folder, tmp_path / "again"))
    changed = {"README.md", "parity.json", "registry.json", "remote-settings/records.json"}
    assert {name for name, content in after.items() if before.get(name) != content} <= changed
    assert before.keys() == after.keys()
    registries = [json.loads(files["registry.json"])["files"] for files in (before, after)]
    records = [json.loads(files["remote-settings/records.json"])["data"] for files in (before, after)]
    assert registries[0] == registries[1]
    for one, other in zip(*records, strict=True):
        assert {key for key in one if one[key] != other[key]} <= {"schema", "last_modified"}


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_licences_of_data_and_teacher_are_in_the_metadata_and_stay_with_an_import(
    exported: tuple[Path, FirefoxReport], tmp_path: Path
) -> None:
    folder = exported[0]
    described = json.loads((folder / "metadata.json").read_text("utf-8"))
    assert described["licences"] == {"data": "MPL-2.0", "teacher": None}
    places = [str(folder / name) for name in (MODEL, SOURCE, TARGET, "metadata.json")]
    import_run(["firefox", *places], tmp_path / "run")
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert "- Data: MPL-2.0" in card
    assert "- Teacher: its licence is not stated" in card
    (tmp_path / "metadata.json").write_text(json.dumps(described | {"hash": "0" * 64}), encoding="utf-8")
    with pytest.raises(UserError, match=r"another hash than in its metadata; received '?\w{64}'?; allowed: '?0{64}"):
        import_run(["firefox", *places[:3], str(tmp_path / "metadata.json")], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_export_after_further_training_measures_anew(
    split: Path, exported: tuple[Path, FirefoxReport], tmp_path: Path
) -> None:
    folder = exported[0]
    import_run(["firefox", *(str(folder / name) for name in (MODEL, SOURCE, TARGET))], tmp_path / "run")
    imported = open_run(tmp_path / "run").loaded()
    with np.errstate(all="raise"):
        imported.model.get_parameter("encoder.0.feed_forward.inner.weight").data[0, 0] += 1e-3
    with pytest.raises(UserError, match="no lines to measure activations on"):
        FirefoxExporter().write(imported, tmp_path / "again")


def test_fxtranslate_takes_the_files_by_the_served_records(
    split: Path, exported: tuple[Path, FirefoxReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fxtranslate = pytest.importorskip("fxtranslate")
    pytest.importorskip("uvicorn")
    lines = [" ".join(WORDS[start : start + 3]) for start in range(9)]
    folder, files = exported[0], files_of(exported[0])
    engine = translator_of({part: file for part, file in files.items() if part != "lex"})  # which it does not load
    cache = tmp_path / "cache" / "en-ja"
    cache.mkdir(parents=True)
    for name in (MODEL, SOURCE, TARGET, LISTS):
        shutil.copy(folder / name, cache)
    with serving_records(folder) as address:
        monkeypatch.setenv("FXTRANSLATE_RECORDS_URL", f"{address}/records")
        body = fxtranslate.discovery.fetch_records_body()
        assert fxtranslate.discovery.model_pairs(body) == [("en", "ja")]
        found = fxtranslate.Translator.load("en", "ja", str(tmp_path / "cache"))
        assert [found.translate(line) for line in lines] == [engine.translate(line) for line in lines]
        for record in json.loads(body)["data"]:
            attached = (folder / "remote-settings" / record["attachment"]["location"]).read_bytes()
            whole = fxtranslate.discovery.verify_and_decompress(attached, record["decompressedHash"])
            assert whole == (folder / record["name"]).read_bytes()


def test_an_embedding_that_is_only_read_has_no_sums(exported: tuple[Path, FirefoxReport]) -> None:
    items = read_items((exported[0] / MODEL).read_bytes(), MODEL)
    wide = items | {"none_QuantMultA": np.array([1e6], np.float32)}
    assert "encoder_Wemb" not in saturating(items, [[4, 5, 6]])
    assert set(saturating(wide, [[4, 5, 6]])) - {"decoder_Wemb"} == set(saturating(items, [[4, 5, 6]]))


def test_the_metadata_describe_the_model(exported: tuple[Path, FirefoxReport]) -> None:
    described = json.loads((exported[0] / "metadata.json").read_text("utf-8"))
    content = (exported[0] / MODEL).read_bytes()
    items = read_items(content, MODEL)
    assert (described["byteSize"], described["hash"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert (described["sourceLanguage"], described["targetLanguage"], described["version"]) == ("en", "ja", "3.0")
    assert described["modelConfig"] == student_options(items, MODEL)
    sizes = described["modelStatistics"]
    assert sizes["embeddings_bytes"] == (288 + 40) * 32
    assert sizes["parameters"] == sum(
        sizes[key] for key in ("encoder_parameters", "decoder_parameters", "embeddings_bytes")
    )
    assert sizes["encoder_bytes"] == 3 * 32 * 32 + 32 * 32 + 2 * 32 * 64 + 4 * (5 * 32 + 64 + 4 * 32)


@pytest.mark.parametrize(("languages", "told"), [(("es", "ast"), 1), (("en", "ast"), 0), (("ja", "en"), 0)])
def test_pairs_that_no_firefox_asks_for_are_named(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, languages: tuple[str, str], told: int
) -> None:
    said = list[str]()
    run, exporter = open_run(split / "run"), FirefoxExporter()
    text = TextConfig.model_validate({side: {"language": code} for side, code in zip(SIDES, languages, strict=True)})
    run.recipe = run.recipe.model_copy(update={"text": text})
    exporter.write(run, tmp_path / "export")
    monkeypatch.setattr("headway.export.firefox_export.say", said.append)
    exporter.finish(run, tmp_path / "export", "")
    assert [line.startswith("Firefox asks for pairs with English alone") for line in said] == [True] * told
    places = [tmp_path / "export" / name for part, name in exporter.names(run).items() if part != "lex"]
    import_run(["firefox", *map(str, places)], tmp_path / "run")
    text = open_run(tmp_path / "run").recipe.text
    assert (text.source.language, text.target.language) == (("und", "und") if told else languages)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((MODEL, SOURCE), "these files of a model lack trgvocab; received "),
        ((MODEL, TARGET), "these files of a model lack srcvocab; received "),
        ((MODEL, SOURCE, TARGET, "vocab.enja.spm"), "a vocabulary of both sides beside one of a side"),
    ],
)
def test_vocabularies_that_are_not_those_of_one_model(
    exported: tuple[Path, FirefoxReport], tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        import_run(["firefox", *(str(exported[0] / name) for name in names)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_engine_reads_the_output_factor_by_the_name_that_is_written(exported: tuple[Path, FirefoxReport]) -> None:
    pytest.importorskip("fxtranslate")
    files = files_of(exported[0])
    lines = [" ".join(WORDS[start : start + 3]) for start in range(9)]
    items = read_items(files["model"], MODEL)
    other = items | {"none_QuantMultA": items["none_QuantMultA"] * np.float32(1000)}
    said, wrong = (
        [translator_of(files | {"model": write_items(each)}).translate(line) for line in lines]
        for each in (items, other)
    )
    assert all(isinstance(items[name], Quantized) for name in ("encoder_Wemb", "decoder_Wemb"))
    assert said != wrong
