"""Processors of text and of recordings: they turn raw inputs into arrays, and model outputs back into text."""

from typing import TYPE_CHECKING

from headway.core.registry import Registry

if TYPE_CHECKING:
    from headway.processing.text.segmentation import Segmenter
    from headway.processing.text.vocabulary import Vocabulary

SEGMENTERS: "Registry[Segmenter]" = Registry(
    "segmenter",
    "headway.processing.text.segmentation:Segmenter",
    {
        "none": "headway.processing.text.segmentation:Segmenter",
        "whitespace": "headway.processing.text.segmentation:WhitespaceSegmenter",
        "moses": "headway.processing.text.segmentation:MosesSegmenter",
        "sudachi": "headway.processing.text.segmentation:SudachiSegmenter",
        "kytea": "headway.processing.text.segmentation:KyteaSegmenter",
    },
)

VOCABULARIES: "Registry[Vocabulary]" = Registry(
    "vocabulary",
    "headway.processing.text.vocabulary:Vocabulary",
    {
        "bpe": "headway.processing.text.subwords:SubwordVocabulary",
        "unigram": "headway.processing.text.subwords:SubwordVocabulary",
        "char": "headway.processing.text.subwords:SubwordVocabulary",
        "byte": "headway.processing.text.vocabulary:ByteVocabulary",
        "document": "headway.processing.text.document_vocabulary:DocumentVocabulary",
        "framed": "headway.processing.text.framed_vocabulary:FramedVocabulary",
        "m2m": "headway.processing.marian_files:M2mVocabulary",
        "marian": "headway.processing.marian_files:MarianVocabulary",
        "word": "headway.processing.text.vocabulary:WordVocabulary",
        "tokenizers": "headway.processing.text.framed_vocabulary:TokenizersVocabulary",
        "tagged": "headway.processing.text.vocabulary:TaggedVocabulary",
        "whitespace": "headway.processing.text.vocabulary:WordVocabulary",
    },
)
