"""The model that a page carries: in a real browser it writes what `predict` writes, with and without its parts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

import headway
from headway.importing.importing import import_run
from headway.inspect import carried_model as carried
from headway.inspect.inspection import inspect, pack_sentences, write_inspection
from headway.mixers.attention import Attention
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tensors.batch import collate
from tests.conftest import Command
from tests.pages.browser import open_browser
from tests.predictors.test_captured_attention import MODELS, untrained
from tests.tasks.marian import SOURCES, TARGETS
from tests.tasks.marian_npz import PRE, SSRU, TARGET, write_model
from tests.tiers import thinned, tiered

LINES = ["abcd", "", "ba", "dcabdc"]
HEADS = [":head=1", ":head=2"]
NGRAMS = {"kind": "ngram", "n": 3}
RELATIVE = ("t5", "alibi", "rotary")
GATES = ("none", "fixed", "scalar", "vector")


def both(*mixers: Any, **changes: Any) -> dict[str, Any]:
    """Two layers a side, of these mixers."""
    stack = {"layers": 2, "mixer": list(mixers) if len(mixers) > 1 else mixers[0]}
    return {"encoder": stack, "decoder": stack, **changes}


def linear(kind: str, gate: str, **options: Any) -> dict[str, Any]:
    return both({"kind": kind, "gate": gate, **options})


def scored(score: Any, **changes: Any) -> dict[str, Any]:
    return {"decoder": {"layers": 2, "cross": {"kind": score, **changes}}}


DELTA: dict[str, Any] = {"negative_eigenvalues": True, "output_gate": True}
# By name a model of `MODELS`, attention where there is none of that name, and what is changed in it.
FAST = {"modern", "delta, all", "luong, preset"}
KINDS: dict[str, dict[str, Any]] = {
    **{name: {} for name in MODELS},
    "n-grams": {
        "encoder": {"layers": 2, "mixer": NGRAMS | {"global_context": True}},
        "decoder": {"layers": 2, "mixer": NGRAMS | {"global_context": "prefix"}},
    },
    "mixed": {
        "encoder": {"layers": 2, "mixer": [NGRAMS, "attention"]},
        "decoder": {"layers": 2, "mixer": ["attention", NGRAMS]},
        "activation": "swish", "norm_kind": "rms", "position": "none", "tied": "none", "key_dim": 3, "value_dim": 5,
        "embedding_norm": True, "first_input": "zero", "output_bias": True,
    },
    **{f"{kind}, {relative}": {"position": relative} for relative in RELATIVE for kind in ("decoder-only", "local")},
    "modern": {
        "norm": "pre", "norm_kind": "rms", "feed_forward": {"kind": "swiglu", "hidden": 8}, "position": "rotary",
        "bias": False, "query_key_norm": True, "value_residual": True,
    },
    "decoder-only, modern": {
        "norm": "pre", "norm_kind": "rms", "feed_forward": {"kind": "geglu", "hidden": 8}, "position": "alibi",
        "query_key_norm": True, "value_residual": True, "tied": "target",
    },
    "decoder-only, learned": {"position": "learned", "max_position": 64},
    "shared keys": both({"kind": "attention", "key_value_heads": 1}, activation="gelu"),
    "forgetting": both({"kind": "attention", "forget": True}, position="t5"),
    "Canon": {
        **{side: {"layers": 2, "canon": "ABCD"} for side in ("encoder", "decoder")},
        "feed_forward": {"kind": "swiglu", "hidden": 8},
    },
    "depth": {side: {"layers": 2, "residual": "attention"} for side in ("encoder", "decoder")},
    "depth of blocks": {
        **{side: {"layers": 2, "residual": {"kind": "attention", "over": "blocks"}} for side in ("encoder", "decoder")},
        "norm": "pre",
    },
    "merged": {"decoder": {"layers": 2, "cross": "merged", "canon": "B"}, "position": "t5"},
    "lightconv": both({"kind": "lightconv", "width": 4, "heads": 2}),
    "nplm": both({"kind": "nplm", "n": 2, "blocks": 2, "block_size": 2, "kernels": 2}),
    "ssru": both("ssru"),
    **{f"linear, {gate}": linear("linear", gate) for gate in GATES},
    "linear, Canon": linear("linear", "none", canon=True),
    **{f"delta, {gate}": linear("delta", gate) for gate in GATES if gate != "fixed"},
    "delta, all": linear("delta", "vector", canon=True, **DELTA),
    **{f"cross, {score}": scored(score) for score in ("dot", "general", "additive", "location")},
    "cross, local-p": scored("general", window="local-p", width=2, scaled=True),
    "bahdanau, preset": {
        "cell": "gru", "readout": "maxout", "encoder": {"layers": 1, "hidden": 6, "bidirectional": True},
        "decoder": {"layers": 2, "hidden": 5, "start": "project"},
    },
    "bahdanau, previous": {"cell": "cho_gru", "readout": {"kind": "maxout", "state": "previous"}},
    "luong, preset": {
        "encoder": {"layers": 2, "hidden": 6, "reverse": True}, "decoder": {"layers": 2, "hidden": 6},
        "attention": {"score": {"kind": "multi_head", "heads": 2}, "input_feeding": True},
    },
    "luong, local": {"attention": {"score": "location", "window": "local-p", "width": 2}},
    "luong, hard": {"attention": {"kind": "hard", "score": "concat"}},
    "luong, last": {"attention": {"kind": "last", "timing": "bahdanau"}, "readout": "maxout"},
    "luong, none": {"attention": "none", "readout": "state"},
}  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def write(path: Path, own: SequencePredictor, nbest: int = 3) -> dict[str, Any]:
    examples = [Example(line) for line in LINES]
    model = carried.carried_model(own, examples, nbest)
    packed = pack_sentences(inspect(own, examples, nbest=nbest), len(examples))
    write_inspection(path, title="t", facts=[], packed=packed, model=model)
    return model


def opened(browser: Browser, path: Path, **options: Any) -> Page:
    page = browser.new_context(color_scheme="light", **options).new_page()
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(path.as_uri())
    return page


SEARCH = """([model, number, off]) => {
    const spec = model ?? JSON.parse(find("model").textContent);
    return createModel(spec).search(number, new Set(off));
}"""


def log_probabilities(own: SequencePredictor, line: str, ids: list[int]) -> list[float]:
    """Those of the tokens of an output and of its end, all scored at once."""
    pair = collate([np.asarray(own.read(line).values)], [np.asarray(ids, dtype=np.int64)])
    with torch.no_grad():
        logs = own.models[0](pair).logits[0].log_softmax(-1)
    return logs.gather(1, pair.target_output[0][:, None]).squeeze(1).tolist()


def check_alike(
    page: Page, own: SequencePredictor, off: list[str], model: dict[str, Any] | None = None, lines: list[str] = LINES
) -> None:
    """The search of a page, of its own model or of another, finds what `predict` does without some parts.

    Of outputs that are equally good it may find another one: those of the page are scored by the model. Where all
    tokens are equally good, chance decides which hypotheses a beam keeps, and scores are not compared.
    """
    with own.models[0].intervened(dict.fromkeys(off, "zero")):
        outputs = own.predict(lines, beam=max(3, own.recipe.decoding.beam), nbest=3)
        for number, output in enumerate(outputs):
            if output.is_empty:
                continue
            found = page.evaluate(SEARCH, [model, number, off])
            if len({round(log, 4) for each in output.hypotheses for log in each.log_probabilities}) > 1:
                scores = [hypothesis.score for hypothesis in output.hypotheses]
                np.testing.assert_allclose([each["score"] for each in found], scores, atol=1e-4)
            for each in found:
                logs = log_probabilities(own, lines[number], each["ids"])
                np.testing.assert_allclose(each["logs"], logs, atol=1e-4)
            assert model or [tuple(each["ids"]) for each in found] == [each.ids for each in output.hypotheses]


@pytest.fixture(scope="module")
def page(browser: Browser, predictor: SequencePredictor, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A page with the scripts of every page."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write(path, predictor)
    return opened(browser, path)


def test_a_trained_model_writes_the_same(predictor: SequencePredictor, browser: Browser, tmp_path: Path) -> None:
    model = write(tmp_path / "page.html", predictor)
    page = opened(browser, tmp_path / "page.html")
    layers = {"encoder.1": ("self",), "decoder.1": ("self", "cross"), "decoder.2": ("self", "cross")}
    assert {*model["switches"]} == {
        *(f"{layer}.{kind}{part}" for layer, kinds in layers.items() for kind in kinds for part in ("", *HEADS)),
        *(f"{layer}.feed_forward" for layer in layers),
    }
    for off in ([], *([name] for name in model["switches"]), model["switches"]):
        check_alike(page, predictor, off)


@pytest.mark.parametrize("kind", [tiered(kind, slow=kind not in FAST) for kind in KINDS])
def test_every_kind_of_model_writes_the_same(predictor: SequencePredictor, page: Page, kind: str) -> None:
    base = next((name for name in (kind, kind.partition(",")[0]) if name in MODELS), "attention")
    own = untrained(predictor, base, **KINDS[kind])
    model = carried.carried_model(own, [Example(line) for line in LINES], 3)
    assert "why" not in model
    if kind == "n-grams":
        assert {"encoder.1.self:offset=+2", "encoder.2.self:offset=global", "decoder.2.self:offset=prefix"} <= {
            *model["switches"]
        }
    for off in ([], *([name] for name in model["switches"][::3]), model["switches"][1::2]):
        check_alike(page, own, off, model=model)


@pytest.mark.parametrize(
    "search",
    thinned(
        [
            {"no_repeat_ngram": 2},
            {"length_penalty": 1.5, "length_penalty_kind": "power", "stop": "worst"},
            {"length_penalty": 3.0, "stop": "full"},
        ],
        3,
        1,
    ),
    ids=str,
)
def test_the_search_is_that_of_the_recipe(predictor: SequencePredictor, page: Page, search: dict[str, Any]) -> None:
    own = untrained(predictor, "attention")
    own.recipe = own.recipe.model_copy(update={"decoding": own.recipe.decoding.model_copy(update=search)})
    check_alike(page, own, [], model=carried.carried_model(own, [Example(line) for line in LINES], 3))


@pytest.mark.parametrize("kind", thinned([PRE, SSRU | TARGET | {"transformer-ffn-activation": "gelu"}], 2, 1))
def test_an_imported_marian_model_is_cut_attributed_and_carried(
    run_headway: Command, page: Page, tmp_path: Path, kind: dict[str, Any]
) -> None:
    file, _, options = write_model(tmp_path / "marian", **kind)
    names = ("vocab.spm",) if options["tied-embeddings-all"] else ("source.spm", "target.spm")
    run, sides = tmp_path / "run", [tmp_path / "source", tmp_path / "target"]
    import_run(["marian", str(file), *(str(file.parent / name) for name in names)], run)
    for side, lines in zip(sides, (SOURCES, TARGETS), strict=True):
        side.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    given = ["--input", sides[0], "--reference", sides[1]]
    code, out, err = run_headway("inspect", "ablate", run, "--what", "decoder.*.cross:heads", *given, "--json")
    assert code == 0, err
    parts = [f"decoder.{layer}.cross{head}" for layer in (1, 2) for head in HEADS]
    assert {each["part"] for each in json.loads(out)["ablations"][0]["parts"]} == {*parts}
    own = headway.load(run, device="cpu")
    assert isinstance(own, SequencePredictor)
    (values,) = own.attribute(own.predict([SOURCES[0]], max_length=6), "gradient_input")
    assert np.abs(values["gradient_input"]).sum() > 0
    model = carried.carried_model(own, [Example(line) for line in SOURCES[:2]], 3)
    assert "why" not in model
    for off in ([], parts[:1], ["encoder.1.self", "decoder.2.self"]):
        check_alike(page, own, off, model, SOURCES[:2])


class Odd(Attention):
    """Attention of somebody else's."""


