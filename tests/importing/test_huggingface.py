"""Encoder-decoders of Hugging Face become runs that cut text, compute and write as the library does."""

import json
import pickle
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import headway
from headway.core.errors import UserError
from headway.importing.importing import import_run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.hub_models import read_weights
from headway.processing.text.text_processor import TextProcessor
from headway.tensors.batch import BOS, EOS, UNKNOWN, collate
from tests.conftest import Command
from tests.importing.made_models import CASES, LINES, write_model
from tests.tasks.marian import write_marian
from tests.tiers import thinned, tiered

MORE = ("t5-gated", "t5-silu", "bart-relu", "mbart")  # siblings of others
WITH_CODES = {
    "mbart50": ("en_XX", "de_DE", "fr_XX"), "nllb": ("eng_Latn", "deu_Latn", "fra_Latn"),
    "m2m": ("__en__", "__de__", "__fr__"),
}  # fmt: skip
TARGETS = ["le chat <x> !", "Où est l'oiseau ?", "zzz", "un  chien 12"]
SOURCES = [*LINES, "the <pad> cat", "x y  z", "日本"]


class Both:
    """A model in the library, and the run that it becomes."""

    def __init__(self, folder: Path, run: Path, **languages: str) -> None:
        import_run(["hf", str(folder)], run, [f"{key}={value}" for key, value in languages.items()])
        predictor = headway.load(run)
        assert isinstance(predictor, SequencePredictor)
        assert isinstance(predictor.source, TextProcessor)
        self.run, self.predictor, self.ours = run, predictor, predictor.models[0]
        self.source, self.target = predictor.source, predictor.target
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        self.theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder)).eval()
        self.rows = [self._rows(side) for side in (self.source, self.target)]

    def _rows(self, processor: TextProcessor) -> torch.Tensor:
        """The row that each id has in the library, by the embeddings, which are all different."""
        theirs, order = self.theirs.get_encoder(), self.ours.source_embedding.tokens
        if processor is not self.source:
            theirs, order = self.theirs.get_decoder(), self.ours.target_embedding.tokens
        embeddings = theirs.get_input_embeddings().weight
        if self.theirs.config.model_type == "marian":
            from headway.tasks.marian import interleaving

            embeddings = embeddings[:, interleaving(embeddings.shape[1])]
        return torch.cdist(order.weight.detach().double(), embeddings.detach().double()).argmin(1)

    def text(self, rows: list[int]) -> str:
        """The text of some rows; M2M-100's codes are not among what this tokenizer leaves out."""
        return re.sub(r"__[a-z]+__ ?", "", self.tokenizer.decode(rows, skip_special_tokens=True)).strip()

    def theirs_of(self, lines: list[str]) -> Any:
        return self.tokenizer(lines, padding=True, return_tensors="pt")


