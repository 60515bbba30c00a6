"""Documents and terms through a run that writes the words of a sentence backwards."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headway.cli import main
from headway.core.errors import UserError
from headway.markup.documents import translate_document
from headway.predictors.sentence_translator import SentenceTranslator, _spans, aligned
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import WordAlignment
from headway.runs.load import load


@pytest.fixture(scope="module")
def predictor(backwards: Path) -> SequencePredictor:
    found = load(backwards / "run", device="cpu")
    assert isinstance(found, SequencePredictor)
    return found


def test_tags_go_where_the_attention_goes(predictor: SequencePredictor) -> None:
    translator = SentenceTranslator(predictor, beam=1)
    text = b"<p>a <b>b c</b> d<p><i>e f g</i> <img> a</p>\n"
    result = translate_document(text, "x.html", translator, translator.languages)
    assert result == b"<p>d <b>c b</b> a<p><img> a <i>g f e</i></p>\n"


def test_subtitles_are_joined_up_to_the_length_of_training(predictor: SequencePredictor) -> None:
    translator, longest = SentenceTranslator(predictor), predictor.recipe.data.max_length
    assert translator.fits("a " * longest)
    assert not translator.fits("a " * (longest + 1))


def test_a_sentence_that_is_too_long(predictor: SequencePredictor) -> None:
    with pytest.raises(UserError, match="'a b c d': this line is too long"):
        SentenceTranslator(predictor, max_source_length=3)(["a b c", "a b c d"])
    kept = SentenceTranslator(predictor, max_source_length=3, skip_broken=True)(["a b c", "a b c d"])
    assert [one.text for one in kept] == ["c b a", "a b c d"]


def test_terms_are_searched_for(predictor: SequencePredictor) -> None:
    """A term that no good hypothesis has is found among those of a wider search, or is counted as missing."""
    plain = predictor.predict(["a b c", "d e f"], beam=1)
    asked = predictor.predict(["a b c", "d e f"], beam=1, terms={"a": "d", "f": "f", "g": "x"})
    assert plain[0].terms.asked == 0
    assert [(one.terms.asked, one.terms.first) for one in asked] == [(1, 0), (1, 1)]
    assert asked[1].text == plain[1].text
    assert ("d" in asked[0].text.split()) == bool(asked[0].terms.kept)
    assert asked[0].terms.kept == 1
    assert asked[0].text != plain[0].text


def test_hypotheses_with_as_many_terms_stay_in_the_order_of_their_scores(predictor: SequencePredictor) -> None:
    plain, asked = (predictor.predict(["a b c"], nbest=4, beam=4, **more)[0] for more in ({}, {"terms": {"a": "x"}}))
    assert [one.text for one in asked.hypotheses][:4] == [one.text for one in plain.hypotheses]


@pytest.mark.parametrize("options", [{"beam": 4}, {"kind": "mbr", "samples": 8, "temperature": 2.0}], ids=str)
def test_hypotheses_of_a_wider_search_stand_once_among_the_best(
    predictor: SequencePredictor, options: dict[str, Any]
) -> None:
    """With minimum risk all scores are mean utilities."""
    (found,) = predictor.predict(["a b c"], terms={"a": "e", "b": "x"}, nbest=4, **options)
    texts = [one.text for one in found.hypotheses]
    assert len({*texts}) == len(texts)
    assert (min(one.score for one in found.hypotheses) >= 0) == ("kind" in options)


def test_words_of_an_annotated_source() -> None:
    words = ["the", "⟦", "bank", "⇒", "Ufer", "⟧", "is", "Ufer"]
    assert list(_spans(words, "the bank is Ufer")) == [
        (0, 3), None, (4, 8), None, (3, 8), None, (9, 11), (12, 16),
    ]  # fmt: skip


def test_a_word_belongs_where_its_share_is_largest() -> None:
    """The article looks most at its noun, whose translation looks there more; nobody looks at `big`."""
    weights = np.array([[0.3, 0.0, 0.5], [0.1, 0.0, 0.8], [0.0, 0.0, 0.0]])
    words = WordAlignment(("the", "big", "dog"), ("der", "Hund", "."), weights)
    output: Any = SimpleNamespace(source="the big dog", text="der Hund.")
    aligner: Any = lambda output, split: words  # noqa: E731
    assert words.links() == [(2, 0), (2, 1)]
    assert aligned(output, aligner).links == [((0, 3), (0, 3)), ((8, 11), (4, 8))]
    assert aligned(output, None).links == ()


def test_the_command(backwards: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    document, result, report = tmp_path / "a.po", tmp_path / "b.po", tmp_path / "r.json"
    document.write_bytes(b'msgid "a <b>b</b> {x}"\r\nmsgstr ""\r\n')
    (tmp_path / "t.tsv").write_text("a\ta\n", encoding="utf-8")
    run = str(backwards / "run")
    terms = ["--terms", str(tmp_path / "t.tsv"), "--term-report", str(report)]
    with pytest.raises(SystemExit) as ended:
        main(["predict", run, "--file", str(document), "--output", str(result), *terms])
    assert ended.value.code in (0, None)
    written = result.read_bytes()
    assert written.startswith(b'#, fuzzy\r\nmsgid "a <b>b</b> {x}"\r\nmsgstr "')
    assert written.count(b"<b>b</b>") == 2
    assert written.count(b"{x}") == 2
    # Twice: the model does not copy {x}, so that the sentence is decoded again without it.
    assert json.loads(report.read_text()) == {"asked": 2, "kept_at_first": 2, "kept": 2, "term_accuracy": 100.0}
    for arguments, message in [
        (["--file", str(document), "--input", str(document)], "a document is translated, or lines are"),
        (["--file", str(document), "--nbest", "2"], "has no such option"),
        (["--file", str(tmp_path / "t.tsv")], "no such kind of document"),
        (["--file", str(tmp_path / "missing.po")], "cannot read the document"),
        (["--term-report", str(report)], "alone, this option does nothing"),
        (["--final"], "--final: alone, this option does nothing; allowed: beside --file"),
        (["--file", str(document), "--encoding", "klingon"], "--encoding: this encoding is not known"),
        ([str(document)], f"allowed: headway predict RUN --file {document}"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(["predict", run, *arguments])
        assert ended.value.code == 2
        assert message in capfdbinary.readouterr().err.decode()


def test_translations_are_final_and_subtitles_have_the_encoding_that_is_given(
    backwards: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "a.po").write_text('#, fuzzy\nmsgid "a b c"\nmsgstr "d"\n', encoding="utf-8")
    (tmp_path / "b.srt").write_bytes(b"1\n00:01,0 --> 00:02,0\na b \x93c\x94\n")
    files, out = [str(tmp_path / name) for name in ("a.po", "b.srt")], tmp_path / "out"
    options = ["--output-folder", str(out), "--final", "--encoding", "latin1"]
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(backwards / "run"), "--file", *files, *options])
    assert ended.value.code in (0, None)
    assert (out / "a.po").read_text(encoding="utf-8") == 'msgid "a b c"\nmsgstr "c b a"\n'
    assert b"U+201C LEFT DOUBLE QUOTATION MARK" in capfdbinary.readouterr().err


def test_documents_go_into_a_folder_together(
    backwards: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is loaded once, and documents that fail do not keep back the others."""
    loaded, command = list[Path](), ["predict", str(backwards / "run")]
    monkeypatch.setattr(
        "headway.cli.streams.load", lambda *runs, **given: (loaded.extend(runs), load(*runs, **given))[1]
    )
    texts = {
        "a.txt": "a b c\n",
        "b.html": "<p>a b c",
        "c.txt": "d e f\n",
        "d.srt": "no times",
        "e.docx": "",
        "f.po": "x",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    files, out = [str(tmp_path / name) for name in texts], tmp_path / "new" / "out"

    def run(*arguments: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as ended:
            main([*command, *arguments])
        return ended.value.code or 0, capfdbinary.readouterr().err.decode()

    code, said = run("--file", *files[:3], "--output-folder", str(out))
    assert (code, said.count(": 3 characters of text; 3 translated, 0 left as they are\n")) == (0, 3)
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "a.txt": "c b a\n", "b.html": "<p>c b a", "c.txt": "f e d\n"
    }  # fmt: skip
    assert loaded == [backwards / "run"]
    code, said = run("--file", *files, str(tmp_path / "missing.po"), "--output-folder", str(tmp_path / "other"))
    assert (code, sorted(path.name for path in (tmp_path / "other").iterdir())) == (2, ["a.txt", "b.html", "c.txt"])
    assert "4 of 7 documents are not translated" in said
    assert all(f"\n{tmp_path / name}:" in said for name in ("d.srt", "e.docx", "f.po"))
    assert "missing.po" in said
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").touch()
    for arguments, message in [
        (["--file", *files[:2]], "several documents go to a folder"),
        (["--file", *files[:2], "--output-folder", str(tmp_path)], "--output-folder: this file is read"),
        (["--file", files[0], "--output-folder", str(out), "--output", "x"], "a file or to a folder"),
        (["--file", files[0], str(tmp_path / "sub" / "a.txt"), "--output-folder", str(out)], "of one name"),
        (["--output-folder", str(out)], "alone, this option does nothing; allowed: beside --file"),
    ]:
        code, said = run(*arguments)
        assert (code, message in said) == (2, True), said
