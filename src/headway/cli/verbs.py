"""All verbs of the command line. The module of a verb is imported when the verb, or its help, is requested."""

import logging
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from headway.cli.shell import BEGIN, COMPARE, LEARN, OPTIONS, SHIP, TRAIN, flag, new_app, panel
from headway.cli.standard_streams import write
from headway.core.log import logger
from headway.core.version import VERSION


class Verb(NamedTuple):
    """A verb: its name, its group in the help, its module and function in `headway.cli`, and its help."""

    name: str
    group: str
    home: str
    help: str
    usage: str | None = None


VERBS = (
    Verb(
        "new", BEGIN, "begin_commands:new",
        "Begin with pairs of your own: train, dev and test, and a recipe of a size that suits them and this machine.",
    ),
    Verb(
        "demo", BEGIN, "begin_commands:demo",
        "Learn to read dates in many languages, from nothing: data, training, scores and a report in a few minutes.",
    ),
    Verb(
        "doctor", BEGIN, "begin_commands:doctor",
        "Say what this installation has and whether it works: what is missing for each extra, too (about 10 seconds).",
    ),
    Verb(
        "check", LEARN, "begin_commands:check",
        "Check answers to the exercise of a lesson: a line a file says that it is right, or which property broke.\n\n"
        "The files are run to be checked, so look at them first. Exits with 1 where an answer is not right.",
    ),
    Verb(
        "recipes", BEGIN, "begin_commands:recipes",
        "List the recipes that come with headway, show one, or copy it.\n\n"
        "With a recipe come those that it begins from, and the scripts that prepare its corpus.",
    ),
    Verb(
        "list", BEGIN, "begin_commands:list_components",
        "List all components, a line each: what it is, and its options; or check a mixer.\n\n"
        "A check exits with 1 if the mixer breaks the contract, and says what broke.",
    ),
    Verb("data", TRAIN, "data_commands:data_app", "Look at data before training on it, and make it ready."),
    Verb(
        "train", TRAIN, "train_commands:train",
        "Train a model from raw text. `headway train --resume RUN` continues a run that was stopped, bit for bit.",
    ),
    Verb(
        "predict", TRAIN, "predict_commands:predict",
        "Read lines from standard input or a file, write one output a line, in the same order.",
    ),
    Verb(
        "score", TRAIN, "score_commands:score",
        "Score files of hypotheses against references; or, with RUN, given targets under its model.",
    ),
    Verb(
        "augment", TRAIN, "augment_commands:augment",
        "Make a corpus of lines and what a teacher (a run, a command or another system) writes for them.\n\n"
        "If it is killed, the same command continues where it stopped.",
    ),
    Verb("inspect", TRAIN, "inspect_commands:inspect_app", "Look inside a model. RUN alone makes a page."),
    Verb(
        "compare", COMPARE, "compare_commands:compare",
        "Compare systems over seeds and test sets: scores, costs, verdicts, and what differs.",
    ),
    Verb(
        "gate", COMPARE, "gate_commands:gate_app",
        "Judge the changes that a person or a program tries one after the other: keep, drop, open, same or more.",
    ),
    Verb(
        "reproduce", COMPARE, "compare_commands:reproduce",
        "Decide the claims of a document: prepare data, train and compare variants, "
        "print the paper's numbers and ours.",
    ),
    Verb(
        "import", SHIP, "ship_commands:import_",
        "Make a run of a model that others have trained; every command takes it like any run.",
    ),
    Verb(
        "export", SHIP, "ship_commands:export",
        "Write a run in a format of other engines, with its card, and show that it answers as the run does.",
        "Usage: headway export FORMAT RUN [KEY=VALUE...] --output FOLDER [OPTIONS]",
    ),
    Verb(
        "serve", SHIP, "ship_commands:serve",
        "Answer requests over HTTP, as LibreTranslate does, and show a page in the browser that translates.",
    ),
    Verb(
        "pack", SHIP, "ship_commands:pack",
        "Put all that predicting with a run needs into one file, which stands for the run wherever one is read.",
        "Usage: headway pack RUN [--output FILE] [OPTIONS]",
    ),
    Verb(
        "site", SHIP, "ship_commands:site",
        "Make a page of packed papers: what was found, ranks, data, and the command that replays each.",
    ),
)  # fmt: skip

app = new_app(
    "headway",
    "Train, compare, look inside and ship attention models for sequence transduction.",
)
for name in app.help_flags:
    app[name].group = panel(OPTIONS)
for place, each in enumerate(VERBS):
    shown = {} if each.usage is None else {"usage": each.usage}
    app.command(
        f"headway.cli.{each.home}", name=each.name, help=each.help, group=panel(each.group), sort_key=place, **shown
    )
app.register_install_completion_command(group=panel(OPTIONS))


@app.meta.default
def _root(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    quiet: Annotated[bool, flag("Say nothing but warnings, on standard error.", negative=())] = False,
    verbose: Annotated[bool, flag("Say more than usual, on standard error.", negative=())] = False,
    version: Annotated[bool, flag("Say the version.", negative=())] = False,
) -> Any:
    if version:
        write(f"headway {VERSION}")
        return 0
    if quiet or verbose:
        logger.setLevel(logging.WARNING if quiet else logging.DEBUG)
    if not words:
        app.help_print(console=app.error_console)
        return 2
    return app(words)
