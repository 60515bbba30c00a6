"""Exports: every format is loaded by its own library and answers as the run does; what cannot be is refused."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
import yaml

import headway
from headway.core import errors
from headway.core.errors import UserError
from headway.export.export_options import ExportOptions
from headway.export.exporter import Answer, Search
from headway.export.exporting import export_run, formats_of
from headway.export.huggingface_export import _is_linear, marian_refusal, write_marian
from headway.export.parity import answering_of, compare, longest_output, parity_lines
from headway.runs.run import open_run
from headway.tensors.batch import EOS, collate
from tests.conftest import Command, Reversal
from tests.models.encoders import write_encoder

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def lines(reversal: Reversal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a quarter of the longest words of the language."""
    file = tmp_path_factory.mktemp("lines") / "words.txt"
    longest = [word for word in reversal.words if len(word) == 4][:64]
    file.write_text("".join(f"{word}\n" for word in longest), encoding="utf-8")
    return file


def changed_run(reversal: Reversal, folder: Path, **sections: dict[str, object]) -> Path:
    """A copy of the run with changes in sections of its recipe."""
    shutil.copytree(reversal.run, folder)
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    changed = {name: recipe[name] | values for name, values in sections.items()}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe | changed), encoding="utf-8")
    return folder


def test_huggingface_loads_the_folder_and_generates_the_same(
    run_headway: Command, reversal: Reversal, lines: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "marian"
    # The format and the run may stand in either order.
    code, out, _ = run_headway("export", reversal.run, "huggingface", "--output", folder, "--input", lines)
    assert (code, "64 of 64 best outputs equal" in out) == (0, True)
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(str(folder)),
        transformers.MarianMTModel.from_pretrained(str(folder)),
    )
    words = lines.read_text(encoding="utf-8").split()[:8]
    ids = model.generate(**tokenizer(words, return_tensors="pt", padding=True))
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == [word[::-1] for word in words]
    assert str(tmp_path) not in (folder / "tokenizer_config.json").read_text(encoding="utf-8")
    source = headway.load(reversal.run).source
    for text in ("ab<pad>cd", "<pad> ab"):
        assert tokenizer(text)["input_ids"] == [*source.encode(text).values, EOS], text


def test_lines_that_have_no_token_are_not_compared(reversal: Reversal, tmp_path: Path) -> None:
    """A run leaves them out; a library decodes them."""
    (tmp_path / "lines.txt").write_text("ab\n\u2581\n\nabcd\n", encoding="utf-8")
    assert parity_lines(open_run(reversal.run), tmp_path / "lines.txt", 10) == ["ab", "abcd"]


def test_lines_that_leave_no_room_for_an_output_are_not_compared(reversal: Reversal, tmp_path: Path) -> None:
    """A model that writes behind its source has learned the positions of both."""
    section = {"kind": "decoder_only", "dim": 8, "heads": 2, "feed_forward": 8, "decoder": {"layers": 1}}
    run = open_run(other_run(reversal, tmp_path / "run", **section, position="learned", max_position=12))
    (tmp_path / "lines.txt").write_text("abc\nabcdabcd\nabcdabcdab\n", encoding="utf-8")
    lines = parity_lines(run, tmp_path / "lines.txt", 10)
    assert lines == ["abc"]
    assert 0 < longest_output(run, lines) <= 12


def test_a_model_that_begins_or_counts_otherwise_is_no_marian_model(reversal: Reversal) -> None:
    run = open_run(reversal.run)
    assert marian_refusal(run) is None
    embedding = run.model.target_embedding
    embedding.zero_first = True
    assert "begins with the embedding of a token" in str(marian_refusal(run))
    embedding.zero_first, embedding.position.arrangement = False, "halves"
    assert "frequencies of arrangement interleaved" in str(marian_refusal(run))


def test_the_lengths_of_outputs_are_those_of_the_run(reversal: Reversal, tmp_path: Path) -> None:
    """Those of `generate` count the decoder's start as well."""
    run = changed_run(reversal, tmp_path / "run", decoding={"min_length": 3, "max_length": 3, "beam": 1})
    words, folder = ["ab", "abcd", "a"], tmp_path / "marian"
    export_run("huggingface", run, ExportOptions(output=folder, sentences=2), {})
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(str(folder)),
        transformers.MarianMTModel.from_pretrained(str(folder)),
    )
    ids = model.generate(**tokenizer(words, return_tensors="pt", padding=True))
    said = [prediction.text for prediction in headway.load(run).predict(words)]
    assert [len(text) for text in said] == [2, 2, 2]  # and the mark of a word's beginning
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == said


