"""Recall and state tracking tasks, which test a mixer's memory (Arora et al. 2023; Poli et al. 2024).

Each task draws a prompt of a size, and its answer, in tokens separated by white space. Draws depend only on the random
number generator. Parts and sizes are those of length_tasks.py.
"""

from itertools import chain
from random import Random

# At least as many keys as the largest test has pairs, so that a key rarely occurs with the same value.
KEYS, VALUES = tuple(f"k{number:03}" for number in range(512)), tuple(f"v{number:03}" for number in range(512))
TOKENS = tuple(f"t{number:02}" for number in range(64))
FILLER = "."
FEW = 64  # keys and values of short recall
ASKED = 4  # queries of a prompt
STEPS = 16  # the maximum length of a chain
FILLERS = 3  # fillers for each token to copy


def recall(random: Random, pairs: int, asked: int = ASKED, fillers: int = 0, names: int = len(KEYS)) -> tuple[str, str]:
    """Multi-query associative recall: pairs of a key and a value, then keys, whose values are the answer.

        k1 v7 k5 v2 k3 v3 ? k3 k1  ->  v3 v7

    Args:
        random: the random number generator.
        pairs: the number of pairs.
        asked: the number of queries, at most one per pair.
        fillers: the number of fillers per pair, at random positions between pairs.
        names: the number of different keys, and of different values.
    """
    keys, values = random.sample(KEYS[:names], pairs), random.choices(VALUES[:names], k=pairs)
    told = [f"{key} {value}" for key, value in zip(keys, values, strict=True)]
    asked_for = random.sample(range(pairs), min(asked, pairs))
    prompt = scattered(random, told, fillers * pairs) + ["?"] + [keys[number] for number in asked_for]
    return " ".join(prompt), " ".join(values[number] for number in asked_for)


def recall_chain(random: Random, pairs: int) -> tuple[str, str]:
    """Associative recall in a chain: each token of the answer is the key of the next token.

    k1 k5 k3 k1 k5 k2 k2 k3 ? k3  ->  k1 k5 k2
    """
    keys = random.sample(KEYS, pairs)  # a cycle: each key leads to the next one
    told = [f"{key} {after}" for key, after in zip(keys, keys[1:] + keys[:1], strict=True)]
    answer = keys[1 : 1 + STEPS]
    return " ".join([*random.sample(told, pairs), "?", keys[0]]), " ".join(answer)


def selective_copy(random: Random, tokens: int) -> tuple[str, str]:
    """The tokens of a prompt in order, without the fillers between them (Gu and Dao 2023)."""
    told = random.choices(TOKENS, k=tokens)
    return " ".join(scattered(random, told, FILLERS * tokens)), " ".join(told)


def induction(random: Random, tokens: int) -> tuple[str, str]:
    """The token that followed the earlier occurrence of the prompt's last token (Olsson et al. 2022).

    The prompt has `tokens` random tokens and the repeated one, which occurs exactly once before.
    """
    repeated, *others = random.sample(TOKENS, len(TOKENS))
    told = random.choices(others, k=tokens)
    place = random.randrange(tokens - 1)
    told[place] = repeated
    return " ".join([*told, repeated]), told[place + 1]


def permutations(random: Random, count: int, moved: int = 5) -> tuple[str, str]:
    """The word problem of the symmetric group: the arrangement that results from a sequence of permutations.

    A token such as 21345 gives, for each position, the position that its item comes from.
    """
    told = [random.sample(range(moved), moved) for _ in range(count)]
    arranged = list(range(moved))
    for permutation in told:
        arranged = [arranged[place] for place in permutation]
    prompt, answer = ([_written(items) for items in listed] for listed in (told, [arranged]))
    return " ".join(prompt), answer[0]


def _written(items: list[int]) -> str:
    return "".join(str(item + 1) for item in items)


def scattered(random: Random, told: list[str], fillers: int) -> list[str]:
    """`told` in order, with fillers at random positions."""
    places = set(random.sample(range(len(told) + fillers), len(told)))
    items = iter(told)
    return list(chain(next(items) if place in places else FILLER for place in range(len(told) + fillers)))