@pytest.fixture(scope="module", params=[tiered(case, slow=case in MORE) for case in ("marian", *CASES)])
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def both(case: str, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp(case) / "model"
    if case != "marian":
        return Both(write_model(folder, case), folder.parent / "run")
    weights = load_file(write_marian(folder) / "model.safetensors")
    weights["final_logits_bias"][0, 0] += 3  # so that outputs end
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return Both(folder, folder.parent / "run")


def test_text_is_cut_alike(both: Both, case: str) -> None:
    lines = [line for line in SOURCES if "<" not in line]
    for line in lines:
        expected = both.tokenizer(line)["input_ids"]
        assert [*both.rows[0][both.source.encode(line).values], both.rows[0][EOS]] == expected
    for line in TARGETS:
        ids = both.target.encode(line).values
        expected = both.tokenizer(text_target=line)["input_ids"]
        if case == "mbart":  # the code comes last, from where the library moves it to the front
            expected = expected[:-1]
        assert [*both.rows[1][ids], both.rows[1][EOS]] == expected
        if "<unk>" not in both.target.decode(ids):
            assert both.target.decode(ids).strip() == both.text(expected)


def test_special_tokens_in_a_text_are_text(both: Both) -> None:
    for line in ("the <pad> cat", "</s> cat", "cat <s>"):
        assert not {0, BOS, EOS} & {*both.source.encode(line).values}


def test_tokens_have_their_characters(both: Both) -> None:
    for line in ("the cat  sees zzz", "Où est l'oiseau ?", "日本 cat"):
        tokens = both.source.encode_with_spans(line)
        assert [token.id for token in tokens] == both.source.encode(line).values
        words = [line[token.start : token.end] for token in tokens if token.end > token.start]
        assert "".join("".join(words).split()) == "".join(line.split()) or both.source.vocabulary.token(5).isascii()
    assert both.source.encode(" ").values == []


def test_logits_are_equal(both: Both) -> None:
    lines = [SOURCES[index] for index in (0, 2, 5)]
    sources = [np.array(both.source.encode(line).values) for line in lines]
    batch = collate(sources, [np.array(both.target.encode(line).values) for line in TARGETS[:3]])
    inputs = both.theirs_of(lines)
    with torch.inference_mode():
        logits = both.ours(batch).logits
        given = both.rows[1][batch.target_input]
        given[:, 0] = start_of(both)
        theirs = both.theirs(**inputs, decoder_input_ids=given).logits
        expected, expected_probabilities = (each[..., both.rows[1]] for each in (theirs, theirs.log_softmax(-1)))
    kept = [index for index in range(logits.shape[-1]) if index != BOS]
    for computed, wanted in ((logits, expected), (logits.log_softmax(-1), expected_probabilities)):
        difference = (computed - wanted)[batch.target_mask][:, kept]
        torch.testing.assert_close(difference, torch.zeros_like(difference), rtol=0, atol=1e-4)


def start_of(both: Both) -> int:
    return int(both.theirs.generation_config.decoder_start_token_id)


def generated(both: Both, lines: list[str], beam: int, longest: int, **options: Any) -> list[list[int]]:
    """The rows that `generate` writes, without the first."""
    with torch.inference_mode():
        rows = both.theirs.generate(
            **both.theirs_of(lines), num_beams=beam, max_new_tokens=longest, max_length=None,
            use_cache=False, suppress_tokens=[both.theirs.config.pad_token_id], **options,
        )  # fmt: skip
    return [row[1:] for row in rows.tolist()]


def until_end(both: Both, rows: list[int]) -> list[int]:
    """What stands before the end mark that is not the first row."""
    end = both.theirs.config.eos_token_id
    return rows[: rows.index(end, 1)] if end in rows[1:] else rows


# Beams as `generate` ranks and stops them by default, and otherwise.
SEARCHES: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
    (1, {}, {}),
    (3, {}, {}),
    (3, {"length_penalty": 0.0}, {"length_penalty": 0.0}),
    (3, {"length_penalty": 2.0, "early_stopping": True}, {"length_penalty": 2.0, "stop": "full"}),
]


@pytest.mark.parametrize(("beam", "theirs", "ours"), thinned(SEARCHES, 2, 1))
def test_the_same_tokens_are_written(both: Both, beam: int, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    longest = 25
    end, written = both.theirs.config.eos_token_id, 0
    expected = generated(both, LINES, beam, longest, **theirs)
    found = both.predictor.predict(LINES, beam=beam, max_length=longest, **ours)
    for output, rows in zip(found, expected, strict=True):
        ids = output.hypotheses[0].ids
        begun = len(both.target.vocabulary.beginning)
        if end in rows[begun : longest - 1]:
            rows = rows[: rows.index(end, begun)]
            assert both.rows[1][list(ids)].tolist() == rows
            if UNKNOWN not in ids:
                assert output.hypotheses[0].text.strip() == both.text(rows)
            written += 1
        elif beam == 1:  # of beams that are cut, the last may be others: headway counts the end mark that it puts there
            assert both.rows[1][list(ids)].tolist()[: longest - 1] == rows[: longest - 1]
    assert written


@pytest.mark.parametrize("name", ["t5", "m2m"])
def test_the_search_is_that_of_the_settings(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_model(tmp_path / "model", name)
    path = folder / "generation_config.json"
    search = {"num_beams": 3, "length_penalty": 1.5, "early_stopping": True, "max_new_tokens": 7, "do_sample": True}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | search), encoding="utf-8")
    both = Both(folder, tmp_path / "run")
    assert "search goes without what the settings of this model ask for (do_sample: True)" in caplog.text
    decoding = both.predictor.recipe.decoding
    assert (decoding.beam, decoding.length_penalty, decoding.stop, decoding.max_length) == (3, 1.5, "full", 7)


