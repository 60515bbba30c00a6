"""Numbers that pages quote are those of the records, and pages say how old they are."""

import re
from collections.abc import Iterator
from datetime import date
from math import ceil
from typing import Any

import pytest
from scipy.stats import multivariate_normal

from headway.claims.reproduce import ResultRecord, read_record
from headway.corpora.generated.dates import languages
from headway.gate.rules import ERROR, PRESETS, PUBLIC_SEEDS, SCREEN
from tests.docs.pages import ROOT

TICK = re.compile(r'<g id="ytick_\d+">.*?L \S+ ([\d.]+).*?<!-- ([\d.]+) -->', re.DOTALL)
TIMES = re.compile(r"bf16 takes ([\d.]+) times as long")


def record(name: str) -> ResultRecord:
    return read_record(ROOT / "results" / f"{name}.json")


def day(name: str) -> str:
    """The day of a measurement, as pages write it."""
    measured = date.fromisoformat(record(name).measured.date)
    return f"{measured.day} {measured:%B %Y}"


def rows(name: str, table: int = 0) -> list[dict[str, Any]]:
    """The rows of a table by the names of its columns, without spreads."""
    found = record(name).tables[table]
    names = [column["name"] for column in found["columns"]]
    values = [[cell["value"] if isinstance(cell, dict) else cell for cell in row] for row in found["rows"]]
    return [dict(zip(names, row, strict=True)) for row in values]


def listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


def first_ten_minutes() -> Iterator[str]:
    (start,), trained = rows("start"), rows("tanaka-twenty-minutes", 1)
    yield f"took {start['CPU time']:.0f} seconds of processor time"
    yield f"gave {start['BLEU']:.1f} BLEU on their 200 test pairs"
    yield f"({day('start')})"
    yield f"give more than {int(min(row['best BLEU'] for row in trained))} on dev"


def comparing() -> Iterator[str]:
    known = record("loem2023-layers").comparison
    assert known is not None
    scores = {name: known["variants"][name]["bleu"] for name in ("attention", "lowest-2")}
    seeds = {name: listed([f"{score:.1f}" for score in of["seeds"]]) for name, of in scores.items()}
    pairs = zip(known["pairs"], known["significance"], strict=True)
    pair, chance = next(each for each in pairs if (each[0]["a"], each[0]["b"], each[0]["metric"]) == (*scores, "bleu"))
    means = [of["mean"] for of in scores.values()]
    shares = zip(scores["lowest-2"]["seeds"], scores["attention"]["seeds"], strict=True)
    yield f"has {seeds['attention']} BLEU"
    yield f"have {seeds['lowest-2']}"
    yield f"The means are {listed([f'{mean:.1f}' for mean in means])}"
    yield f"the differences are {listed([f'{one - other:+.1f}' for one, other in shares])}"
    yield f"{pair['difference']:+.1f} [{pair['low']:+.1f}, {pair['high']:+.1f}], with p = {chance['p']:.3f}"
    yield f"raises its p to {chance['p_holm']:.2f}"
    yield f"({day('loem2023-layers')})"
    three, five = (
        next(row for row in rows("coverage") if row["seeds"] == n and row["sd between seeds"] == 0.5) for n in (3, 5)
    )
    yield f"{three['intervals that hold the truth']:.1f} % of the 95 % intervals hold the true difference"
    yield f"{three['false verdicts, A against A']:.1f} % of two equal systems get a verdict"
    power = [row["power, 1 BLEU"] for row in (three, five)]
    yield f"in {power[0]:.0f} % of comparisons with three such seeds, and in {power[1]:.0f} % with five"
    yield f"({day('coverage')})"


def verdict() -> Iterator[str]:
    for row in rows("coverage"):
        shown = [f"{value:.1f}" for value in list(row.values())[1:-1]]
        yield f"| {row['seeds']} | {' | '.join(shown)} | {row['width']:.2f} |"
    yield f"({day('coverage')})"


