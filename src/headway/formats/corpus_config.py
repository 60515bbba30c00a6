"""The corpora of a recipe: `{kind: tsv, path: ...}`, a short form of it, or a list of either."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
)

from headway.core.config import Section, explain
from headway.core.errors import UserError
from headway.formats import FORMATS
from headway.tensors.batch import SPECIALS

TAGS = re.compile(r"<[^<>\s]+>( <[^<>\s]+>)*")


def _tag(value: str) -> str:
    """Raise ValueError if `value` is not one or more tags, or contains a special token."""
    if not TAGS.fullmatch(value) or set(SPECIALS) & set(value.split()):
        raise ValueError(f"a tag is such as <2de>, several such as <2de> <new>; none is {', '.join(SPECIALS)}")
    return value


class CorpusConfig(Section):
    """A corpus: a format with its options. Paths are relative to `data.folder`.

    `kind`: the name of a format. `weight`: the relative frequency of the corpus's pairs in training with several
    corpora; all of them have a weight, or none. `tag`: one or more tokens such as `<2de>` before each source. `terms`:
    a glossary, SOURCE TAB TARGET per line; half of the sources with a term are annotated with its translation (Dinu et
    al. 2019).
    """

    kind: str
    weight: Annotated[float, Field(gt=0, le=1e9)] | None = None
    tag: Annotated[str, AfterValidator(_tag)] | None = None
    terms: Path | None = None


# Keys that imply the kind: `{tsv: FILE}` is short for `{kind: tsv, path: FILE}`.
SHORT_FORMS: dict[str, dict[str, str]] = {
    "parallel": {"source": "source", "target": "target", "references": "references"},
    "tsv": {"tsv": "path"},
    "jsonl": {"jsonl": "path"},
    "hub": {"hub": "name", "hub_config": "configuration"},
    "trees": {"trees": "path"},
    "conllu": {"conllu": "path"},
    "m2": {"m2": "path"},
    "librispeech": {"librispeech": "folders"},
}
# Keys that written-out short forms have, whatever their kind.
ALWAYS_WRITTEN = {"label": "upos", "leaves": "tags", "functions": False}
EITHER = (
    "a corpus is either {kind: NAME, ...} or, for short, {source, target}, {source, references}, {tsv}, {jsonl}, {hub},"
    " {m2}, {conllu}, {trees} or {librispeech}"
)


def expand(value: Any) -> dict[str, Any]:
    """The long form of a corpus. Raises ValueError if a short form matches no kind of corpus, or several."""
    given = dict(value) if isinstance(value, Mapping) else {}
    if "kind" not in given:
        given = {name: option for name, option in given.items() if option is not None and option not in ([], ())}
        kinds = [kind for kind, names in SHORT_FORMS.items() if names.keys() & given.keys()]
        if len(kinds) != 1:
            raise ValueError(EITHER)
        given["kind"] = kinds[0]
        known = {choice.name for choice in FORMATS.choices(kinds[0])}
        given = {
            name: option
            for name, option in given.items()
            if name in known or name not in ALWAYS_WRITTEN or option != ALWAYS_WRITTEN[name]
        }
    for short, name in SHORT_FORMS.get(str(given["kind"]), {}).items():
        if short in given:  # also if a kind is given, so that overriding the short form changes the long one
            given[name] = given.pop(short)
    return given


def _parse_one(value: Any) -> Any:
    return value if isinstance(value, CorpusConfig) else FORMATS.section(expand(value))


OneCorpus = Annotated[SerializeAsAny[CorpusConfig], BeforeValidator(_parse_one)]
_Corpora = tuple[OneCorpus, ...]
_SEVERAL: TypeAdapter[_Corpora] = TypeAdapter(Annotated[_Corpora, Field(min_length=1)])


def _parse(value: Any) -> Any:
    return _SEVERAL.validate_python(tuple(value)) if isinstance(value, list | tuple) else _parse_one(value)


AnyCorpus = CorpusConfig | _Corpora
# A corpus in Python code, written like a part of a recipe.
GivenCorpus = AnyCorpus | Mapping[str, Any] | Sequence[Mapping[str, Any]]
# A corpus as a field of a recipe.
CorpusField = Annotated[SerializeAsAny[CorpusConfig] | _Corpora, PlainValidator(_parse)]


class _CorpusAlone(Section):
    corpus: CorpusField


def parse_corpus(value: GivenCorpus, where: str) -> AnyCorpus:
    """Parse a corpus, or a list of corpora, that is not part of a recipe. Raises UserError."""
    try:
        return _CorpusAlone.model_validate({"corpus": value}).corpus
    except ValidationError as error:
        raise UserError(re.sub("(?m)^corpus", lambda _: where, explain(error, _CorpusAlone))) from error


def parts(corpus: GivenCorpus, where: str) -> list[tuple[str, CorpusConfig]]:
    """The corpora of a list, or the single corpus, each with its recipe key such as `data.train.0`."""
    parsed = corpus if isinstance(corpus, CorpusConfig) else parse_corpus(corpus, where)
    if isinstance(parsed, CorpusConfig):
        return [(where, parsed)]
    return [(f"{where}.{index}", part) for index, part in enumerate(parsed)]


def paths_resolved(corpus: AnyCorpus, resolve: Callable[[Path], Path]) -> AnyCorpus:
    """The corpora with `resolve` applied to all of their paths."""

    def resolved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(resolved, value))
        if isinstance(value, CorpusConfig):
            return value.model_copy(update={name: resolved(option) for name, option in value})
        return resolve(value) if isinstance(value, Path) else value

    return cast(AnyCorpus, resolved(corpus))
