"""Forecasts of a real server: trained, found to drift, trained again, promoted and rolled back."""

import time

import pytest
from live_platform import QuickPlatform
from pages import DocumentPage

from aliquot.live.profile.log import MIN_BYTES, ProfileLog
from aliquot.live.profile.records import ProfileRow
from aliquot.testing.waiting import wait_until

CODE = "def main(args): return {}\n"
STEP_S = 2
OPTIONS = (
    "--provisioning", "forecast", "--set", f"forecast.step_s={STEP_S}", "--set", "forecast.price=1000",
    *(word for setting in ("epochs=4", "drift_rows=20", "least_rows=100000") for word in ("--learning", setting)),
)  # fmt: skip
BEFORE, AFTER = (
    (1, 1, 9, 1, 5, 1, 7),
    (30, 3, 3, 12, 1, 1, 20, 2, 9, 4, 15),
)  # calls at once in steps that follow each other
NUMBER_BEFORE, NUMBER_AFTER = 300, 600


def record(folder, pattern, number, until_s):
    """Write profiles of a function whose calls at once follow a pattern."""
    log = ProfileLog(folder / "data" / "profile", 100 * MIN_BYTES)
    for place in range(number):
        t_s = int(until_s) - (number - place) * STEP_S
        at_once = pattern[place % len(pattern)]
        log.add([ProfileRow("guest", "report", t_s, 1, at_once, at_once, 0, 0.1, 0, 0, 1, 1, 0, 0, 1, 0, False, {})])
    log.close()


def begin_forecasts(platform):
    """Call a function, which starts the forecaster."""
    with platform.client() as client:
        client.deploy("other", CODE)
        client.call("other", {})


def models(platform):
    return platform.operate("GET", "models/demand")


@pytest.mark.long
def test_forecasts_are_trained_drift_are_promoted_and_rolled_back(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    (tmp_path / "data").mkdir(mode=0o700)
    now_s = time.time()
    record(tmp_path, BEFORE, NUMBER_BEFORE, now_s - NUMBER_AFTER * STEP_S)
    with QuickPlatform(tmp_path, *OPTIONS) as platform:
        assert "nothing has been learned yet" in platform.aliquot("model", "list", "--of", "demand")
        train, show = DocumentPage("how-to/forecasts.md").section("Train forecasts").commands()
        assert "version 1: better" in platform.aliquot(*train)
        assert "1 serves" in platform.aliquot(*show)
        begin_forecasts(platform)
        wait_until(lambda: models(platform)["forecaster"] == 1, what="the forecaster with version 1")
    record(tmp_path, AFTER, NUMBER_AFTER, now_s)
    with QuickPlatform(tmp_path, *OPTIONS) as platform:
        begin_forecasts(platform)
        wait_until(lambda: models(platform)["forecaster"] == 2, what="a version that was trained because of the drift")
        assert "aliquot_forecast_version 2.0" in platform.metrics()
        shown = platform.aliquot("model", "show", "--of", "demand", "--plot", tmp_path / "curve.png")
        assert (tmp_path / "curve.png").stat().st_size > 1000
        assert "2 serves" in shown
        assert "the loss was above" in shown
        assert "gru.onnx" in shown
        assert "version 1" in platform.aliquot("model", "rollback", "--of", "demand")
        wait_until(lambda: models(platform)["forecaster"] == 1, what="the forecaster with version 1 again")
        assert models(platform)["serving"]["pinned"]
        assert "aliquot_forecast_version 1.0" in platform.metrics()
        (tmp_path / "data" / "forecasting" / "models" / "000002" / "gru.onnx").write_bytes(b"truncated")
        refused = platform.aliquot("model", "use", "2", "--of", "demand", code=6)
        assert "gru.onnx does not match its checksum" in refused
        assert models(platform)["serving"]["version"] == 1
