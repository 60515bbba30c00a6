"""Models of Marian's own compute in headway what Marian computes, come back as they were, and are refused by name."""

import json
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

import headway
from headway.core.errors import UserError
from headway.importing.importing import import_run
from headway.processing.marian_npz import read_npz, read_table
from headway.runs.run import open_run
from headway.tensors.batch import EOS, UNKNOWN, collate
from tests.conftest import Command
from tests.tasks.marian import SOURCES, TARGETS
from tests.tasks.marian_npz import (
    ALL,
    NONE,
    POST,
    PRE,
    SSRU,
    TARGET,
    Marian,
    random_arrays,
    write_model,
    write_model_with_table,
    write_npz,
)

KINDS = [
    pytest.param({**POST, **ALL}, id="post-norm", marks=pytest.mark.slow),
    pytest.param({**PRE, **ALL, "transformer-ffn-activation": "swish"}, id="pre-norm, swish"),
    pytest.param({**POST, **SSRU, **TARGET, "transformer-ffn-activation": "gelu"}, id="post-norm, ssru, gelu"),
    pytest.param({**PRE, **SSRU, **NONE, "enc-depth": 3, "dec-depth": 1}, id="pre-norm, ssru, untied"),
    pytest.param({**PRE, **NONE}, id="pre-norm, untied", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("changes", KINDS)
def test_logits_and_greedy_outputs_are_those_of_marian(tmp_path: Path, changes: dict[str, Any]) -> None:
    model, arrays, options = write_model(tmp_path / "marian", **changes)
    separate = not options.get("tied-embeddings-all")
    names = ("source.spm", "target.spm") if separate else ("vocab.spm",)
    import_run(["marian", str(model), *(str(model.parent / name) for name in names)], tmp_path / "run")
    run, marian = open_run(tmp_path / "run"), Marian(arrays, options)
    pieces = [sentencepiece.SentencePieceProcessor(model_file=str(model.parent / name)) for name in names]
    predictor = headway.load(tmp_path / "run", device="cpu")
    for source, target in zip(SOURCES, TARGETS, strict=True):
        read, written = pieces[0].encode(source), pieces[-1].encode(target)
        encoded = [run.source.encode(source).values, run.target.encode(target).values]
        batch = collate([np.asarray(encoded[0])], [np.asarray(encoded[1])])
        with torch.inference_mode():
            logits = run.model.eval().double()(batch).logits[0].numpy()
        expected = marian.logits([*read, 0], written)
        order = [EOS, UNKNOWN, *range(4, logits.shape[1])]
        np.testing.assert_allclose(logits[:, order], expected, rtol=0, atol=1e-5)
        assert logits[:, :2].max() < expected.min() - 50
        (output,) = predictor.predict([source], beam=1, max_length=12)
        best = marian.greedy([*read, 0], 12)
        assert [order.index(id) for id in output.hypotheses[0].ids if id != EOS] == best
        assert output.text == pieces[-1].decode(best)


@pytest.mark.parametrize("changes", KINDS)
def test_a_model_comes_back_as_it_was(run_headway: Command, tmp_path: Path, changes: dict[str, Any]) -> None:
    model, arrays, options = write_model(tmp_path / "marian", **changes)
    names = ("vocab.spm",) if options["tied-embeddings-all"] else ("source.spm", "target.spm")
    import_run(["marian", str(model), *(str(model.parent / name) for name in names)], tmp_path / "run")
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    back = tmp_path / "back"
    code, out, err = run_headway("export", "marian", tmp_path / "run", "--output", back, "--input", lines)
    assert (code, "5 of 5 best outputs" in out) == (0, True), out + err
    again = read_npz(back / "model.npz")
    assert again.keys() == {*arrays, "special:model.yml"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].dtype == array.dtype
    for name in names:
        assert (back / name).read_bytes() == (model.parent / name).read_bytes()
    assert not list(back.glob("*vocab*.yml"))


def test_a_run_of_our_own_comes_back(run_headway: Command, tmp_path: Path) -> None:
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True))
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    data = {"kind": "tsv", "path": str(tmp_path / "train.tsv")}
    recipe = {
        "data": {"train": data, "dev": data},
        "vocabulary": {"kind": "unigram", "size": 40, "shared": True},
        "model": {"preset": "student-tiny", "dim": 16, "feed_forward": 24, "heads": 2},
        "training": {"updates": 2, "dev_metrics": []},
    }
    headway.train(recipe, tmp_path / "run")
    back = tmp_path / "back"
    code, out, err = run_headway("export", "marian", tmp_path / "run", "--output", back)
    assert (code, "5 of 5 best outputs" in out) == (0, True), out + err
    import_run(["marian", str(back / "model.npz"), str(back / "vocab.spm")], tmp_path / "again")
    ours, theirs = open_run(tmp_path / "run"), open_run(tmp_path / "again")
    weights = theirs.weights()
    for name, tensor in ours.weights().items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=0)
    for line in [*SOURCES, *TARGETS, "☃ snow"]:
        assert list(theirs.source.encode(line).values) == list(ours.source.encode(line).values)