def sizes() -> Iterator[str]:
    (start,), small = rows("start"), rows("tanaka-fast")
    trained, sequel = rows("tanaka-twenty-minutes", 1), [rows(f"headway-tanaka-{n}k")[0] for n in (10, 25)]
    scores = sorted(row["best BLEU"] for row in trained)
    yield f"| {start['BLEU']:.1f} BLEU on test, three seeds | {start['CPU time']:.0f} seconds of one core |"
    for row in sequel:
        yield f"| {row['BLEU']:.1f} BLEU on test after 1,000 updates, three seeds | {row['CPU time'] / 60:.0f} minutes"
    yield f"BLEU rose from {sequel[0]['BLEU']:.1f} to {sequel[1]['BLEU']:.1f} only"
    yield f"| {small[0]['best BLEU']:.1f} BLEU on dev, three seeds |"
    yield f"| {scores[0]:.1f} to {scores[-1]:.1f} BLEU on dev, three seeds |"
    updates = sorted(row["update with 40"] for row in trained)
    yield f"reached 40 BLEU after {updates[0]:,} to {updates[-1]:,} updates"
    slow, quick = (row["CPU minutes to 37.7"] for row in small)
    yield f"after {slow:.1f} minutes, and 2+2 layers of 256/512 with 4,000 pieces after {quick:.1f} minutes"
    names = (
        "start",
        "headway-tanaka-10k",
        "headway-tanaka-25k",
        "tanaka-fast",
        "multi30k-fast",
        "tanaka-twenty-minutes",
        "students",
    )
    days = sorted(record(name).measured.date for name in names)
    yield f"measured from {date.fromisoformat(days[0]).day} to {date.fromisoformat(days[-1]):%d %B %Y}".replace(
        " 0", " "
    )


def fine_tuning() -> Iterator[str]:
    gain, loss = (claim["difference"] for claim in record("headway-captions").claims[:2])
    yield f"gained {gain:.1f} BLEU on captions and lost {-loss:.1f} on the text of before ({day('headway-captions')})"


def teaching() -> Iterator[str]:
    power = [row["power, 1 BLEU"] for row in rows("coverage") if row["seeds"] == 3]
    yield f"gets its verdict in {min(power):.0f} to {max(power):.0f} % of comparisons"
    minutes = max(row["CPU minutes"] for row in rows("dates-demo", 1))
    read = [row["exact_match on test-unseen-dates"] for row in rows("dates-demo", 2)]
    yield f"takes {minutes:.1f} minutes of one core and then reads {min(read):.1f} to {max(read):.1f} % of unseen dates"


def found(name: str, claim: str) -> dict[str, Any]:
    """The finding of a record on a claim."""
    return next(each for each in record(name).claims if each["claim"] == claim)


def interval(of: dict[str, Any]) -> str:
    return f"{of['difference']:+.1f} [{of['low']:+.1f}, {of['high']:+.1f}]"


def claims() -> Iterator[str]:
    forgets = found("headway-captions", "tuned >= before")
    gains = interval(found("headway-captions", "tuned > before")).replace(" [", " BLEU [")
    yield f"fine-tuning gains on captions: {gains}"
    yield f"10,000 pairs: {interval(found('headway-tanaka-10k', 'backtranslated > plain'))}"
    yield f"a global vector helps: {interval(found('loem2023-translation', 'multinn > no-global'))}"
    yield f"The loss is {-forgets['difference']:.1f} BLEU [{forgets['low']:.1f}, {forgets['high']:.1f}]"
    yield f"that score is {rows('loem2023-translation', 2)[0]['best on dev']:.1f} BLEU"


def more_data() -> Iterator[str]:
    back, sampled = (found("headway-tanaka-10k", f"{name} > plain") for name in ("backtranslated", "sampled"))
    yield f"back-translation cost {-back['difference']:.1f} BLEU and subword sampling {-sampled['difference']:.1f}"
    yield f"({day('headway-tanaka-10k')})"


def dependencies() -> Iterator[str]:
    share = list(rows("ewt-heads")[0].values())[1]
    yield f"[{share:.1f} % of the words of dev]"
    yield f"({day('ewt-heads')})"


