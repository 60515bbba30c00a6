"""Documents whose answer stands in a sentence before: pronouns and terms, English to German.

    python recipes/context/documents.py OUTPUT       # --help has sizes and seed

`it` is er, sie or es by the noun of an earlier sentence, and a word such as bat is Fledermaus or Schläger by what an
earlier sentence speaks of. A sentence alone tells neither. In `near` tests that sentence comes right before; in `far`
ones another stands between. OUTPUT gets `train`, `dev`, `near` and `far`, each as two files of lines, `.en` and `.de`,
whose documents are separated by empty lines. No document of a test is in training.
"""

import argparse
import sys
from pathlib import Path
from random import Random

from headway.core.errors import HeadwayError
from headway.core.files import write_new_texts

Document = tuple[tuple[str, str], ...]

PRONOUNS = {"der": "er", "die": "sie", "das": "es"}
NOUNS = """
moon der Mond, train der Zug, table der Tisch, river der Fluss, key der Schlüssel, garden der Garten, stone der Stein,
tree der Baum, sun die Sonne, lamp die Lampe, city die Stadt, bridge die Brücke, clock die Uhr, door die Tür,
street die Straße, flower die Blume, house das Haus, car das Auto, ship das Schiff, book das Buch, window das Fenster,
wheel das Rad, picture das Bild, bed das Bett
"""
MENTIONS = {
    "here is the": "hier ist",
    "where is the": "wo ist",
    "that was the": "das war",
    "tom calls the": "Tom meint",
}
ADJECTIVES = """
old alt, new neu, small klein, big groß, red rot, green grün, pretty schön, far fern, near nah, loud laut, quiet leise,
cold kalt, warm warm, round rund, heavy schwer, light leicht
"""
TERMS = """
bat animals die Fledermaus tools der Schläger, crane animals der Kranich tools der Kran, seal animals die Robbe
letters das Siegel, spring seasons der Frühling tools die Feder, nut plants die Nuss tools die Mutter, mouse animals
die Maus tools der Zeiger, bow clothes die Schleife tools der Bogen, stamp letters die Marke tools der Stempel
"""
TOPICS = {
    "animals": "Tiere", "tools": "Geräte", "letters": "Briefe", "seasons": "Jahreszeiten", "plants": "Pflanzen",
    "clothes": "Kleider",
}  # fmt: skip
FILLERS = {"we are glad": "wir sind froh", "i hear you": "ich höre dich", "they laugh": "sie lachen", "yes": "ja"}


def listed(text: str) -> list[list[str]]:
    """The words of each entry of a list that commas separate."""
    return [entry.split() for entry in text.split(",")]


def document(random: Random, far: bool) -> Document:
    """Two sentences, or three with another between them."""
    said, german = random.choice(listed(ADJECTIVES))
    if random.random() < 0.5:
        noun, article, translation = random.choice(listed(NOUNS))
        mention, of_mention = random.choice(list(MENTIONS.items()))
        first = f"{mention} {noun} .", f"{of_mention} {article} {translation} ."
        last = f"it is {said} .", f"{PRONOUNS[article]} ist {german} ."
    else:
        word, *senses = random.choice(listed(TERMS))
        topic, article, translation = random.choice([senses[:3], senses[3:]])
        first = f"we talk about {topic} .", f"wir reden über {TOPICS[topic]} ."
        last = f"the {word} is {said} .", f"{article} {translation} ist {german} ."
    between = [(f"{english} .", f"{other} .") for english, other in random.sample(list(FILLERS.items()), int(far))]
    return first, *between, last


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--train", type=int, default=4000, help="documents (default: 4000)")
    parser.add_argument("--test", type=int, default=200, help="documents of dev and of each test (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    random, seen, texts = Random(given.seed), set[Document](), dict[Path, str]()
    for name, count, fars in (
        ("near", given.test, (False,)), ("far", given.test, (True,)), ("dev", given.test, (False, True)),
        ("train", given.train, (False, True)),
    ):  # fmt: skip
        held_out, documents = frozenset(seen), list[Document]()
        while len(documents) < count:
            drawn = document(random, random.choice(fars))
            if drawn not in held_out and (name == "train" or drawn not in seen):
                documents.append(drawn)
                seen.add(drawn)
        for side, language in enumerate(("en", "de")):
            lines = ("".join(f"{pair[side]}\n" for pair in each) for each in documents)
            texts[given.output / f"{name}.{language}"] = "\n".join(lines)
    given.output.mkdir(parents=True, exist_ok=True)
    write_new_texts(texts)


if __name__ == "__main__":
    try:
        main()
    except HeadwayError as error:
        sys.exit(f"error: {error}")
