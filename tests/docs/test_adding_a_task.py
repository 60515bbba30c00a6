"""The page on adding a task does what it says."""

from tests.docs.pages import ROOT, run_page

REFUSED = "\nheadway predict runs/g2p < dev.words 2> refused.txt && exit 1 || echo refused with $?"


def test_the_page_runs(tmp_path):
    page = ROOT / "docs" / "adding-a-task.md"
    printed = run_page(page, tmp_path, **{"--output runs/g2p\n": f"--output runs/g2p{REFUSED}\n"}).splitlines()
    assert (printed[0], printed[-1]) == ("refused with 2", "SH IY T AA")
    (shown,) = (line.strip() for line in page.read_text(encoding="utf-8").splitlines() if "error: data" in line)
    assert (tmp_path / "refused.txt").read_text(encoding="utf-8").splitlines()[0] == shown
    score = next(line for line in printed if line.startswith("out.phonemes"))
    assert float(score.split()[1]) < 30
    assert "per: unit:phoneme|version:g2p-1" in printed
    assert (tmp_path / "runs" / "g2p" / "report.html").exists()
