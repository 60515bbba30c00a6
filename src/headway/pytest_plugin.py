"""For pytest: the checks of the contract of mixers, one item each, of those that are named.

    pytest --headway-mixer "my_package.mixers:MyMixer heads=4"

The setting `headway_mixer` names some, a line each, for calls without files. Until then nothing else is imported.
"""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headway.mixers.conformance_report import Case


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option and the setting."""
    what = 'check that a mixer keeps headway\'s contract: "module:Class [dim=48] [KEY=VALUE ...]"; may be repeated'
    parser.getgroup("headway").addoption("--headway-mixer", action="append", default=[], metavar="MIXER", help=what)
    parser.addini("headway_mixer", f"{what}, a line each", type="linelist", default=[])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks to what was collected, before items are chosen among."""
    named = [] if config.args_source is config.ArgsSource.ARGS else config.getini("headway_mixer")
    for mixer in [*named, *config.getoption("headway_mixer")]:
        items.extend(MixerChecks.from_parent(session, name=mixer, nodeid=mixer).collect())


class MixerChecks(pytest.Collector):
    """The checks of one mixer."""

    def collect(self) -> Iterator["MixerCheck"]:
        """An item for each check in each direction in which the mixer can be built."""
        from headway.core.errors import UserError
        from headway.mixers.conformance_report import named_mixer_checks
        from headway.recipe.reading import apply_overrides

        name, *words = shlex.split(self.name)
        options: dict[str, Any] = {}
        try:
            apply_overrides(options, words)
            cases, _ = named_mixer_checks(
                name, options, **{key: options.pop(key) for key in ("dim",) if key in options}
            )
        except UserError as error:
            raise pytest.UsageError(error.spelled(lambda option: "headway_mixer")) from error
        for case in cases:
            yield MixerCheck.from_parent(self, name=case.__name__, case=case)


class MixerCheck(pytest.Item):
    """One check of one mixer."""

    def __init__(self, *, case: "Case", **others: Any) -> None:
        super().__init__(**others)
        self.case = case

    def runtest(self) -> None:
        """Run the check."""
        if not self.case():
            pytest.skip("does not apply")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The words of a check; where the mixer failed itself, the way there as well."""
        from headway.mixers.conformance import ConformanceError

        words = isinstance(excinfo.value.__cause__, ConformanceError)
        return str(excinfo.value) if words else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """The heading of a failure."""
        return self.path, None, self.name