def test_a_page_says_in_words_why_it_has_no_switches(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = untrained(predictor, "attention", **both(f"{__name__}:Odd"))
    why = "Parts have no switches here: no page computes a Odd."
    assert carried.carried_model(own, [Example("ab")], 1) == {"why": why}
    monkeypatch.setattr(carried, "MOST_PARAMETERS", 1000)
    write(tmp_path / "page.html", predictor)
    page = opened(browser, tmp_path / "page.html")
    expect(page.locator("#switches")).to_be_hidden()
    expect(page.locator("#why")).to_contain_text("a page carries models of up to a million parameters")


@pytest.mark.parametrize("touch", thinned([False, True], 2))
def test_switches_change_the_output_at_once(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path, touch: bool
) -> None:
    write(tmp_path / "page.html", predictor)
    size = {"width": 390, "height": 844} if touch else {"width": 1200, "height": 800}
    page = opened(browser, tmp_path / "page.html", viewport=size, has_touch=touch, is_mobile=touch)
    page.get_by_text("Switch parts off").click()
    said = page.locator("#tree > li").first.locator(".said").first
    expect(said).to_have_text("dcba")
    expect(page.locator("#switched")).to_have_text("All parts are on: the output is as above.")
    parts = [f"decoder.{layer}.cross:head={head}" for layer in (1, 2) for head in (1, 2)]
    for part in parts:
        button = page.locator(f'[data-part="{part}"]')
        button.tap() if touch else button.click()
        expect(button).to_have_attribute("aria-pressed", "false")
    with predictor.models[0].intervened(dict.fromkeys(parts, "zero")):
        (output,) = predictor.predict("abcd", beam=4, nbest=3)
    expect(said).to_have_text(output.text)
    expect(page.locator("#switched")).to_have_text(f"4 off: the output is another: {output.text}")
    page.get_by_role("button", name="next sentence").click()  # an empty line
    expect(page.locator("#tree > li")).to_have_count(0)
    page.get_by_role("button", name="previous sentence").click()
    expect(said).to_have_text(output.text)
    page.get_by_role("button", name="All on").click()
    expect(said).to_have_text("dcba")


def test_switches_and_the_tree_are_used_with_the_keyboard(
    predictor: SequencePredictor, browser: Browser, tmp_path: Path
) -> None:
    write(tmp_path / "page.html", predictor, nbest=1)
    page = opened(browser, tmp_path / "page.html")
    page.locator("#switches > summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".switch").first).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator('[data-part="encoder.1.self"]')).to_have_attribute("aria-pressed", "false")
    expect(page.locator('[data-part="encoder.1.self"]')).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    expect(page.locator('[data-part="encoder.1.feed_forward"]')).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator('[data-part="encoder.1.self:head=1"]')).to_be_focused()
    page.locator("#tree > li > .chips button").first.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")  # dc
    page.keyboard.press("Enter")
    choices = page.locator("#tree > li > .others button")
    expect(choices).to_have_count(5)
    expect(choices.first).to_be_disabled()
    other = choices.nth(1)
    token = other.locator("bdi").inner_text()
    other.focus()
    page.keyboard.press("Enter")
    grown = page.locator("#tree > li > .branches > li .chips").first
    expect(grown.locator("button").nth(2)).to_be_focused()
    (output,) = predictor.predict("abcd", beam=4, prefixes=[f"d{token}"])
    assert grown.locator("button bdi").all_inner_texts() == ["␣", *output.text, "</s>"]
