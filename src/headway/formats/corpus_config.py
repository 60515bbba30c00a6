"""A corpus, as the `data` section of a recipe names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from headway.config import Section


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | Path) else value


class CorpusConfig(Section):
    """Where examples come from. Pairs: two line-aligned files, one TSV, one JSONL file or a data set of the hub.

    Plain files may be compressed (.gz, .xz). `columns` names the source and target column of a TSV (numbers from 1, or
    names that stand in its first row), or the two fields of a JSONL file or hub data set (dots reach into nested
    fields: `translation.de`). Further columns, or `references` in the place of `target`, are further references:
    metrics compare with all of them, training learns the first.

    Speech: pairs whose source is the path of a recording, relative to the file it stands in, or one or more folders
    laid out as `librispeech` is.

    Labelled words: a `tsv` with a word a row and a blank line between sentences (`columns`: those of word and label), a
    `conllu` file (`label`: its column), an `m2` file (`annotator`: one by number, or all) or a `source` with corrected
    `references`, from which wrong words are found.

    `trees`: a treebank in Penn brackets or TIGER-XML. The target is the linear form of a tree, with `leaves` of `tags`
    or `xx`; `functions` keeps what labels say of grammatical functions.
    """

    source: Path | None = None
    target: Path | None = None
    tsv: Path | None = None
    jsonl: Path | None = None
    hub: str | None = None
    hub_config: str | None = None
    split: str | None = None
    m2: Path | None = None
    annotator: Annotated[int, Field(ge=0)] | None = None
    conllu: Path | None = None
    label: Literal["upos", "xpos", "lemma", "deprel"] = "upos"
    references: tuple[Path, ...] = ()
    librispeech: Annotated[tuple[Path, ...], BeforeValidator(_listed)] = ()
    trees: Path | None = None
    leaves: Literal["tags", "xx"] = "tags"
    functions: bool = False
    columns: tuple[str, ...] | tuple[int, ...] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> CorpusConfig:
        origins = (self.tsv, self.jsonl, self.hub, self.m2, self.conllu, self.librispeech, self.trees)
        files = self.source is not None or self.target is not None or bool(self.references)
        if files + sum(map(bool, origins)) != 1:
            raise ValueError(
                "a corpus is either {source, target}, {tsv}, {jsonl}, {hub}, {m2}, {conllu}, {trees}, {references} or"
                " {librispeech}"
            )
        if files and (self.source is None or (self.target is None) != bool(self.references)):
            raise ValueError("a corpus of several files needs a source, and a target or references")
        if self.columns is not None and len(self.columns) < 2:
            raise ValueError("columns are those of the source and of one or more targets")
        if self.annotator is not None and not self.m2:
            raise ValueError("annotator belongs to m2")
        if (self.leaves != "tags" or self.functions) and not self.trees:
            raise ValueError("leaves and functions belong to trees")
        if self.tsv and any(isinstance(column, int) and column < 1 for column in self.columns or ()):
            raise ValueError("columns of a TSV are numbers, counted from 1, or names of its first row")
        if (self.jsonl or self.hub) and not (self.columns and all(isinstance(name, str) for name in self.columns)):
            raise ValueError("a jsonl or hub corpus needs columns: [source field, target field]")
        return self

    def origin(self) -> str:
        """Which kind of origin this is, by the key that tells, such as target (of two files), tsv or trees."""
        keys = ("target", "tsv", "jsonl", "hub", "m2", "conllu", "references", "trees", "librispeech")
        return next(key for key in keys if getattr(self, key))
