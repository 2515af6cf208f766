"""The probe of the machine's isolation runs beside the start of the server."""

from pathlib import Path

import psutil
from sandboxes import strongest

from aliquot.live.node.isolation import IsolationProbe, choose
from aliquot.testing.waiting import wait_until


def test_a_probe_runs_before_anybody_waits_for_its_result():
    with IsolationProbe(Path("/nowhere")) as probe:
        (process,) = psutil.Process().children()
        wait_until(process.status, lambda status: status == psutil.STATUS_ZOMBIE, what="the end of the probe")
        assert choose(probe.result()) == strongest()


def test_a_probe_whose_result_nobody_wants_is_ended():
    with IsolationProbe(Path("/nowhere")):
        (process,) = psutil.Process().children()
    assert not process.is_running()