def test_settings_of_generation_alone_say_what_is_written(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "bart")
    for name, changes in (
        ("config.json", {"num_beams": 4, "forced_bos_token_id": 0}),
        ("generation_config.json", {"forced_bos_token_id": None, "min_length": 3, "min_new_tokens": 6}),
    ):
        content = json.loads((folder / name).read_text(encoding="utf-8")) | changes
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    both = Both(folder, tmp_path / "run")
    assert (both.predictor.recipe.decoding.beam, both.predictor.recipe.decoding.min_length) == (1, 6)
    for line, output in zip(LINES, both.predictor.predict(LINES), strict=True):  # begun as the model likes
        (expected,) = both.theirs.generate(**both.theirs_of([line]), use_cache=False).tolist()
        assert both.rows[1][list(output.hypotheses[0].ids)].tolist() == until_end(both, expected)[1:]


@pytest.mark.parametrize("name", ["t5", "mbart50"])
def test_spaces_are_cleaned_up_where_the_tokenizer_says_so(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "model", name)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | {"clean_up_tokenization_spaces": True}
    path.write_text(json.dumps(content), encoding="utf-8")
    both = Both(folder, tmp_path / "run")
    ids = both.target.encode("des oiseaux ! un chien , le chat ?").values
    rows = both.rows[1][ids].tolist()
    assert both.target.decode(ids).strip() == both.text(rows) == "des oiseaux! un chien, le chat?"


@pytest.mark.parametrize("stored", ["lm_head", "model.decoder.embed_tokens"])
def test_embeddings_that_are_tied_are_stored_once(tmp_path: Path, stored: str) -> None:
    folder = write_model(tmp_path / "model", "bart")
    import_run(["hf", str(folder)], tmp_path / "first")
    weights = load_file(folder / "model.safetensors")
    weights[f"{stored}.weight"] = weights.pop("model.shared.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    import_run(["hf", str(folder)], tmp_path / "second")
    first, second = (load_file(tmp_path / run / "model.safetensors") for run in ("first", "second"))
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", list(WITH_CODES))
def test_languages_are_chosen(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "model", name)
    both = Both(folder, tmp_path / "run")
    english, german, french = WITH_CODES[name]
    line, plain = "ein Hund 12", both.source.encode("ein Hund 12").values
    assert both.source.tokens(plain)[0] == english
    tagged = both.source.encode(f"{german} {line}").values
    assert both.source.tokens(tagged) == [german, *both.source.tokens(plain)[1:]]
    row = both.tokenizer.convert_tokens_to_ids(german)
    for code in (german, "de" if name != "nllb" else "deu"):
        (output,) = both.predictor.predict([line], beam=1, max_length=9, target_language=code)
        (expected,) = generated(both, [line], 1, 9, forced_bos_token_id=row)
        assert both.rows[1][list(output.hypotheses[0].ids)].tolist()[:8] == until_end(both, expected)[:8]
    (output,) = both.predictor.predict([line], beam=1, max_length=9)
    assert output.hypotheses[0].tokens[0] == french
    (output,) = both.predictor.predict([line], beam=1, max_length=9, prefixes=[f"{german} le"])
    assert output.hypotheses[0].tokens[0] == german
    with pytest.raises(UserError, match="target_language: this model has no such language; received 'xx'"):
        both.predictor.predict([line], target_language="xx")
    other = Both(folder, tmp_path / "other", source_language=german, target_language=english)
    assert other.source.encode(line).values == tagged
    assert other.target.tokens(other.target.encode(line).values)[0] == english
    assert other.predictor.recipe.text.source.language in ("de", "deu")


def test_codes_at_the_end_of_a_source_are_chosen_at_the_import(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "mbart")
    for name in ("config.json", "generation_config.json"):
        content = json.loads((folder / name).read_text(encoding="utf-8")) | {"decoder_start_token_id": None}
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match="target_language: this model needs to know the language"):
        import_run(["hf", str(folder)], tmp_path / "run")
    both = Both(folder, tmp_path / "run", source_language="de", target_language="en")
    german, english = both.tokenizer.convert_tokens_to_ids(["de_DE", "en_XX"])
    assert (int(both.rows[0][EOS]), int(both.rows[1][BOS])) == (german, english)
    both.tokenizer.src_lang = "de_DE"
    (output,) = both.predictor.predict(["ein Hund 12"], beam=1, max_length=9)
    (expected,) = generated(both, ["ein Hund 12"], 1, 9, decoder_start_token_id=english)
    assert both.rows[1][list(output.hypotheses[0].ids)].tolist()[:8] == until_end(both, expected)[:8]