def demo_minutes() -> str:
    """The minutes of one core that the demo trains, rounded up."""
    return f"{ceil(max(row['CPU minutes'] for row in rows('dates-demo', 1)))}"


def readme() -> Iterator[str]:
    yield f"reads dates in {len(languages())} languages, with scores and a report: {demo_minutes()} minutes of one core"
    yield f"kept in at most {100 * ERROR:.0f} % of loops"


def japanese_readme() -> Iterator[str]:
    yield f"{len(languages())} 言語の日付を読むモデルを学習し、採点と報告を行う（1 コアで {demo_minutes()} 分）"


def browser() -> Iterator[str]:
    for row in rows("students"):
        scores = f"{row['weights']:.1f} MB | {row['BLEU on dev']:.2f} |"
        yield f"| {row['model']} | {row['layers']} | {row['decoding']} | {scores}"
    (parity,) = rows("students", 1)
    yield f"lines of {parity['lines']} that are equal"
    yield f"headway with the same integers | {parity['engine = int8']:.1f} %"
    yield f"the run in float32 | {parity['engine = run']:.1f} %"
    yield f"{parity['BLEU of engine']:.2f} with the engine and {parity['BLEU of run']:.2f} with the run"
    timed = {(row["model"], row["by"]): row for row in rows("speed/students-speed")}
    teacher, student = timed["teacher", "CTranslate2 int8"], timed["student", "engine firefox"]
    for line, row in {
        "teacher, headway in int8, beam 4": timed["teacher", "headway int8"],
        "teacher, CTranslate2 in int8, beam 4": teacher,
        "rounded student, headway in int8, beam 4": timed["student", "headway int8"],
        "rounded student, the engine, greedy": student,
    }.items():
        yield f"| {line} | {row['weights']:.1f} MB | {row['BLEU']:.2f} | {row['1 thread']:.0f} |"
    assert abs(student["BLEU"] - teacher["BLEU"]) < 1
    assert round(teacher["weights"] / student["weights"]) == 3
    faster = student["1 thread"] / teacher["1 thread"]
    yield f"within 1 BLEU of its teacher, with a third of the bytes of the teacher in int8, and {faster:.1f} times as"


def small(share: float) -> str:
    """A percentage as the page on the gate has it."""
    return f"{share:.0f}" if share >= 10 else f"{share:.1f}".removeprefix("0")


def gate() -> Iterator[str]:
    found = {row["rule"]: row for row in rows("gate")}

    def shares(rule: str, column: str) -> str:
        return ", ".join(small(found[rule][f"{column}, {proposal}"]) for proposal in (1, 10, 50, 200))

    plain = {count: f"{count} paired seeds, p <= .05 each" for count in (3, 5)}
    kept = [found[rule]["false, 50"] for rule in plain.values()]
    yield f"keeps something all the same, in {min(kept):.0f} to {max(kept):.0f} % of such loops"
    yield f"in at most {100 * ERROR:.0f} % of loops"
    first, last = (found["gate, usual"][f"2 sd, {proposal}"] for proposal in (1, 50))
    yield f"is kept with a probability of {first:.0f} % as the first proposal, and of {last:.0f} % as the fiftieth"
    for name, preset in PRESETS.items():
        rule, looks = f"gate, {name}", ", ".join(map(str, preset.looks))
        seeds = f"{preset.bank + PUBLIC_SEEDS} + {found[rule]['seeds, idle']:.1f}"
        yield f"| `{name}` | {looks} | {shares(rule, 'false')} | {shares(rule, '2 sd')} | {seeds} |"
    for count, rule in plain.items():
        cells = f"{shares(rule, 'false')} | {shares(rule, '2 sd')} | {count} + {count} |"
        yield f"| {count} paired seeds, p ≤ .05 each | | {cells}"
    varied = [found[f"usual, proposals vary {times} times as much"]["false, 200"] for times in (2, 3)]
    yield f"as the baseline, {varied[0]:.1f} and {varied[1]:.1f} % of loops of 200 have a false keep"
    yield f"kept with a probability of {found['usual, 1 sd by segments']['2 sd, 50']:.0f} % as the fiftieth"
    noise = 1 / PUBLIC_SEEDS  # the variance of the baseline's mean, in variances of a seed
    gains = multivariate_normal(cov=[[1 + noise, 1 / 2 + noise], [1 / 2 + noise, 1 / 2 + noise]])
    assert round(4 * gains.cdf([-least for least in SCREEN])) == 1, "one of four idle proposals is confirmed"
    yield "Three of four idle proposals end here"


