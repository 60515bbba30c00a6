"""The page of the first ten minutes does what it says, in miniature."""

from pathlib import Path

from tests.docs.pages import ROOT, run_page
from tests.docs.test_tutorial import write_corpus

SMALL = (
    "vocabulary.kind=whitespace model.dim=16 model.feed_forward=16 model.heads=2 training.updates=10"
    " training.checkpoint_every=10 training.batch_tokens=256 training.precision=float32 optimizer.warmup=2"
    " decoding.beam=2"
)


INSTALLED = dict.fromkeys(("python3 -m venv", ".venv/bin/pip", "export PATH"), "it is installed")


def test_the_page_runs(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    sides = [(tmp_path / f"corpus.{suffix}").read_text(encoding="utf-8").splitlines() for suffix in ("ja", "en")]
    pairs = sorted(set(zip(*sides, strict=True)))
    (tmp_path / "pairs.tsv").write_text("".join(f"{ja}\t{en}\n" for ja, en in pairs), encoding="utf-8")
    printed = run_page(
        ROOT / "docs" / "first-ten-minutes.md",
        tmp_path,
        INSTALLED,
        **{"headway new": "headway new --minutes 1", "data.folder=data": f"data.folder=data {SMALL}"},
    )
    count = len(pairs)
    sizes = f"train: {round(0.8 * count)} pairs, dev: {round(0.9 * count) - round(0.8 * count)} pairs"
    assert sizes in printed
    assert "time of all" in printed
    assert "BLEU" in printed
    assert (tmp_path / "heat.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "runs" / "first" / "README.md").is_file()
    assert (tmp_path / "runs" / "first" / "inside.html").is_file()
