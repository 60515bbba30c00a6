"""Parses made elsewhere, and a spaCy pipeline of two layers with random weights."""

from pathlib import Path

CONLLU = """\
# text = Er ist im Haus.
1\tEr\ter\tPRON\t_\t_\t5\tnsubj\t_\t_
2\tist\tsein\tAUX\t_\t_\t5\tcop\t_\t_
3-4\tim\t_\t_\t_\t_\t_\t_\t_\t_
3\tin\tin\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\t_\t_\t0\troot\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t_\t_\t5\tpunct\t_\t_

1\tSie\tsie\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tsingt\tsingen\tVERB\t_\t_\t0\troot\t_\t_
2.1\tsingt\tsingen\tVERB\t_\t_\t_\t_\t_\t_

"""


def write_conllu(folder: Path, text: str = CONLLU) -> Path:
    path = folder / "made.conllu"
    path.write_text(text, encoding="utf-8")
    return path


def tree_lines(sentences: dict[str, list[int]]) -> str:
    """CoNLL-U of sentences cut at spaces, heads counted from 1 with 0 for the root."""
    blocks = []
    for text, heads in sentences.items():
        rows = zip(text.split(), heads, strict=True)
        blocks.append("".join(f"{n}\t{w}\t_\t_\t_\t_\t{h}\tdep\t_\t_\n" for n, (w, h) in enumerate(rows, start=1)))
    return "\n".join(blocks) + "\n"


def random_pipeline(folder: Path) -> Path:
    import spacy
    from spacy.training import Example

    pipeline = spacy.blank("en")
    pipeline.add_pipe("parser", config={"model": {"tok2vec": _tok2vec()}})
    docs = [pipeline.make_doc("we sing songs"), pipeline.make_doc("birds fly home")]
    trees = [
        {"heads": [1, 1, 1], "deps": ["nsubj", "ROOT", "obj"]},
        {"heads": [1, 1, 1], "deps": ["nsubj", "ROOT", "x"]},
    ]
    examples = [Example.from_dict(doc, tree) for doc, tree in zip(docs, trees, strict=True)]
    pipeline.initialize(lambda: examples)
    pipeline.to_disk(folder / "pipeline")
    return folder / "pipeline"


def _tok2vec() -> dict:
    return {
        "@architectures": "spacy.HashEmbedCNN.v2", "pretrained_vectors": None, "width": 8, "depth": 1,
        "embed_size": 50, "window_size": 1, "maxout_pieces": 2, "subword_features": True,
    }  # fmt: skip