def gpus() -> Iterator[str]:
    timed = {row["contender"]: row for row in rows("speed/training-gpu")}
    single, half = timed["headway float32"], timed["headway bf16"]
    yield f"{single['tokens/s']:,.0f} tokens a second in the base size, and {half['tokens/s']:,.0f} in bf16"
    peaks = [100 * row["of the peak"] for row in (single, half)]
    yield f"{peaks[0]:.0f} % of the matrix peak in float32, and {peaks[1]:.0f} % in bf16"
    decoded = {row["contender"]: row for row in rows("speed/decoding-gpu")}["headway float32"]
    loop = f"{single['times the baseline']:.1f} times as fast as a plain PyTorch loop in float32"
    yield f"{loop}, and beam search of 64 sentences {decoded['times the baseline']:.1f} times as fast as Hugging Face"
    yield f"took {single['memory']:.1f} GiB in float32"
    ranks = {row["contender"]: row["times the baseline"] for row in rows("speed/ranks")}
    two, four = (ranks[f"{processes} processes, ddp"] for processes in (2, 4))
    yield f"two processes trained the small size {two:.2f} times as fast as one, and four {four:.2f} times"


def speed_and_memory() -> Iterator[str]:
    names = ("speed/training-transformers", "speed/training-recurrent")
    notes = [note for name in names for table in record(name).tables for note in table["notes"]]
    times = [float(match[1]) for note in notes if (match := TIMES.search(note))]
    yield f"takes [{min(times):.0f} to {max(times):.0f} times as long]"
    by = {(row["length"], row["contender"]): row for row in rows("speed/long-sentences")}
    again = [(row, by[length, f"{name}, recomputed"]) for (length, name), row in by.items() if "rec" not in name]
    slower = max(kept["tokens/s"] / computed["tokens/s"] for kept, computed in again) - 1
    yield f"[up to {100 * slower:.0f} % more time]"
    attention, recomputed, local, ngram = (
        by["4,000", name]["memory"] for name in ("attention", "attention, recomputed", "local", "ngram")
    )
    yield f"then trains in {100 * recomputed / attention:.0f} % of the memory"
    yield f"local attention trains in {100 * local / attention:.0f} %, and n-grams in {100 * ngram / attention:.0f} %"
    for corpus in ("Tanaka", "Multi30k"):
        padded = {(row["tokens a batch"], row["shapes"]): row for row in rows(f"speed/shapes-{corpus.lower()}")}
        for tokens in (4096, 25000):
            cells = [
                f"{row['batches']}, {row['different shapes']}, {100 * row['padding']:.1f} %"
                for row in (padded[tokens, shapes] for shapes in ("any", "few"))
            ]
            yield f"| {corpus}, {tokens:,} | {' | '.join(cells)} |"


def drawn(figure: str) -> list[list[float]]:
    """The lines of a figure of relative positions, in percent at offsets from -15 to 15."""
    text = (ROOT / "docs" / figure).read_text(encoding="utf-8")
    (zero, _), *_, (top, most) = ((float(height), float(value)) for height, value in TICK.findall(text))
    paths = [re.findall(r"[ML] \S+ (\S+)", path) for path in re.findall(r'<path d="([^"]+)"', text)]
    return [[(zero - float(y)) / (zero - top) * most for y in path] for path in paths if len(path) == 31]


def in_windows() -> tuple[list[str], str]:
    """The shares of a window of 3 to each side: those of equal weights and of layers 1 to 3. Then layer 1's, of 2."""
    lines = drawn("relative-position.svg")
    return [f"{sum(line[12:19]):.0f} %" for line in lines], f"{sum(lines[1][13:18]):.0f} %"