def weights_file(run: Path) -> bytes:
    """The content of a run's weights."""
    return (run / "model.safetensors").read_bytes()


def quoted(token: str, way: int) -> str:
    """A token as one of the writers of vocabularies writes it."""
    if way == 0 and token[0] not in "\"'?&*!|>%@`,:-#{}[]" and ": " not in token and token == token.strip():
        return token
    return "'" + token.replace("'", "''") + "'" if way == 1 else json.dumps(token, ensure_ascii=way == 2)


def write_table(file: Path, tokens: list[str], way: int) -> str:
    """A vocabulary of these tokens, by their ids; gives its name."""
    file.write_text("".join(f"{quoted(token, way)}: {id}\n" for id, token in enumerate(tokens)), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("way", range(4))
def test_tables_are_read_however_they_are_quoted(tmp_path: Path, way: int) -> None:
    odd = [
        "a",
        '"',
        "'",
        "\\",
        ":",
        "a: 5",
        "#",
        "- b",
        "null",
        "12",
        "~",
        "it's",
        'x"y',
        "日本",
        "😀",
        "\u2028",
        "\t",
        "a\\n",
    ]
    tokens = ["</s>", "<unk>", *odd]
    assert read_table(Path(write_table(tmp_path / "vocab.yml", tokens, way))) == tokens


def test_a_table_beside_sentencepiece_models_gives_the_ids(run_headway: Command, tmp_path: Path) -> None:
    """The files of OPUS-MT: a SentencePiece model a side, and one table whose ids are in an order of its own."""
    folder = write_model(tmp_path / "marian")[0].parent
    arrays, options, tokens = write_model_with_table(folder)
    spm = [str(folder / "source.spm"), str(folder / "target.spm")]
    processors = [sentencepiece.SentencePieceProcessor(model_file=file) for file in spm]
    import_run(["marian", str(folder / "opus.npz"), *spm, str(folder / "vocab.yml")], tmp_path / "run")
    run, marian = open_run(tmp_path / "run"), Marian(arrays, options)
    read = [tokens.index(piece) for piece in [">>fra<<", *processors[0].encode(SOURCES[0], out_type=str)]]
    encoded = [run.source.encode(f">>fra<< {SOURCES[0]}").values, run.target.encode(TARGETS[0]).values]
    assert [run.source.tokens([id])[0] for id in encoded[0]] == [tokens[id] for id in read]
    with torch.inference_mode():
        logits = run.model.eval()(collate([np.asarray(encoded[0])], [np.asarray(encoded[1])])).logits[0].numpy()
    written = [tokens.index(piece) for piece in processors[1].encode(TARGETS[0], out_type=str)]
    ids = [tokens.index("<pad>"), 0, 1, *range(2, len(tokens) - 1)]
    expected = marian.logits([*read, 0], written)[:, ids]
    np.testing.assert_allclose(logits[:, [0, 2, 3, *range(4, len(tokens) + 1)]], expected, rtol=0, atol=1e-5)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    code, out, err = run_headway("export", "marian", tmp_path / "run", "--output", tmp_path / "back", "--input", lines)
    assert code == 0, out + err
    again = read_npz(tmp_path / "back" / "model.npz")
    assert all((again[name] == array).all() for name, array in arrays.items())
    assert read_table(tmp_path / "back" / "source.yml") == tokens
    vocabularies = [str(tmp_path / "back" / name) for name in ("source.spm", "target.spm", "source.yml", "target.yml")]
    import_run(["marian", str(tmp_path / "back" / "model.npz"), *vocabularies], tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "run" / "model.safetensors"
    ).read_bytes()


def test_a_table_alone_has_words(run_headway: Command, tmp_path: Path) -> None:
    model, arrays, options = write_model(tmp_path / "marian", **SSRU)
    words = sorted({word for line in [*SOURCES, *TARGETS] for word in line.split()})
    tokens = ["</s>", "<unk>", *words]
    options["dim-vocabs"] = [len(tokens)] * 2
    arrays = random_arrays(options)
    write_npz(model, arrays, options)
    import_run(["marian", str(model), write_table(tmp_path / "vocab.yml", tokens, 2)], tmp_path / "run")
    marian = Marian(arrays, options)
    read = [tokens.index(word) for word in SOURCES[0].split()]
    best = " ".join(tokens[id] for id in marian.greedy([*read, 0], 10))
    assert headway.load(tmp_path / "run", device="cpu").predict(SOURCES[0], beam=1, max_length=10)[0].text == best
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    code, out, err = run_headway("export", "marian", tmp_path / "run", "--output", tmp_path / "back", "--input", lines)
    assert code == 0, out + err
    assert read_table(tmp_path / "back" / "vocab.yml") == tokens
    assert all((read_npz(tmp_path / "back" / "model.npz")[name] == array).all() for name, array in arrays.items())


def test_an_output_matrix_of_older_versions_is_read(tmp_path: Path) -> None:
    model, arrays, options = write_model(tmp_path / "marian", **NONE)
    older = {**arrays, "decoder_ff_logit_out_W": arrays["decoder_ff_logit_out_Wt"].T}
    del older["decoder_ff_logit_out_Wt"]
    files = [str(model.parent / name) for name in ("source.spm", "target.spm")]
    import_run(["marian", str(model), *files], tmp_path / "one")
    write_npz(model, {name: np.ascontiguousarray(array) for name, array in older.items()}, options)
    import_run(["marian", str(model), *files], tmp_path / "two")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "two" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "s2s"}, r"type: .*received 's2s'; allowed: 'transformer'"),
        ({"transformer-ffn-activation": "elu"}, r"transformer-ffn-activation.*'swish' or 'relu' or 'gelu'"),
        ({"transformer-ffn-depth": 3}, r"transformer-ffn-depth.*received 3; allowed: 2"),
        ({"transformer-postprocess": "dhn"}, r"transformer-preprocess, .*'', 'dhn', ''.*'n', 'da', 'n'"),
        (
            {"transformer-preprocess": "n", "transformer-postprocess": "da"},
            r"transformer-postprocess-top.*'n', 'da', ''",
        ),
        ({"transformer-decoder-autoreg": "average-attention"}, r"transformer-decoder-autoreg.*average-attention"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, r"dec-cell.*'gru'; allowed: 'ssru'"),
        ({"transformer-train-position-embeddings": True}, r"transformer-train-position-embeddings.*allowed: False"),
        ({"transformer-tied-layers": [1, 1]}, r"transformer-tied-layers.*\[1, 1\]"),
        ({"transformer-no-projection": True}, r"transformer-no-projection"),
        ({"transformer-postprocess-emb": "n"}, r"transformer-postprocess-emb"),
        ({"transformer-decoder-dim-ffn": 5}, r"transformer-decoder-dim-ffn.*received 5; allowed: 12"),
        ({"transformer-ffn-activation": "gelu", "version": "v1.9.0 x"}, r"version.*before, its gelu was"),
        ({"tied-embeddings-all": False, "tied-embeddings-src": True}, r"tied-embeddings-src"),
        ({"enc-depth": 900}, r"enc-depth: there are not so many layers; received 900"),
        ({"enc-depth": 1}, r"no weights of these names; received 'encoder_l2_ffn_W1, "),
        ({"dim-emb": 16}, r"not that of such a model; received .*8"),
        ({"dim-emb": "x"}, r"model.dim.*received 'x'"),
        ({"transformer-heads": 3}, r"heads \(3\) do not divide dim \(8\)"),
    ],
)
def test_what_is_no_such_model_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    model, arrays, options = write_model(tmp_path / "marian")
    write_npz(model, arrays, options | changes)
    with pytest.raises(UserError, match=message):
        import_run(["marian", str(model), str(model.parent / "vocab.spm")], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_those_of_the_model(tmp_path: Path) -> None:
    model, arrays, options = write_model(tmp_path / "marian")

    def refused(changed: dict[str, Any], message: str, vocabulary: str = "vocab.spm") -> None:
        write_npz(model, {name: array for name, array in changed.items() if array is not None}, options)
        with pytest.raises(UserError, match=message):
            import_run(["marian", str(model), str(model.parent / vocabulary)], tmp_path / "run")

    name = "decoder_l2_context_Wk"
    refused(arrays | {name: None}, f"{name} is not that of such a model; received 'nothing of that name'")
    refused(arrays | {name: arrays[name][:-1]}, rf"{name} is not that .*received '\[7, 8\].*\[8, 8\]")
    refused(arrays | {name: arrays[name] * np.float32("nan")}, "not finite")
    refused(arrays | {"decoder_l1_rnn_W": arrays[name]}, "no weights of these names; received 'decoder_l1_rnn_W'")
    refused(arrays, r"Wemb is not that of such a model", "source.spm")
    refused(arrays | {name: arrays[name].astype(np.float64)}, "it holds <f8")
    refused(arrays | {name: np.array([{}])}, "it holds |O")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("</s>: 0\n<unk>: 1\na b\n", r"v.yml:3: a line of a vocabulary is `token: id`; received 'a b'"),
        ("</s>: 0\n<unk>: 1\na: 1\n", r"v.yml:3: this token, or its id"),
        ("</s>: 0\n<unk>: 1\n<unk>: 2\n", r"v.yml:3: this token, or its id"),
        ("</s>: 0\n<unk>: 1\na: 99999999\n", r"each id from 0 on needs a token"),
        ("", r"each id from 0 on"),
        ("a: 0\nb: 1\n", r"this vocabulary has no </s> or no <unk>"),
    ],
)
def test_tables_that_are_at_fault(tmp_path: Path, lines: str, message: str) -> None:
    model, _, _ = write_model(tmp_path / "marian")
    (tmp_path / "v.yml").write_text(lines, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        import_run(["marian", str(model), str(tmp_path / "v.yml")], tmp_path / "run")


def test_a_long_line_of_a_table_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "vocab.yml").write_text("a" + " " * 200_000 + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"vocab\.yml:1: a line of a vocabulary"):
        read_table(tmp_path / "vocab.yml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{model}"], "a model has a vocabulary, or one a side"),
        (["{model}", "{model}", "{vocab}"], "one model is imported at a time"),
        (["{vocab}"], "one model is imported at a time"),
        (["{model}", "{model}.spm"], "model.npz.spm: there is no such file"),
        (["none.npz", "{vocab}"], "error: none.npz: there is no such file"),
        (["{model}", "{train}"], "this vocabulary cannot be read"),
        (["{model}", "{vocab}", "{vocab}", "{vocab}"], "a model has a vocabulary, or one a side"),
    ],
)
def test_files_that_do_not_go_together(run_headway: Command, tmp_path: Path, words: list[str], message: str) -> None:
    model, _, _ = write_model(tmp_path / "marian")
    (tmp_path / "train.tsv").write_text("a\tb\n", encoding="utf-8")
    places = {"model": model, "vocab": model.parent / "vocab.spm", "train": tmp_path / "train.tsv"}
    given = [word.format(**places) for word in words]
    code, _, err = run_headway("import", "marian", *given, "--output", tmp_path / "run")
    assert code == 2, err
    assert message in err


