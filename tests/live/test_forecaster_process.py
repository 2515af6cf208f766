"""The forecaster's process: one that hangs is replaced. Damaged profiles and versions do not stop forecasts."""

import asyncio
import os
import signal

from aliquot.learn.demand.drift import DriftSettings
from aliquot.learn.demand.versions import CHOSEN, DemandCard, DemandScore, registry_of
from aliquot.learn.settings import LearnSettings
from aliquot.live.forecasting.host import ForecasterProcess
from aliquot.live.forecasting.messages import CallsSeen
from aliquot.live.forecasting.served import ServedForecaster
from aliquot.live.profile.log import MIN_BYTES, ProfileLog
from aliquot.live.profile.records import ProfileRow
from aliquot.live.store.data_directory import PROFILE
from aliquot.testing.waiting import wait_on_loop

NOW_S = 1_700_000_000
STEP_S = 60


def row(t_s, at_once=1, function="report"):
    return ProfileRow("guest", function, t_s, 1, at_once, at_once, 0, 0.1, 0, 0, 1, 1, 0, 0, 1, 0, False, {})


def record(data, *rows):
    log = ProfileLog(data / PROFILE, 10 * MIN_BYTES)
    for one in rows:
        log.add([one])
    log.close()


def regular(number):
    return [row(NOW_S - (number - place) * 600) for place in range(number)]


def served(data, step_s=STEP_S):
    return ServedForecaster(data, step_s, DriftSettings())


def add_version(data, **fields):
    """Add a version without networks, and let it serve."""
    registry, scores = registry_of(data), {CHOSEN: DemandScore(loss=0.1), "mean": DemandScore(loss=0.1)}
    card = DemandCard(
        version=registry.next_version(), created=0, winner=CHOSEN, accepted=True, why="", scores=scores, **fields
    )
    registry.add(card, {})
    registry.serve(card.version)
    return registry


def test_a_forecaster_that_hangs_is_replaced(tmp_path):
    async def hang():
        forecaster = ForecasterProcess(1.0, tmp_path, lambda _: None, LearnSettings(), max_silence_s=1.0)
        forecaster.seen([row(NOW_S)])
        try:
            await wait_on_loop(lambda: forecaster.reports, what="a first report")
            first = forecaster.pid
            os.kill(first, signal.SIGSTOP)
            forecaster.seen([row(NOW_S + 1)])
            await wait_on_loop(lambda: forecaster.pid not in {None, first}, what="another forecaster")
        finally:
            await forecaster.stop()

    asyncio.run(hang())


def test_without_a_history_nothing_is_expected(tmp_path):
    report = served(tmp_path).report(NOW_S)
    assert report.forecast is None
    assert report.state.version == 0
    assert report.retrain == ""


def test_a_torn_profile_is_read_to_its_tear(tmp_path):
    record(tmp_path, *regular(60))
    for path in (tmp_path / PROFILE).iterdir():
        with path.open("ab") as file:
            file.write(b"\x40\x00\x00\x00torn")
    (expected,) = served(tmp_path).report(NOW_S).forecast.rows
    assert expected.chance > 0.5


def test_a_spike_never_seen_is_measured_and_soon_forgotten(tmp_path):
    record(tmp_path, *regular(60))
    forecaster = served(tmp_path)
    forecaster.seen([CallsSeen("guest", "report", float(NOW_S), 500)])
    (told,) = forecaster.report(NOW_S).forecast.rows
    assert told.measured == 500
    for place in range(1, 40):
        forecaster.seen([CallsSeen("guest", "report", float(NOW_S + 600 * place), 1)])
    (told,) = forecaster.report(NOW_S + 600.0 * 40).forecast.rows
    assert told.high < 50


def test_a_version_of_other_steps_does_not_serve_and_says_why(tmp_path):
    record(tmp_path, *regular(60))
    add_version(tmp_path, step_s=10.0)
    report = served(tmp_path).report(NOW_S)
    assert report.state.version == 0
    assert "version 1 forecasts steps of 10 s" in report.state.error
    assert report.forecast.rows


def test_a_version_that_is_chosen_serves_from_the_next_report_on_and_a_broken_one_leaves_it(tmp_path):
    record(tmp_path, *regular(60))
    forecaster = served(tmp_path)
    assert forecaster.report(NOW_S).state.version == 0
    add_version(tmp_path)
    assert forecaster.report(NOW_S).state.version == 1
    registry = add_version(tmp_path)
    (registry.folder(2) / "manifest.json").write_bytes(b"{")
    report = forecaster.report(NOW_S)
    assert report.state.version == 1
    assert "version 2" in report.state.error
    assert report.forecast.rows, "it serves on"
    registry.serve(1, predictor="mean")
    report = forecaster.report(NOW_S)
    assert (report.state.version, report.state.error) == (1, "")
    assert {one.model for one in report.forecast.rows} == {"mean"}


def test_an_application_that_is_called_by_two_tenants_is_two(tmp_path):
    record(tmp_path, *regular(60))
    forecaster = served(tmp_path)
    for place in range(60):
        forecaster.seen([CallsSeen("eve", "report", float(NOW_S - (60 - place) * 600), 1000)])
    rows = forecaster.report(NOW_S).forecast.rows
    assert {one.tenant: one.high for one in rows}["guest"] < 3