def mixer_rows() -> Iterator[str]:
    """The scores and the differences of the tutorial's table, the ends of its rows in their order."""
    pairs = {row["b"]: row for row in rows("loem2023-layers", 1) if (row["metric"], row["a"]) == ("BLEU", "attention")}
    scores = {row[0]: row[1] for row in record("loem2023-layers").tables[0]["rows"]}
    for variant in ("attention", "decoder", "lowest-1", "encoder", "lowest-2", "no-global"):
        score = f"| {scores[variant]['value']:.1f} ± {scores[variant]['spread']:.1f} |"
        pair = pairs.get(variant)
        yield f"{score} {pair['b - a']:+.1f} [{pair['low']:+.1f}, {pair['high']:+.1f}] |" if pair else f"{score} |"


def tutorial() -> Iterator[str]:
    slow = [row for row in rows("tanaka-fast", 1) if row["run"].startswith("transformer-small")]
    minutes, updates = (sorted(row[name] for row in slow) for name in ("CPU minutes", "updates"))
    yield f"took [{minutes[0]:.0f} to {minutes[-1]:.0f} minutes of one core]"
    yield f"for {updates[0]:,} to {updates[-1]:,} updates"
    (evenly, *layers), near = in_windows()
    yield f"Sentences of a dozen tokens hold {evenly} of *any* weight in that window"
    yield "Layer 1 puts {} there, layer 2 {} and layer 3 {}.".format(*layers)
    yield f"{near} of layer 1's weight is on tokens less than 3 positions away"
    parameters = {row["variant"]: row["parameters"] for row in rows("loem2023-layers")}
    assert abs(parameters["lowest-1"] / parameters["attention"] - 1) < 0.01
    yield from mixer_rows()


def japanese_tutorial() -> Iterator[str]:
    (evenly, *layers), _ = in_windows()
    yield f"*どのような*重みでも {evenly} がこの窓に入ります"
    yield "第 1 層は {}、第 2 層は {}、第 3 層は {} を".format(*layers)
    yield from mixer_rows()


def serving() -> Iterator[str]:
    one, two, three = (row["memory"] for row in rows("speed/serving-memory"))
    weights = rows("speed/serving-memory")[0]["weights"]
    yield f"`transformer-small` ({weights:.0f} MB of weights) held [{one:.2f} GB](results/speed.md#memory-of-a-server)"
    yield f"answers, {two:.2f} GB with two pairs, and {three:.2f} GB with three"


def mixers() -> Iterator[str]:
    wide, narrow = (rows("speed/mixer-steps", table) for table in (0, 1))
    steps = [
        {(row["contender"], row["tokens"]): (row["state"], row["times the baseline"]) for row in table}
        for table in (wide, narrow)
    ]
    for name in dict.fromkeys(row["contender"] for row in wide):
        (state, few), (later, many) = (steps[0][name, tokens] for tokens in ("40", "4,000"))
        speeds = f"{few:.1f} | {many:.0f} | {steps[1][name, '40'][1]:.1f} | {steps[1][name, '4,000'][1]:.0f}"
        yield f"| {name} | {state:,.0f} | {later:,.0f} | {speeds} |"


PAGES = {
    "README.md": readme, "README.ja.md": japanese_readme, "docs/first-ten-minutes.md": first_ten_minutes,
    "docs/comparing.md": comparing, "docs/verdict.md": verdict, "docs/sizes.md": sizes,
    "docs/fine-tuning.md": fine_tuning, "docs/teaching.md": teaching, "docs/claims.md": claims,
    "docs/more-data.md": more_data, "docs/dependencies.md": dependencies, "docs/browser.md": browser,
    "docs/gate.md": gate, "docs/gpus.md": gpus, "docs/speed-and-memory.md": speed_and_memory,
    "docs/tutorial.md": tutorial, "docs/tutorial.ja.md": japanese_tutorial, "docs/serving.md": serving,
    "docs/mixers.md": mixers,
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_numbers_are_those_of_the_records(page: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    assert [quoted for quoted in PAGES[page]() if quoted not in text] == []