def test_a_model_of_one_language_has_none_to_choose(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", "t5")
    with pytest.raises(UserError, match="source_language: this model has no such language"):
        import_run(["hf", str(folder)], tmp_path / "run", ["source_language=en"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("named", "read"), [("deu", "deu"), ("mul", "und"), ("ROMANCE", "und"), (None, "und")])
def test_the_languages_of_a_marian_tokenizer(tmp_path: Path, named: str | None, read: str) -> None:
    folder = write_marian(tmp_path / "model")
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": named}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    import_run([f"hf:{folder}"], tmp_path / "run")
    text = headway.load(tmp_path / "run").recipe.text
    assert (text.source.language, text.target.language) == ("en", read)


@pytest.mark.parametrize("case", thinned(["marian", "t5", "bart", "mbart50"], 4), indirect=True)
def test_every_command_takes_it(run_headway: Command, both: Both, case: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    target.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    rows = "".join(f"{line}\t{line}\n" for line in LINES)
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    short = ("--max-length", "6")
    corpus = {"kind": "tsv", "path": str(tmp_path / "train.tsv")}
    recipe = {
        "data": {"train": corpus, "dev": corpus, "max_length": 30},
        "training": {"from": str(both.run), "updates": 2, "checkpoint_every": 1, "lora": {"rank": 2}},
        "decoding": {"max_length": 5},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    whole = recipe | {"training": {"from": str(both.run), "updates": 2}}
    (tmp_path / "whole.yaml").write_text(json.dumps(whole), encoding="utf-8")
    for words in (
        ("predict", both.run, "--input", source, *short),
        ("score", both.run, "--source", source, "--target", target),
        ("inspect", both.run, "--input", source, "--output", tmp_path / "inside.html"),
        ("compare", f"a={both.run}", f"b={both.run}", "--metric", "chrf", "--source", source, "--references", target),
        ("train", tmp_path / "recipe.yaml", "--output", tmp_path / "low-rank"),
        ("train", tmp_path / "whole.yaml", "--output", tmp_path / "tuned"),
        ("predict", tmp_path / "low-rank", "--input", source, *short),
        ("predict", tmp_path / "tuned", "--input", source, *short),
    ):
        code, _, err = run_headway(*words)
        assert code == 0, err


class TestRefused:
    """Models that cannot be held, and files that are not as they should be: one error, and no run."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return write_model(tmp_path / "model", "bart")

    def refused(self, folder: Path, message: str, *keys: str) -> None:
        run = folder.parent / "run"
        with pytest.raises(UserError, match=message):
            import_run(["hf", str(folder)], run, keys)
        assert not run.exists()
        assert {path.name for path in folder.parent.iterdir()} <= {folder.name, "other"}

    def edit(self, folder: Path, name: str = "config.json", **changes: Any) -> None:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(content | changes), encoding="utf-8")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model_type": "pegasus"}, "model_type: headway has no such architecture; received 'pegasus'"),
            ({"model_type": None}, "headway has no such architecture"),
            ({"activation_function": "gelu_new"}, "activation_function: headway cannot compute this"),
            ({"decoder_ffn_dim": 32}, "decoder_ffn_dim: headway cannot compute this"),
            ({"architectures": ["BartForSequenceClassification"]}, "architectures: headway cannot compute this"),
            ({"quantization_config": {"bits": 4}}, "quantization_config: headway cannot compute this"),
            ({"vocab_size": 20}, "vocab_size: the tokenizer has pieces"),
            ({"d_model": "wide"}, "cannot load the configuration"),
            ({"max_position_embeddings": 30}, "weights are not of this model .first difference: .*position"),
            ({"architectures": [3]}, "architectures"),
            ({"encoder_layers": 1}, "more layers than config.json says; received 'model.encoder.layers.1'"),
            ({"encoder_layers": 3}, "this model lacks the weight model.encoder.layers.2"),
            ({"pad_token_id": None}, "no row for a special token"),
            ({"vocab_size": 10**12}, "vocab_size: Input should be less than or equal to"),
        ],
    )
    def test_configurations(self, folder: Path, changes: dict[str, Any], message: str) -> None:
        self.edit(folder, **changes)
        self.refused(folder, message)

    @pytest.mark.parametrize(
        "changes", [{"max_length": "long"}, {"length_penalty": "none"}, {"min_length": [1]}, {"num_beams": 0}]
    )
    def test_a_search_of_other_types(self, folder: Path, changes: dict[str, Any]) -> None:
        self.edit(folder, "generation_config.json", **changes)
        self.refused(folder, next(iter(changes)))

    @pytest.mark.parametrize(
        ("case", "changes"),
        [
            ("bart", {"eos_token_id": [2, 10]}),
            ("bart", {"suppress_tokens": [10, 11]}),
            ("bart", {"bad_words_ids": [[1], [2, 10]]}),
            ("t5", {"forced_bos_token_id": 7}),
        ],
    )
    def test_a_search_that_writes_others(self, tmp_path: Path, case: str, changes: dict[str, Any]) -> None:
        folder = write_model(tmp_path / "model", case)
        self.edit(folder, "generation_config.json", **changes)
        self.refused(folder, f"{next(iter(changes))}: headway cannot compute this")

    def test_pieces_without_a_row(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "model", "m2m")
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        tokenizer.add_tokens(["[[X]]"])
        tokenizer.save_pretrained(str(folder))
        self.refused(folder, "vocab_size: the tokenizer has pieces .* received '..X..'")

    def test_no_tokenizer(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "model", "t5")
        (folder / "tokenizer.json").unlink()
        self.refused(folder, "this model has no tokenizer")

    @pytest.mark.parametrize("values", [torch.zeros(24 * 16), torch.zeros(()), torch.zeros(24, 16, dtype=torch.int8)])
    def test_weights_that_are_no_matrices_of_fractions(self, folder: Path, values: torch.Tensor) -> None:
        weights = load_file(folder / "model.safetensors") | {"model.encoder.layers.0.self_attn.q_proj.weight": values}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        self.refused(folder, "not of the shape that config.json says|has no fractions")

    def test_pickled_weights_that_are_cut_off(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(b"junk")
        self.refused(folder, "pytorch_model.bin: these weights cannot be read")

    def test_a_gate_that_there_is_not(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "model", "t5", feed_forward_proj="gelu")
        self.refused(folder, "feed_forward_proj: headway cannot compute this")

    def test_a_tokenizer_of_another_class(self, tmp_path: Path, folder: Path) -> None:
        other = write_model(tmp_path / "other", "t5")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(other / name, folder / name)
        self.refused(folder, "a model of type bart has a tokenizer of another class here; received 'T5Tokenizer'")

    def test_a_damaged_tokenizer(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
        self.refused(folder, "cannot load the tokenizer")

    def test_weights_of_another_shape(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["model.encoder.layers.0.fc1.weight"] = torch.zeros(13, 16)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        self.refused(folder, "weights are not of this model .first difference: encoder.0.feed_forward.inner.weight")

    @pytest.mark.parametrize("name", ["lm_head", "model.encoder.embed_tokens"])
    def test_a_projection_of_its_own(self, folder: Path, name: str) -> None:
        weights = load_file(folder / "model.safetensors")
        weights[f"{name}.weight"] = 2 * weights["model.shared.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        self.refused(folder, "these weights have embeddings, or a projection, of their own")

    def test_a_projection_of_its_own_in_marian(self, tmp_path: Path) -> None:
        folder = write_marian(tmp_path / "model")
        weights = load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = 2 * weights["model.shared.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        self.refused(folder, "these weights have embeddings, or a projection, of their own")

    def test_code_in_the_weights(self, folder: Path) -> None:
        class Calls:
            def __reduce__(self) -> Any:
                return (folder / "called").touch, ()

        (folder / "model.safetensors").unlink()
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Calls()))
        self.refused(folder, "pytorch_model.bin: this file wants to run code")
        assert not (folder / "called").exists()

    def test_several_weights(self, folder: Path) -> None:
        for name in ("first", "second"):
            shutil.copy(folder / "model.safetensors", folder / f"{name}.safetensors")
        (folder / "model.safetensors").unlink()
        self.refused(folder, "several files may be the weights of this model")

    def test_a_language_that_has_to_be_chosen(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "model", "nllb")
        self.edit(folder, "generation_config.json", forced_bos_token_id=None)
        self.refused(folder, "target_language: this model needs to know the language")
        self.refused(folder, "target_language: this model has no such language; received 'xx'", "target_language=xx")


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_pickled_weights_are_the_same(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "model", name)
    import_run(["hf", str(folder)], tmp_path / "first")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    import_run(["hf", str(folder)], tmp_path / "second")
    first, second = (load_file(tmp_path / run / "model.safetensors") for run in ("first", "second"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_pickled_weights_that_are_compressed_are_refused(tmp_path: Path) -> None:
    """They could fill the memory: zeros take a thousandth of their size."""
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "plain.bin")
    with (
        zipfile.ZipFile(tmp_path / "plain.bin") as plain,
        zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for entry in plain.namelist():
            packed.writestr(entry, plain.read(entry))
    with pytest.raises(UserError, match="the files of a file of weights are not compressed"):
        read_weights(tmp_path, "here", ["pytorch_model.bin"])


def test_a_model_is_predicted_with_at_once(run_headway: Command, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    folder, source = write_model(tmp_path / "model", "m2m"), tmp_path / "source.txt"
    source.write_text("the cat\n__de__ ein Hund\n", encoding="utf-8")
    import_run(["hf", str(folder)], tmp_path / "run")
    for options in ((), ("--target-language", "de")):
        expected = run_headway("predict", tmp_path / "run", "--input", source, *options)
        assert expected.code == 0, expected.err
        for again in (False, True):
            answer = run_headway("predict", f"hf:{folder}", "--input", source, *options)
            assert answer.out == expected.out
            assert ("parameters" in answer.err) is not again
    monkeypatch.chdir(folder)
    assert (
        run_headway("predict", "hf:.", "--input", source).out
        == run_headway("predict", "hf:../model", "--input", source).out
    )
    code, _, err = run_headway("predict", "hf:", "--input", source)
    assert code == 2, err
    assert "RUN: this is no folder, and no name of a repository on the hub" in err
    code, _, err = run_headway("predict", f"hf:{tmp_path / 'absent'}", "--input", source)
    assert code == 2, err
    assert "RUN: this is no folder, and no name of a repository on the hub" in err


def test_tokens_of_older_folders_are_in_the_vocabulary(tmp_path: Path) -> None:
    """Tokens that were added stand in a file of their own there."""
    folder = write_model(tmp_path / "bart", "bart")
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [" ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BartTokenizer"}')
    count, added = len(model["vocab"]), folder / "added_tokens.json"
    added.write_text(json.dumps({"cats": count + 1, "<new>": count}))
    both = Both(folder, tmp_path / "run")
    for line in ("a <new> cats cat", "birds<new>, cats"):
        ids = both.source.encode(line).values
        assert [int(both.rows[0][id]) for id in ids] == both.tokenizer(line)["input_ids"][: len(ids)]
        assert {"<new>", "cats"} <= {both.source.vocabulary.token(id) for id in ids}
    for tokens, fault in (
        ({"cats": count + 1}, "'cats' has the number 331"),
        ({"<new>": count, "x": count + 1}, "'x' has"),
    ):
        added.write_text(json.dumps(tokens))
        with pytest.raises(UserError, match=rf"added_tokens\.json: the token {fault}"):
            import_run(["hf", str(folder)], tmp_path / "other", [])


def test_codes_of_older_folders_of_m2m_are_no_added_tokens(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m2m", "m2m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    codes, added = dict(tokenizer.lang_token_to_id), folder / "added_tokens.json"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "added_tokens_decoder": {}}))
    languages = {"source_language": "en", "target_language": "fr"}
    added.write_text(json.dumps(codes))
    both = Both(folder, tmp_path / "run", **languages)
    assert both.source.vocabulary.token(both.source.encode(LINES[0]).values[0]) == "__en__"
    added.write_text(json.dumps(codes | {"<new>": max(codes.values()) + 9}))
    with pytest.raises(UserError, match=r"<new>|vocab_size"):
        import_run(["hf", str(folder)], tmp_path / "other", [f"{key}={value}" for key, value in languages.items()])


def test_a_row_says_what_is_written_as_transformers_does(tmp_path: Path, run_headway: Command) -> None:
    folder = write_model(tmp_path / "model", "nllb")
    search = json.loads((folder / "generation_config.json").read_text(encoding="utf-8")) | {"max_new_tokens": 12}
    (folder / "generation_config.json").write_text(json.dumps(search), encoding="utf-8")
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    ended = run_headway("import", f"hf:{folder}", "--verify", tmp_path / "lines.txt")
    assert ended.code == 0, ended.err
    head, _, row = (line.strip("| ").split(" | ") for line in ended.out.strip().splitlines())
    said = dict(zip(head, row, strict=True))
    assert said["greedy"] == said["beam"] == said["lines"] == str(len([line for line in LINES if line.strip()]))
    assert not (tmp_path / "run").exists()
