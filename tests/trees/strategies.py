"""Trees drawn at random."""

from hypothesis import strategies as st

from headway.trees.tree import Leaf, Tree

LABELS = ("S", "NP", "VP", "PP", "NP-SBJ", "X")
TAGS = ("DT", "NN", "VB", ".", ",", "-LRB-")
WORDS = st.text(alphabet="ab(),.$-é語", min_size=1, max_size=4).filter(lambda word: "-LRB-" not in word)

LEAVES = st.builds(Leaf, st.sampled_from(TAGS), WORDS)


def trees(leaves: st.SearchStrategy[Leaf] = LEAVES) -> st.SearchStrategy[Tree]:
    """Trees of some ten nodes, unary ones among them."""
    children = st.recursive(
        leaves,
        lambda below: st.builds(Tree, st.sampled_from(LABELS), st.lists(below, min_size=1, max_size=4).map(tuple)),
        max_leaves=12,
    )
    return st.builds(Tree, st.sampled_from(LABELS), st.lists(children, min_size=1, max_size=4).map(tuple))
