"""The hooks of the site: formulas are drawn by the browser itself, code stays as it is."""

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

HOOKS = Path(__file__).parents[2] / "scripts" / "site_pages.py"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
    spec = importlib.util.spec_from_file_location("site_pages", HOOKS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(path: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=path))


def test_formulas_of_notebooks_become_mathml(hooks: ModuleType) -> None:
    content = '<p>if $a_1 &lt; 2$</p><pre>echo $HOME $PATH</pre>$$\\frac{a}{b}$$<script src=""></script>'
    made = hooks.on_page_content(content, page("lesson.ipynb"))
    assert made.startswith('<p>if <math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><msub>')
    assert "<pre>echo $HOME $PATH</pre>" in made
    assert made.endswith("<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac></mrow></math>")
    assert hooks.on_page_content(content, page("page.md")) == content


def test_links_out_of_the_site_are_names(hooks: ModuleType) -> None:
    text = "[the recipe](../../recipes/a.yaml), [b](../other.md)"
    assert hooks.on_page_markdown(text, page("lessons/a.md")) == "the recipe (`recipes/a.yaml`), [b](../other.md)"
