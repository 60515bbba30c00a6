"""Packages for Argos Translate hold what it reads, and its own code installs them and gives the run's outputs."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import headway
from tests.conftest import Command, Reversal

pytest.importorskip("ctranslate2")

ARGOS = Path(sys.prefix) / "argos"  # where `make test-all` puts it
TRANSLATE = """
import json, sys
from argostranslate import package, translate

package.install_from_path(sys.argv[1])
translation = translate.get_translation_from_codes(sys.argv[2], sys.argv[3])
for line in sys.stdin:
    print(json.dumps(translation.translate(line.rstrip("\\n"))))
"""


@pytest.fixture(scope="module")
def package(reversal: Reversal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the run, with a sentence model that leaves every text whole."""
    folder = tmp_path_factory.mktemp("argos")
    write_whole_text_model(folder / "whole.onnx")
    from headway.export.export_options import ExportOptions
    from headway.export.exporting import export_run

    given = {"sentence_model": folder / "whole.onnx", "package_version": "1.2"}
    report = export_run("argos", reversal.run, ExportOptions(output=folder / "package"), given)
    assert (report.equal, report.lines) == (16, 16)
    return folder / "package" / "translate-en_en-1_2.argosmodel"


def write_whole_text_model(file: Path) -> None:
    """A model in the form of MiniSBD that ends no sentence before the end of the text."""
    onnx = pytest.importorskip("onnx")
    node, value, kinds = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto
    graph = onnx.helper.make_graph(
        [
            node("Shape", ["units"], ["shape"]),
            node("Concat", ["shape", "classes"], ["size"], axis=0),
            node("ConstantOfShape", ["size"], ["zeros"]),
            node("Add", ["zeros", "inside"], ["scores"]),
        ],
        "whole",
        [value("units", kinds.INT64, ["b", "n"]), value("features", kinds.FLOAT, ["b", "n", "f"])],
        [value("scores", kinds.FLOAT, ["b", "n", 5])],
        [
            onnx.numpy_helper.from_array(np.array([5]), "classes"),
            onnx.numpy_helper.from_array(np.array([1, 0, 0, 0, 0], np.float32), "inside"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    units = ["<PAD>", "<UNK>"]
    vocabulary = {"lang": "en", "idx": 0, "cutoff": 0, "lower": False, "_id2unit": units}
    vocabulary |= {"_unit2id": {unit: id for id, unit in enumerate(units)}}
    settings = {"no_ssplit": True, "feat_funcs": []}
    properties = {"lang_code": "en", "config": json.dumps(settings), "vocab": json.dumps(vocabulary), "lexicon": "null"}
    onnx.helper.set_model_props(model, properties)
    onnx.save(model, file)


def test_a_package_holds_what_its_reader_looks_for(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
        metadata = json.loads(archive.read("translate-en_en-1_2/metadata.json"))
        card = archive.read("translate-en_en-1_2/README.md").decode()
    assert {"model/model.bin", "sentencepiece.model", "metadata.json", "README.md", "minisbd/whole.onnx"} <= names
    assert (metadata["from_code"], metadata["from_name"], metadata["package_version"]) == ("en", "English", "1.2")
    assert 'package.install_from_path("translate-en_en-1_2.argosmodel")' in card
    assert "16 of 16 best outputs" in card


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["package_version=one"], "package_version: string should match"),
        (["sentence_model=nowhere.onnx"], "sentence_model: there is no such file"),
    ],
)
def test_mistakes(run_headway: Command, reversal: Reversal, tmp_path: Path, arguments: list[str], message: str) -> None:
    code, _, err = run_headway("export", "argos", reversal.run, "--output", tmp_path / "package", *arguments)
    assert (code, message in err) == (2, True), err
    assert not (tmp_path / "package").exists()


@pytest.mark.slow
@pytest.mark.skipif(not ARGOS.is_dir(), reason="argostranslate is not installed: make test-all")
def test_argos_translate_installs_it_and_gives_the_runs_outputs(
    reversal: Reversal, package: Path, tmp_path: Path
) -> None:
    words = [word for word in reversal.words if len(word) == 4][:64]
    environment = {"HOME": str(tmp_path), "ARGOS_PACKAGES_DIR": str(tmp_path / "packages"), "PYTHONPATH": str(ARGOS)}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRANSLATE, str(package), "en", "en"],
        input="".join(f"{word}\n" for word in words), capture_output=True, text=True, timeout=200,
        env={**os.environ, **environment, "OMP_NUM_THREADS": "1", "ARGOS_COMPUTE_TYPE": "float32"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    outputs = [json.loads(line) for line in ended.stdout.splitlines()]
    own = headway.load(reversal.run, device="cpu").predict(words)
    assert outputs == [each.text for each in own] == [word[::-1] for word in words]
