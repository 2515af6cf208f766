"""The probe of the machine's isolation runs beside the start of the server."""

from contextlib import contextmanager
from pathlib import Path

import psutil
from sandboxes import strongest

from aliquot.live.node.isolation import IsolationProbe, choose
from aliquot.testing.waiting import wait_until


@contextmanager
def running_probe():
    """Run a probe. Yields it and its process."""
    others = set(psutil.Process().children())
    with IsolationProbe(Path("/nowhere")) as probe:
        (process,) = set(psutil.Process().children()) - others
        yield probe, process


def test_a_probe_runs_before_anybody_waits_for_its_result():
    with running_probe() as (probe, process):
        wait_until(process.status, lambda status: status == psutil.STATUS_ZOMBIE, what="the end of the probe")
        assert choose(probe.result()) == strongest()


def test_a_probe_whose_result_nobody_wants_is_ended():
    with running_probe() as (_, process):
        pass
    assert not process.is_running()
