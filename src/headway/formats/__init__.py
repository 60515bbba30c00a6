"""Formats of corpora by name. Each opens itself as pairs, labelled words or recordings (`corpus_format`)."""

from typing import TYPE_CHECKING, Literal

from headway.registry import Registry

if TYPE_CHECKING:
    from headway.formats.corpus_format import CorpusFormat

LabelColumn = Literal["upos", "xpos", "lemma", "deprel"]  # of CoNLL-U
FORMATS: "Registry[CorpusFormat]" = Registry(
    "corpus format",
    "headway.formats.corpus_format:CorpusFormat",
    {
        "parallel": "headway.formats.parallel_files:ParallelLines",
        "tsv": "headway.formats.tsv:Tsv",
        "jsonl": "headway.formats.json_lines:JsonLinesFile",
        "hub": "headway.formats.json_lines:Hub",
        "trees": "headway.formats.treebanks:Treebank",
        "columns": "headway.formats.labelled_words:Columns",
        "conllu": "headway.formats.conllu:Conllu",
        "m2": "headway.formats.m2:M2",
        "librispeech": "headway.formats.recordings:LibriSpeech",
    },
)
