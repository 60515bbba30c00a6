"""The model of many cores in the record of whole files."""

import pytest
from bench_file import with_model
from rounds import Measurement


def measured(setting: str, seconds: list[float]) -> Measurement:
    return Measurement("small", setting, "headway float32", {}, "headway float32", [100] * len(seconds), seconds)


def test_more_cores_than_measured_follow_amdahls_law() -> None:
    found = list(with_model([measured("1", [9.0, 10.0, 12.0]), measured("2", [6.0, 7.0, 5.0])]))
    assert [each.setting for each in found] == ["1", "2", "4, modelled", "8, modelled", "16, modelled"]
    assert [each.facts["efficiency"] for each in found[:2]] == pytest.approx([1, 10 / 12])
    for each, cores in zip(found[2:], (4, 8, 16), strict=True):  # a fifth of the time of one core is serial
        assert each.seconds == pytest.approx([second * (0.2 + 0.8 / cores) for second in (9.0, 10.0, 12.0)])
        assert each.facts["efficiency"] == pytest.approx(1 / (0.2 * cores + 0.8))


@pytest.mark.parametrize("settings", [["2"], ["1"]])
def test_one_number_of_cores_gives_no_model(settings: list[str]) -> None:
    assert [each.setting for each in with_model([measured(setting, [1.0]) for setting in settings])] == settings