def test_sources_are_cut_where_the_run_cuts_them(reversal: Reversal, tmp_path: Path) -> None:
    folder, cut = tmp_path / "marian", {"truncate_source": 3}  # the mark of a word's beginning, and two letters
    run = changed_run(reversal, tmp_path / "run", data=cut)
    report = export_run("huggingface", run, ExportOptions(output=folder, sentences=20), {})
    assert (report.passed, report.equal) == (True, report.lines)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "The run reads the first 3 pieces of a source. Longer sources have to be cut there." in card
    run = changed_run(reversal, tmp_path / "other", data=cut | {"count": "words"})
    assert "cuts sources by tokens, not by words" in str(marian_refusal(open_run(run)))


def test_embeddings_are_scaled_where_those_of_the_run_are(reversal: Reversal, tmp_path: Path) -> None:
    for name, scale in (("scaled", None), ("plain", 1.0)):
        run = open_run(reversal.run)
        for embedding in (run.model.source_embedding, run.model.target_embedding):
            embedding.scale = scale or embedding.scale
        write_marian(run, tmp_path / name)
        theirs = transformers.MarianMTModel.from_pretrained(str(tmp_path / name)).eval()
        batch = collate([np.array([5, 6, 7])], None)
        with torch.inference_mode():
            ours = run.model.encode(batch.source, batch.source_mask).values
            memory = theirs.get_encoder()(input_ids=batch.source, attention_mask=batch.source_mask.long())[0]
        norms = [memory.norm(dim=-1), ours.norm(dim=-1)]  # Marian has the elements of a vector in another order
        torch.testing.assert_close(*norms, rtol=0, atol=1e-4)


