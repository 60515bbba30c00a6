"""Files of Marian and of browsers: headers whose numbers lie, and changes at random, to weights, shortlists, pieces."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis.strategies import SearchStrategy

from headway.importing.importing import build_importer, import_run
from headway.models import build_model
from headway.models.components import model_section
from headway.processing.marian_binary import Items, read_items, write_items
from headway.processing.marian_npz import read_npz, write_npz
from headway.processing.shortlist import read_shortlist, shortlist_of, write_shortlist
from headway.tasks.student import factor_name, float_arrays, student_items, student_options
from tools.campaigns.campaign import Campaign
from tools.campaigns.mutations import Change, changed, changes, expanded

NAN = struct.unpack("<Q", struct.pack("<2f", float("nan"), 1))[0]
NUMBERS = (0, 1, 2, 3, 4, 5, 255, 256, 257, 1 << 20, 1 << 31, 1 << 32, (1 << 61) + 1, (1 << 63) - 1, 1 << 63,
           (1 << 64) - 1, 0x404, 0x4101, 0x101, NAN)  # fmt: skip
TOKENS = (b"Wemb", b"_QuantMultA", b"special:model.yml", b"dim-emb: ", b": ", b"\n  - ", b"\x00\x00\xc0\x7f",
          b"\x00\x00\x80\x7f", b"\xff" * 8, b"<f4", b"|u1", b"(1, 2)", b"PK\x01\x02", b"\x93NUMPY")  # fmt: skip
FILES = {"model": "model.ende.bin", "lists": "lex.s2t.bin", "npz": "model.npz", "pieces": "vocab.ende.spm"}


@dataclass(frozen=True)
class MarianCase:
    """A file that is changed.

    Attributes:
        kind: one of `FILES`.
        numbers: words of eight bytes that are overwritten, by their place in the file, in thousandths for `spread`.
        damage: further changes.
        spread: whether places are shares of the whole file, not the first words of it.
        run: whether a run folder is made of it.
    """

    kind: str
    numbers: tuple[tuple[int, int], ...] = ()
    damage: tuple[Change, ...] = ()
    spread: bool = False
    run: bool = False


class MarianCampaign(Campaign[MarianCase]):
    """Reads each file as import does; what is read holds no more than the file, is finite, and is of the vocabulary."""

    name = "marian"
    about = "Marian's .npz, models and shortlists of browsers, SentencePiece models: lying headers, changes at random"
    quick, together = 120, 20

    def prepare(self, folder: Path) -> None:
        import sentencepiece

        pieces = io.BytesIO()
        lines = ["kalu bode mif gop", "raste vun kalu", "gop bode rasi"] * 9
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=pieces, vocab_size=24,
            model_type="unigram", eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, minloglevel=3, num_threads=1,
        )  # fmt: skip
        sizes = {"dim": 16, "feed_forward": 16, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
        section = model_section({"preset": "student-tiny", **sizes})
        self.tensors = dict(build_model(section, 26, 26, True).named_parameters())
        items, matrices = student_items(self.tensors, 2)
        self.items: Items = items | {factor_name(name): np.ones(1, np.float32) for name in matrices}
        model = folder / FILES["npz"]
        arrays = {name: array for name, array in float_arrays(items).items() if not name.startswith("special:")}
        write_npz(model, arrays, student_options(items, "student"))
        lists = write_shortlist(shortlist_of([(place, 23 - place) for place in range(24)], 24, 2, 2))
        self.sound = {
            "model": write_items(self.items),
            "lists": lists,
            "npz": model.read_bytes(),
            "pieces": pieces.getvalue(),
        }

    def first(self) -> list[MarianCase]:
        lists = [MarianCase("lists", ((6 + place, 99),)) for place in (0, 5, 16, 17, 20)]
        whole = [MarianCase(kind, run=True) for kind in FILES]
        return [*whole, *lists, MarianCase("model", ((990, NAN),), spread=True)]

    def cases(self) -> SearchStrategy[MarianCase]:
        numbers = st.lists(st.tuples(st.integers(0, 999), st.sampled_from(NUMBERS)), max_size=3).map(tuple)
        few = st.lists(st.tuples(st.integers(0, 160), st.sampled_from(NUMBERS)), max_size=3).map(tuple)
        kinds = st.sampled_from(("model", "model", "model", "lists", "lists", "npz", "npz", "pieces"))
        damage = st.one_of(st.just(()), st.just(()), changes(TOKENS))
        seldom = st.sampled_from((False,) * 15 + (True,))
        near = st.builds(MarianCase, kinds, few, damage, st.just(False), seldom)
        return st.one_of(near, near, st.builds(MarianCase, kinds, numbers, damage, st.just(True), seldom))

    def check(self, case: MarianCase, folder: Path) -> None:
        content = bytearray(self.sound[case.kind])
        for place, number in case.numbers:
            start = len(content) * place // 1000 // 8 * 8 if case.spread else 8 * place
            if start + 8 <= len(content):
                struct.pack_into("<Q", content, start, number)
        whole = expanded(changed(((bytes(content), 1),), case.damage)) if case.damage else bytes(content)
        if case.kind == "lists" and case.numbers:
            whole = whole[:8] + struct.pack("<Q", _checksum(whole)) + whole[16:]
        for kind, name in FILES.items():
            (folder / name).write_bytes(whole if kind == case.kind else self.sound[kind])
        if case.kind == "lists":
            _check_lists(whole)
        elif case.kind == "model":
            items = read_items(whole, "model")
            if whole == self.sound["model"]:
                assert write_items(items) == whole, "another file is written"
            for name, array in float_arrays(items).items():
                assert array.dtype == np.uint8 or np.isfinite(array).all(), f"{name} is not finite"
        elif case.kind == "npz":
            arrays = read_npz(folder / FILES["npz"])
            assert sum(array.nbytes for array in arrays.values()) <= 64 * len(whole) + 1000, "more than there is"
        name, model = ("marian", "npz") if case.kind == "npz" else ("firefox", "model")
        places = [folder / FILES[kind] for kind in (model, "pieces", *(("lists",) if model == "model" else ()))]
        weights = build_importer(name, {}).read(list(map(str, places))).weights(self.tensors)
        assert weights.keys() == self.tensors.keys()
        if case.run:
            import_run([name, *map(str, places)], folder / "run")


def _check_lists(content: bytes) -> None:
    lists = read_shortlist(content, 24, "lists")
    assert (lists.ids < 24).all(), "ids beyond the vocabulary"
    for source in range(24):
        allowed = lists.allowed([source], 24)
        assert allowed[source], "a source does not have its own id"
        assert allowed.sum() % 8 == 0 or allowed.all(), "no multiple of eight"


def _checksum(content: bytes) -> int:
    """That of Marian, so that a case comes past it."""
    seed = 0
    for (word,) in struct.iter_unpack("<Q", content[16 : len(content) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) % (1 << 64)
    return seed
