"""Compares imports of Hugging Face's models with transformers: the outputs of both, line by line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from headway.core.errors import UserError, option
from headway.core.files import sha256
from headway.core.log import progress
from headway.core.tables import Table
from headway.core.version import VERSION
from headway.formats.lines import read_lines
from headway.importing.importing import import_run, split_format
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.hub_models import hub_folder, read_hub_config, weight_files
from headway.runs.load import load

LINES, LONGEST, TOGETHER, BEAM = 100, 200, 10, 4
COLUMNS = ["model", "type", "weights", "greedy", "beam", "lines", "seconds", "headway", "date"]
CODES = {"source_language": "src_lang", "target_language": "tgt_lang"}


def verify(words: Sequence[str], lines: Path, keys: Sequence[str] = ()) -> Table:
    """Import a model, decode the first 100 lines of a file in headway and in transformers, and count equal outputs.

    The search is that of the model's settings, with a beam of 1 and with its own (4 if that is 1), and with its longest
    output (200 tokens if it has none).

    Raises:
        UserError: as `import_run`; the model is not one of Hugging Face, or the file has no text.
    """
    name, places = split_format(words)
    if name != "hf":
        what = "only models of Hugging Face are compared with transformers"
        raise UserError(what, where=option("verify"), received=name, allowed="hf:NAME")
    texts = [line for line in read_lines(lines) if line.strip()][:LINES]
    if not texts:
        raise UserError("this file has no text", where=option("verify"), received=str(lines))
    began, folder = time.monotonic(), hub_folder(places[0], "hf")
    with TemporaryDirectory() as place:
        import_run(words, Path(place) / "run", keys)
        predictor = load(Path(place) / "run", device="cpu")
    assert isinstance(predictor, SequencePredictor)
    beam = predictor.recipe.decoding.beam
    beams = [1, beam if beam > 1 else BEAM]
    longest = predictor.recipe.decoding.max_length or LONGEST
    ours = [[output.text.strip() for output in predictor.predict(texts, beam=n, max_length=longest)] for n in beams]
    codes = {name: code for name, _, code in (key.partition("=") for key in keys) if name in CODES}
    theirs = _written(folder, texts, beams, longest, codes)
    equal = [sum(a == b for a, b in zip(*pair, strict=True)) for pair in zip(ours, theirs, strict=True)]
    (weights, *_) = weight_files(folder, "hf")
    row = [
        places[0], read_hub_config(folder)["model_type"], sha256(weights)[:12], *equal, len(texts),
        round(time.monotonic() - began), VERSION, datetime.now(UTC).date().isoformat(),
    ]  # fmt: skip
    return Table(COLUMNS, [row])


def _written(
    folder: Path, texts: Sequence[str], beams: Sequence[int], longest: int, codes: dict[str, str]
) -> list[list[str]]:
    """The outputs of transformers for each text, by width of the beam."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(str(folder), trust_remote_code=False).eval()
    for name, code in codes.items():
        setattr(tokenizer, CODES[name], code)
    asked: dict[str, Any] = {"max_new_tokens": longest, "max_length": None, "use_cache": False}
    if "target_language" in codes:
        asked["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(codes["target_language"])
    forced = asked.get("forced_bos_token_id", model.generation_config.forced_bos_token_id)
    written = list[list[str]]()
    with progress("transformers", len(beams) * len(texts), "lines") as line, torch.inference_mode():
        for beam in beams:
            outputs = list[str]()
            for begin in range(0, len(texts), TOGETHER):
                some = tokenizer(list(texts[begin : begin + TOGETHER]), padding=True, return_tensors="pt")
                rows = model.generate(**some, num_beams=beam, **asked)[:, 1 if forced is None else 2 :]
                outputs += [text.strip() for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]
                line.update(len(written) * len(texts) + len(outputs))
            written.append(outputs)
    return written
