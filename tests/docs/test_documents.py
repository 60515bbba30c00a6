"""The page on documents does what it says, in miniature."""

import json
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page
from tests.export.student import lines


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    pairs = lines(300, 1)
    units = [
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="de"><seg>{target}</seg></tuv></tu>\n'
        for source, target in pairs[:200]
    ]
    memory = f'<tmx version="1.4"><header srclang="en"/><body>\n{"".join(units)}<tu/></body></tmx>'
    (tmp_path / "memory.tmx").write_text(memory, encoding="utf-8")
    messages = [f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in dict(pairs[200:]).items()]
    (tmp_path / "old.po").write_text("".join(messages), encoding="utf-8")
    source, target = pairs[0]
    (tmp_path / "terms.tsv").write_text(f"{source.split()[0]}\t{target.split()[0]}\nhouse\tHaus\n", encoding="utf-8")
    (tmp_path / "messages.po").write_text(f'msgid "<b>{source}</b> %s"\nmsgstr ""\n', encoding="utf-8")
    (tmp_path / "lines.txt").write_text(f"{source}\n", encoding="utf-8")
    small = (
        "train recipe.yaml vocabulary.size=80 model.dim=16 model.heads=2 model.feed_forward=32 model.encoder.layers=1 "
        "model.decoder.layers=1 training.epochs=2 training.batch_tokens=1024"
    )
    printed = run_page(ROOT / "docs" / "documents.md", tmp_path, **{"train recipe.yaml": small})
    assert re.search("^one house: .*\none garden: ", printed, re.MULTILINE)
    assert sorted(path.name for path in (tmp_path / "translated").iterdir()) == ["messages.po", "page.html"]
    page, result = ((tmp_path / name).read_text(encoding="utf-8") for name in ("page.html", "seite.html"))
    assert sorted(re.findall(r"<[^>]*>", page)) == sorted(re.findall(r"<[^>]*>", result))
    for kept in ("<code>me()</code>", "me@example.org", "{name}"):
        assert result.count(kept) == 1
    assert re.search(r'msgstr ".*%s.*"', (tmp_path / "de.po").read_text(encoding="utf-8"))
    assert json.loads((tmp_path / "terms.json").read_text(encoding="utf-8"))["asked"] >= 1
    assert (tmp_path / "zeilen.txt").read_text(encoding="utf-8").count("\n") == 1
