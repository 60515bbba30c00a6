"""Models of Marian's own compute in headway what Marian computes, come back as they were, and are refused by name."""

import io
import json
import random
import zipfile
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
from tests.tasks.marian_npz import ALL, NONE, POST, PRE, SSRU, TARGET, Marian, write_model, write_npz

KINDS = [
    pytest.param({**POST, **ALL}, id="post-norm"),
    pytest.param({**PRE, **ALL, "transformer-ffn-activation": "swish"}, id="pre-norm, swish"),
    pytest.param({**POST, **SSRU, **TARGET, "transformer-ffn-activation": "gelu"}, id="post-norm, ssru, gelu"),
    pytest.param({**PRE, **SSRU, **NONE, "enc-depth": 3, "dec-depth": 1}, id="pre-norm, ssru, untied"),
    pytest.param({**PRE, **NONE}, id="pre-norm, untied"),
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
            logits = run.model.eval()(batch).logits[0].double().numpy()
        expected = marian.logits([*read, 0], written)
        order = [EOS, UNKNOWN, *range(4, logits.shape[1])]
        np.testing.assert_allclose(logits[:, order], expected, rtol=0, atol=1e-5)
        assert logits[:, :2].max() < expected.min() - 50
        (output,) = predictor.predict([source], beam=1, max_length=12)
        best = marian.greedy([*read, 0], 12)
        assert [order.index(id) for id in output.hypotheses[0].ids if id != EOS] == best
        assert output.text == pieces[-1].decode(best)