def test_a_tokenizer_reads_as_many_tokens_as_the_run(reversal: Reversal, tmp_path: Path) -> None:
    run, folder = open_run(reversal.run), tmp_path / "marian"
    write_marian(run, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    assert tokenizer.model_max_length == run.model.longest_source() + 1 > 513
    assert len(tokenizer("abcd" * 150, truncation=True)["input_ids"]) == len(run.source.encode("abcd" * 150).values) + 1


def test_tokens_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    """Gigaword and the like have `<unk>` as a word, which is not the token for unknown words."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a b\t<unk> c\nb a\tc <unk>\n" * 8, encoding="utf-8")
    model = {"dim": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    recipe = {
        "task": "translation", "data": {"train": {"tsv": str(pairs)}, "dev": {"tsv": str(pairs)}},
        "vocabulary": {"kind": "word"}, "model": model, "optimizer": {"learning_rate": 0.01},
        "training": {"updates": 20, "checkpoint_every": 20},
    }  # fmt: skip
    headway.train(recipe, tmp_path / "run")
    run = open_run(tmp_path / "run")
    lines = ["a b", "b a"]
    report = compare("the run itself", run, answering_of(run), lines, Search(3, 4), exact=True)
    assert (report.passed, report.equal_lists) == (True, 2)
    assert report.score_difference < 1e-4


def test_scores_that_are_no_numbers_fail(reversal: Reversal) -> None:
    run = open_run(reversal.run)
    own = answering_of(run)

    def broken(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        return [[each._replace(score=float("nan")) for each in answers] for answers in own(lines, search)]

    report = compare("broken", run, broken, ["abcd"], Search(1, 9), exact=True)
    assert (report.equal, report.passed) == (1, False)


def test_the_card_says_task_data_scores_recipe_and_licence(reversal: Reversal, tmp_path: Path) -> None:
    options = ExportOptions(output=tmp_path / "model", sentences=2, licence="cc-by-4.0")
    export_run("huggingface", reversal.run, options, {})
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["license"], head["library_name"], head["pipeline_tag"]) == ("cc-by-4.0", "transformers", "translation")
    assert "| 400 | exact_match |" in card
    assert "version:headway" in card
    assert "train.tsv" in card
    assert "2 of 2 best outputs equal the run's" in card
    assert str(reversal.run.parent) not in card
    report = json.loads((tmp_path / "model" / "parity.json").read_text(encoding="utf-8"))
    assert (report["equal"], report["lines"], report["passed"]) == (2, 2, True)
    assert report["score_difference"] < 1e-4


@pytest.mark.parametrize("quantization", ["float32", "bf16", "int8"])
def test_ctranslate2_gives_the_runs_outputs_and_scores(
    run_headway: Command, reversal: Reversal, lines: Path, tmp_path: Path, quantization: str
) -> None:
    arguments = ["--output", tmp_path / "model", "--input", lines, f"quantization={quantization}", "--beam", "1"]
    code, _, _ = run_headway("export", "ctranslate2", reversal.run, *arguments)
    report = json.loads((tmp_path / "model" / "parity.json").read_text(encoding="utf-8"))
    assert code == 0
    assert report["exact"] == (quantization == "float32")
    assert report["lines"] == 64
    assert report["equal"] >= (64 if quantization == "float32" else 62)
    # Sums of products in int8 saturate on processors without VNNI, so that the score of a line has no bound there.
    if quantization != "int8":
        assert report["score_difference"] < {"float32": 1e-4, "bf16": 0.5}[quantization]
    translator = ctranslate2.Translator(str(tmp_path / "model"))
    (result,) = translator.translate_batch([["▁", *"abcd"]])
    assert result.hypotheses[0] == ["▁", *"dcba"]


def test_a_vocabulary_map_holds_the_tokens_that_attention_aligns(reversal: Reversal, tmp_path: Path) -> None:
    report = export_run("ctranslate2", reversal.run, ExportOptions(output=tmp_path / "model"), {"vocabulary_map": 2})
    rows = [row.split("\t") for row in (tmp_path / "model" / "vmap.txt").read_text(encoding="utf-8").splitlines()]
    assert rows[0][0] == ""
    assert set(rows[0][1].split()) >= {"</s>", "<unk>", *"abcd"}
    assert {source for source, _ in rows[1:]} <= {"▁", *"abcd"}
    assert all(1 <= len(targets.split()) <= 2 for _, targets in rows[1:])
    assert report.equal == report.lines


def test_differences_are_shown_and_fail(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway.export import huggingface_export

    def broken(*arguments: object, **keywords: object) -> dict[str, torch.Tensor]:
        weights = whole(*arguments, **keywords)
        weights["model.decoder.layers.0.fc1.weight"] = torch.zeros_like(weights["model.decoder.layers.0.fc1.weight"])
        return weights

    whole = huggingface_export.to_marian
    monkeypatch.setattr(huggingface_export, "to_marian", broken)
    code, out, _ = run_headway("export", "huggingface", reversal.run, "--output", tmp_path / "model")
    assert code == 1
    assert "0 of 16" in out or "best outputs equal" in out
    assert "by the run)" in out
    assert json.loads((tmp_path / "model" / "parity.json").read_text(encoding="utf-8"))["passed"] is False


HEADS = "as many heads in cross-attention as in self-attention"
CHOICE = {"kind": "dot", "choice": "hard", "estimator": "straight_through"}


def other_run(reversal: Reversal, folder: Path, **model: object) -> Path:
    """A run with random weights of another model that reads what the run reads."""
    from headway.runs.run_folder import RunFolder, model_weights
    from headway.tasks import build_task

    shutil.copytree(reversal.run / "vocabulary", folder / "vocabulary")
    recipe = yaml.safe_load((reversal.run / "recipe.yaml").read_text(encoding="utf-8"))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"model": model}), encoding="utf-8")
    torch.manual_seed(1)
    run = RunFolder(folder)
    task = build_task(run.read_recipe().task)
    run.write_weights(model_weights(task.model(run.read_recipe(), task.processors(run.vocabulary))), {})
    return folder


MARIAN = {
    "dim": 8, "heads": 2, "feed_forward": 8, "norm": "post", "encoder": {"layers": 1}, "decoder": {"layers": 1},
}  # fmt: skip
NGRAM = {"dim": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1, "mixer": "ngram"}}


def test_what_a_format_cannot_express_is_refused_with_those_that_can(
    run_headway: Command, reversal: Reversal, tmp_path: Path
) -> None:
    run = other_run(reversal, tmp_path / "run", **NGRAM)
    code, _, err = run_headway("export", "ctranslate2", run, "--output", tmp_path / "model")
    assert code == 2
    assert "ctranslate2 cannot express this run" in err
    assert "Ngram" in err
    assert "allowed: " in err
    assert "huggingface" in err.partition("allowed")[2]
    assert not (tmp_path / "model").exists()
    code, out, _ = run_headway("export", "--list", run)
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert rows["ctranslate2"].split()[1] == "no"
    assert "a folder for headway.load: MarianMTModel has multi-head attention alone" in rows["huggingface"]


FORGETS = {"kind": "attention", "forget": True}
GATED = {"kind": "linear", "gate": "vector"}


@pytest.mark.parametrize(
    ("change", "format", "said"),
    [
        ({"decoder": {"layers": 1, "cross": {"kind": "multi_head", "heads": 4}}}, "huggingface", HEADS),
        ({"decoder": {"layers": 1, "mixer": {"kind": "attention", "heads": 4}}}, "huggingface", HEADS),
        ({"decoder": {"layers": 1, "cross": CHOICE}}, "onnx", "no attention that chooses one position"),
        ({"encoder": {"layers": 1, "canon": "C"}}, "huggingface", "MarianMTModel has no Canon layers"),
        ({"encoder": {"layers": 1, "canon": "C"}}, "ctranslate2", "CTranslate2 has no such layer"),
        ({"encoder": {"layers": 1, "canon": "D"}}, "huggingface", "MarianMTModel has no Canon layers"),
        ({"encoder": {"layers": 1, "canon": "D"}}, "ctranslate2", "CTranslate2 has no such layer"),
        ({"encoder": {"layers": 1, "canon": "B"}}, "huggingface", "or canon in attention"),
        ({"encoder": {"layers": 1, "canon": "B"}}, "ctranslate2", "or canon in attention"),
        ({"decoder": {"layers": 1, "residual": "attention"}}, "huggingface", "MarianMTModel has plain residuals"),
        ({"encoder": {"layers": 1, "residual": "attention"}}, "ctranslate2", "CTranslate2 has no such residual"),
        ({"decoder": {"layers": 1, "cross": "merged"}}, "huggingface", "this model has MergedAttention"),
        ({"decoder": {"layers": 1, "cross": "merged"}}, "ctranslate2", "CTranslate2 has no such mixer"),
        ({"value_residual": True, "encoder": {"layers": 2}}, "huggingface", "no values of the first layer in others"),
        ({"value_residual": True, "encoder": {"layers": 2}}, "ctranslate2", "no values of the first layer in others"),
        ({"bias": False}, "huggingface", "projections with biases"),
        ({"bias": False}, "ctranslate2", "'yes'"),
        ({"encoder": {"layers": 1, "mixer": FORGETS}}, "huggingface", "MarianMTModel has no key_value_heads"),
        ({"encoder": {"layers": 1, "mixer": FORGETS}}, "ctranslate2", "CTranslate2 has no key_value_heads"),
        ({"encoder": {"layers": 1, "mixer": "linear"}}, "huggingface", "this model has LinearAttention"),
        ({"encoder": {"layers": 1, "mixer": "linear"}}, "ctranslate2", "CTranslate2 has no such mixer"),
        ({"encoder": {"layers": 1, "mixer": "linear"}}, "onnx", "'yes'"),
        ({"encoder": {"layers": 1, "mixer": GATED}}, "onnx", "no chunks of a whole sequence"),
        ({"decoder": {"layers": 1, "mixer": GATED}}, "onnx", "'yes'"),
        ({"decoder": {"layers": 1, "mixer": "delta"}}, "huggingface", "this model has DeltaRule"),
        ({"decoder": {"layers": 1, "mixer": "delta"}}, "ctranslate2", "CTranslate2 has no such mixer"),
        ({"decoder": {"layers": 1, "mixer": "delta"}}, "argos", "CTranslate2 has no such mixer"),
        ({"norm": "pre"}, "huggingface", "'no', 'only a folder for headway.load: MarianMTModel has norm: post"),
        ({"norm": "pre"}, "huggingface", "this model has norm: pre"),
        ({}, "huggingface", "'yes', 'MarianMTModel')"),
        ({"norm": "pre"}, "ctranslate2", "'yes'"),
        ({}, "ctranslate2", "'yes'"),
    ],
)
def test_a_format_says_how_or_why_it_cannot_express_a_model(
    reversal: Reversal, tmp_path: Path, change: dict, format: str, said: str
) -> None:
    rows = {str(row[0]): row for row in formats_of(other_run(reversal, tmp_path / "run", **MARIAN | change)).rows}
    assert said in str(rows[format])


def test_the_list_of_formats_says_what_is_not_installed(reversal: Reversal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda package: None if package == "ctranslate2" else package)
    rows = {str(row[0]): str(row) for row in formats_of(reversal.run).rows}
    assert "; needs pip install 'headway[export]'" in rows["ctranslate2"]
    assert "needs" not in rows["onnx"]


def test_other_models_become_a_folder_that_headway_loads(reversal: Reversal, tmp_path: Path) -> None:
    run = other_run(reversal, tmp_path / "run", **NGRAM)
    report = export_run("huggingface", run, ExportOptions(output=tmp_path / "model"), {})
    assert report.passed
    for name in ("recipe.yaml", "manifest.json"):
        assert str(reversal.run.parent) not in (tmp_path / "model" / name).read_text(encoding="utf-8"), name
    (own,), (other,) = (headway.load(each).predict("abc", max_length=5) for each in (run, tmp_path / "model"))
    assert own.text == other.text
    assert (tmp_path / "model" / "README.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["onyx", "{run}"], "FORMAT: unknown exporter"),
        (["huggingface", "{run}", "quantization=int8"], "quantization: the format huggingface has no such"),
        (["ctranslate2", "{run}", "quantization=int4"], "quantization"),
        (["ctranslate2", "{run}", "--input", "nowhere.txt"], "nowhere.txt"),
        (["ctranslate2", "{tmp}/none"], "this is not a run folder"),
        (["ctranslate2", "{tmp}/weightless"], "the weights of this run are missing"),
        (["ctranslate2", "{run}", "--output", "{tmp}/weightless"], "--output: there is something there already"),
    ],
)
def test_mistakes(run_headway: Command, reversal: Reversal, tmp_path: Path, arguments: list[str], message: str) -> None:
    without = shutil.ignore_patterns("*.safetensors", "checkpoints")
    shutil.copytree(reversal.run, tmp_path / "weightless", ignore=without)
    given = [each.format(run=reversal.run, tmp=tmp_path) for each in arguments]
    given += [] if "--output" in given else ["--output", tmp_path / "model"]
    code, _, err = run_headway("export", *given)
    assert (code, message in err) == (2, True), err
    assert [path.name for path in tmp_path.iterdir()] == ["weightless"]


def test_what_is_not_installed_names_its_extra(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    code, _, err = run_headway("export", "ctranslate2", reversal.run, "--output", tmp_path / "model")
    assert (code, "pip install 'headway[export]'" in err) == (2, True)
    with pytest.raises(UserError, match=r"needs ctranslate2, which is not installed.*headway\[export\]"):
        headway.load(reversal.run, engine="ctranslate2")


def test_half_an_export_leaves_nothing(reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.export import exporting

    def fail(*arguments: object, **options: object) -> str:
        raise OSError("the disk is full")

    monkeypatch.setattr(exporting, "card_of", fail)
    with pytest.raises(OSError, match="full"):
        export_run("ctranslate2", reversal.run, ExportOptions(output=tmp_path / "model"), {})
    assert not list(tmp_path.iterdir())


def test_classes_that_are_more_than_a_linear_map_are_told_apart() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
    marks = {"vocab_size": 9, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    classes = transformers.AutoModelForTokenClassification
    plain, with_head, of_decoder = (
        classes.from_config(config)
        for config in (
            transformers.BertConfig(**sizes, vocab_size=9),
            transformers.ModernBertConfig(**sizes, **marks, cls_token_id=0, sep_token_id=0),
            transformers.Qwen2Config(**sizes, **marks, num_key_value_heads=2),
        )
    )
    assert _is_linear(plain)
    assert not _is_linear(with_head)
    assert not _is_linear(of_decoder)


def test_a_tagger_becomes_the_class_of_its_encoder(run_headway: Command, tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    words = tmp_path / "words.tsv"
    long = "he VB\n" * 60  # which the run reads in windows, and the library's own class does not
    words.write_text(f"he VB\ngoes NN\n\n{long}\nshe NN\nhome VB\n\n".replace(" ", "\t"), encoding="utf-8")
    corpus = {"kind": "columns", "path": str(words)}
    recipe = {
        "task": "tagging",
        "data": {"train": corpus, "dev": corpus, "max_length": 30},
        "model": {"kind": "tagger", "encoder": str(encoder), "layers": "last"},
        "training": {"updates": 2, "checkpoint_every": 2},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    assert run_headway("train", tmp_path / "recipe.yaml", "--output", tmp_path / "run").code == 0
    code, out, err = run_headway("export", "huggingface", tmp_path / "run", "--output", tmp_path / "model")
    assert (code, "2 of 2 best outputs equal" in out) == (0, True), err
    model = transformers.AutoModelForTokenClassification.from_pretrained(str(tmp_path / "model"))
    assert type(model).__name__ == "BertForTokenClassification"
    assert set(model.config.id2label.values()) == {"NN", "VB"}
    assert [name for name, can, _ in formats_of(tmp_path / "run").rows if can == "yes"] == ["huggingface"]
