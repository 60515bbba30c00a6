"""Registry of corpus formats. Each reads a corpus as pairs, labelled words or recordings (`corpus_format`)."""

from typing import TYPE_CHECKING, Literal

from headway.core.registry import Registry

if TYPE_CHECKING:
    from headway.formats.corpus_format import CorpusFormat

LabelColumn = Literal["upos", "xpos", "lemma", "deprel"]  # of CoNLL-U
FORMATS: "Registry[CorpusFormat]" = Registry(
    "corpus format",
    "headway.formats.corpus_format:CorpusFormat",
    {
        "parallel": "headway.formats.pair_formats:ParallelLines",
        "tsv": "headway.formats.pair_formats:Tsv",
        "jsonl": "headway.formats.pair_formats:JsonLinesFile",
        "hub": "headway.formats.pair_formats:Hub",
        "tmx": "headway.formats.translation_files:Tmx",
        "po": "headway.formats.translation_files:Po",
        "trees": "headway.formats.treebanks:Treebank",
        "columns": "headway.formats.labelled_words:Columns",
        "conllu": "headway.formats.conllu:Conllu",
        "m2": "headway.formats.labelled_words:M2",
        "librispeech": "headway.formats.recordings:LibriSpeech",
        "absent": "headway.formats.absent:Absent",
    },
)
