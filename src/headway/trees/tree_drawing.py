"""Trees drawn with characters: a word a row, the constituents to the left of it."""

from headway.trees.tree import Leaf, Tree

# What a node is drawn behind, by whether there is another child before it and after it.
BRANCHES = {(False, False): "── ", (False, True): "┬─ ", (True, True): "├─ ", (True, False): "└─ "}


def draw(tree: Tree) -> str:
    """The tree, a row for each of its words, which stand to the right of their tags.

    NP ─┬─ DT the
        └─ NN dog
    """
    rows: list[str] = []
    stack: list[tuple[str, str, Tree | Leaf]] = [("", "", tree)]  # what stands to the left in its first row; in others
    while stack:
        first, others, node = stack.pop()
        if isinstance(node, Leaf):
            rows.append(f"{first}{node.tag} {node.word}")
            continue
        indent = " " * (len(node.label) + 1)
        last = len(node.children) - 1
        for index in reversed(range(last + 1)):
            branch = BRANCHES[index > 0, index < last]
            before = f"{first}{node.label} ─" if index == 0 else f"{others}{indent} "
            below = f"{others}{indent} " + ("│  " if index < last else "   ")
            stack.append((before + branch, below, node.children[index]))
    return "\n".join(rows)
