"""Faults: headway broken on purpose, each with the campaign that must notice it.

A fault is a line of one module of headway with another in its place. It is made while the module is imported, in the
process of the campaign alone: `python -m tools.campaigns --fault NAME` runs the campaign on that product and ends with
exit code 1 where it notices.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


@dataclass(frozen=True)
class Fault:
    """A campaign or a test, a module below headway, and the text that stands there once, with the broken one for it."""

    campaign: str
    module: str
    sound: str
    broken: str

    @property
    def name(self) -> str:
        """The full name of the module."""
        return f"headway.{self.module}"

    def applied(self, source: str) -> str:
        """The broken source of the module."""
        count = source.count(self.sound)
        assert count == 1, f"{self.name} has {count} times, not once: {self.sound}"
        return source.replace(self.sound, self.broken)


FAULTS = {
    # Files of Marian and of browsers.
    "ids of a shortlist are beyond the vocabulary": Fault(
        "marian", "processing.shortlist", "max(first, 1 + int(ids.max(initial=0)))", "0",
    ),
    # Documents.
    "pairs of tags are left out": Fault(
        "markup", "markup.placement", "                stack[-1].children.append(node)\n", "                pass\n",
    ),
    "pairs of tags of real documents are left out": Fault(
        "documents", "markup.placement", "                stack[-1].children.append(node)\n", "                pass\n",
    ),
    "a placeholder may come twice": Fault(
        "markup", "markup.translating", "if self._alike(theirs) > self._alike(self.masked):", "if False:",
    ),
    # Lines, windows, batches and search.
    "lines swapped on their way out": Fault(
        "same-answer", "cli.prediction_stream",
        "zip(window, answers, strict=True)",
        "zip(window, (lambda all: all[:50] + all[50:52][::-1] + all[52:])([*answers]), strict=True)",
    ),
    "a window in another order": Fault(
        "same-answer", "cli.standard_streams",
        "        yield window\n\n\ndef write(", "        yield window[1:] + window[:1]\n\n\ndef write(",
    ),
    "rows of a large batch swapped": Fault(
        "same-answer", "predictors.sequence_predictor",
        "zip(places, rows, replaced, captured, ends, strict=True):",
        "zip(places, rows, replaced[:50] + replaced[50:52][::-1] + replaced[52:], captured, ends):",
    ),
    "padding is read": Fault(
        "same-answer", "tensors.batch", "return values, padding_mask(lengths + 1, values.shape[1])",
        "return values, padding_mask(lengths * 0 + values.shape[1], values.shape[1])",
    ),
    "a beam forgets what ends": Fault(
        "same-answer", "search.beam", "candidates.first(self.rows.shape[1])", "candidates.first(1)",
    ),
    "a mixer rounds step by step": Fault(
        "same-answer", "mixers.attention", "query, key, value = self._heads(projected, positions)",
        "query, key, value = (part.bfloat16().to(x.dtype) for part in self._heads(projected, positions))",
    ),
    "what is drawn depends on the batch": Fault(
        "same-answer", "search.sampling", "for line in lines]", "for line in range(len(lines))]",
    ),
    # Damage.
    "the hash of weights is not compared": Fault(
        "runs", "runs.run_folder", "elif digest not in known:", "elif not digest:",
    ),
    "the hash of a vocabulary is not compared": Fault(
        "runs", "runs.run_folder", "if now.get(name) != known:", "if name not in now:",
    ),
    "the hash of a checkpoint is not compared": Fault(
        "runs", "runs.run_folder", "not isinstance(known, dict) or known.get(name) != value", "known is None",
    ),
    "an edited recipe is believed": Fault(
        "runs", "runs.run_folder", "if now.get(key) != trained.get(key))", "if key not in trained)",
    ),
    "files of the user are cleared away": Fault(
        "runs", "core.files", "if temporary.fullmatch(path.name):", 'if path.name.endswith(".tmp"):',
    ),
    # Strangers.
    "a pack climbs out of its folder": Fault(
        "hostile", "runs.packing", 'odd = {"", ".", ".."} & set(below) or', 'odd = {"", "."} & set(below) or',
    ),
    "a run imports what it names": Fault(
        "hostile", "core.registry", "if _foreign_code.get() is False:", "if _foreign_code.get() is False and not name:",
    ),
    "a tokenizer brings code": Fault(
        "hostile", "processing.pretrained", "add_prefix_space=True, trust_remote_code=False",
        "add_prefix_space=True, trust_remote_code=True",
    ),
    "sentences are markup": Fault(
        "hostile", "pages.page", """content.replace("<", "\\\\u003c")""", "content",
    ),
    "errors are orders to terminals": Fault(
        "hostile", "core.errors", "return CONTROL.sub(lambda control: repr(control[0])[1:-1], text)", "return text",
    ),
    # Interruptions.
    "a file is written in place": Fault(
        "kills", "core.files", "            move(temporary, path)\n",
        "            path.write_bytes(b'')\n            move(temporary, path)\n",
    ),
    "a resumed run repeats a batch": Fault(
        "kills", "training.updates", "number, epoch, first = state.update, state.epoch, state.batch",
        "number, epoch, first = state.update, state.epoch, max(0, state.batch - 1)",
    ),
    "two processes train in a folder": Fault(
        "kills", "core.storage", "if free is False:", "if free is False and holder is None:",
    ),
    # Recipes and the command line.
    "a key stands twice": Fault("recipes", "core.documents", "_check_keys(node)\n", "pass\n"),
    "a mistake is a traceback": Fault(
        "recipes", "recipe.reading", "        raise UserError(explain(error, Recipe)) from error", "        raise",
    ),
    "an override is lost": Fault(
        "recipes", "recipe.reading", "else overrides:", "else overrides[:1]:",
    ),
    "a bad recipe ends well": Fault(
        "cli", "cli.shell", "_spelled(app, words, name)), error.exit_code)", "_spelled(app, words, name)), 0)",
    ),
    "a sound command is refused": Fault(
        "cli", "core.files", "if not os.access(above, os.W_OK):", "if os.access(above, os.W_OK):",
    ),
    # Data and metrics.
    "lines are counted from 0": Fault(
        "data", "formats.pair_formats", "for line, row in enumerate(read_rows(self.files[0]), start=1)",
        "for line, row in enumerate(read_rows(self.files[0]), start=0)",
    ),
    "a last line without its end is dropped": Fault(
        "data", "formats.lines", "elif not line:  # only a byte order mark", "else:",
    ),
    "source and target change places": Fault(
        "data", "formats.pair_formats", "Pair.of(line, cast(tuple[str, ...], texts))",
        "Pair.of(line, cast(tuple[str, ...], texts)[::-1])",
    ),
    "a metric ignores the last segment": Fault(
        "data", "comparison.comparison", "metric.counted(output, references, test.sources) for output in outputs",
        "metric.counted(output, references, test.sources)[:-1] for output in outputs",
    ),
    "pairs are dropped and not counted": Fault(
        "data", "corpora.corpus", "counts.pairs_read += len(chunk.lines) + len(chunk.duplicates)",
        "counts.pairs_read += len(chunk.lines)",
    ),
    # Recordings and numbers.
    "a recording that was cut off is a shorter one": Fault(
        "audio", "processing.audio.audio_files", "if (missing := file.tell() + length - size) > 0:",
        "if (missing := file.tell() + length - size) > 1 << 40:",
    ),
    "one channel is read": Fault(
        "audio", "processing.audio.audio_files", "block[:, 0] if file.channels == 1 else block.mean(axis=1)",
        "block[:, 0]",
    ),
    "weights that are no numbers are loaded": Fault(
        "numerics", "runs.run_folder", "if bad := not_finite(weights, model):",
        "if (bad := not_finite(weights, model)) and not where:",
    ),
    "outputs repeat themselves": Fault(
        "numerics", "search.limits", "if 0 < self.no_repeat <= time:", "if 0 < self.no_repeat < time:",
    ),
    "outputs are too short": Fault(
        "numerics", "search.limits", "return len(NEVER) if time < self.shortest else NEVER.index(EOS)",
        "return len(NEVER) if time < self.shortest - 1 else NEVER.index(EOS)",
    ),
}  # fmt: skip

# Faults that a fast test must notice, as pytest names it.
OF_TESTS = {
    "hypotheses with as many terms change places": Fault(
        "tests/predictors/test_sentence_translator.py::test_hypotheses_with_as_many_terms_stay_in_the_order_of_their_scores",
        "predictors.terms", "return sorted(outputs[index], key", "return sorted(outputs[index][::-1], key",
    ),
    "shorter terms stand before longer ones": Fault(
        "tests/formats/test_terms.py::test_a_longer_term_stands_before_one_that_it_begins_with",
        "formats.terms", "sorted(some, reverse=True)", "sorted(some)",
    ),
    "a kept result is that of other weights": Fault(
        "tests/grids/test_run_results.py::test_a_result_is_kept_for_its_own_weights",
        "grids.compare", '"weights": manifest.get("model_sha256")', '"weights": None',
    ),
    "dev is scored by the language of the source": Fault(
        "tests/tasks/test_tasks.py::test_dev_is_scored_by_the_language_of_the_target",
        "tasks", "recipe.text.target.language", "recipe.text.source.language",
    ),
    "parts are pruned one at a time": Fault(
        "tests/grids/test_ablation.py::test_parts_that_can_go_are_tried_with_those_that_have_gone",
        "grids.ablation", "in (*gone, names[index])", "in (names[index],)",
    ),
    "words are cut as in the first epoch": Fault(
        "tests/training/test_sampled_pieces.py::test_an_update_asks_for_the_pieces_of_its_epoch",
        "training.updates", "collate(indices, generator, plan.epoch)", "collate(indices, generator, 0)",
    ),
}  # fmt: skip


class _Loader(SourceFileLoader):
    """Compiles the source of one module with a fault in it, and keeps nothing of that."""

    fault: Fault

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.fault.applied(Path(path).read_text(encoding="utf-8")), path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == self.fault.name else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
            spec.loader.fault = self.fault
        return spec


def break_headway(name: str) -> Fault:
    """Let this process import a headway with the fault of this name, and give the fault."""
    fault = (FAULTS | OF_TESTS)[name]
    assert fault.name not in sys.modules, f"{fault.name} is imported already"
    sys.meta_path.insert(0, _Finder(fault))
    return fault