def npy(header: str, data: bytes = b"") -> bytes:
    """A .npy file with a header that may lie."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def test_files_that_lie_take_no_memory(tmp_path: Path) -> None:
    def refused(message: str, *entries: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
        with zipfile.ZipFile(tmp_path / "m.npz", "w", compression) as archive:
            for name, content in entries:
                archive.writestr(name, content)
        with pytest.raises(UserError, match=message):
            read_npz(tmp_path / "m.npz")

    huge = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000000)}", bytes(8))
    refused("elements are not 8 bytes", ("a.npy", huge))
    refused("are not 8 bytes", ("a.npy", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", bytes(8))))
    refused("are not 8 bytes", ("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -2)}", bytes(8))))
    refused("it holds |O", ("a.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8))))
    refused("it holds >f4", ("a.npy", npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", bytes(8))))
    refused("cannot be read", ("a.npy", npy("{" * 60000)))
    refused("cannot be read", ("a.npy", b""))
    refused("an array twice", ("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}")), ("a", b""))
    refused("are not compressed", ("a.npy", bytes(10**6)), compression=zipfile.ZIP_DEFLATED)
    (tmp_path / "m.npz").write_bytes(b"no zip")
    with pytest.raises(UserError, match=r"this .npz file cannot be read"):
        read_npz(tmp_path / "m.npz")


def test_damaged_files_give_one_clear_error_or_the_model(tmp_path: Path) -> None:
    model, _, _ = write_model(tmp_path / "marian", **{"enc-depth": 1, "dec-depth": 1})
    whole, chance, refused = model.read_bytes(), random.Random(1), 0
    places = [whole.index(b"special:model.yml"), whole.rindex(b"PK\x01\x02"), len(whole) - 22]
    for case in range(99):
        content = bytearray(whole)
        kind = case % 3
        if kind == 0:
            del content[chance.randrange(len(content)) :]
        else:
            start = chance.choice(places) if kind == 1 else chance.randrange(len(content))
            for _ in range(chance.randint(1, 6)):
                content[min(start + chance.randrange(200), len(content) - 1)] = chance.randrange(256)
        model.write_bytes(content)
        with suppress(UserError):
            import_run(["marian", str(model), str(model.parent / "vocab.spm")], tmp_path / f"run{case}")
        refused += not (tmp_path / f"run{case}").exists()
    assert 80 < refused <= 99
    assert not list(tmp_path.glob("*.tmp"))
