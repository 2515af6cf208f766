"""Functions files with memory that is needed only during a run, and their effect on a simulation."""

import pytest

from aliquot.config import PolicySettings
from aliquot.core.errors import InputError
from aliquot.core.model import DeviceSpec
from aliquot.core.units import MIB
from aliquot.sim.arrivals import Arrival, ListedWorkload
from aliquot.sim.engine import Scenario, simulate
from aliquot.sim.output_files import write_functions
from aliquot.sim.traces import FunctionsFile

HEADER = "name,run_s,cold_s,memory_mib,share,run_mib,one_per_device\n"


def read(tmp_path, text):
    path = tmp_path / "functions.csv"
    path.write_text(text)
    return FunctionsFile(path).functions


def end_of_last(functions, memory_mib):
    """Simulate one call of each function at once on one device, and return when the last was dispatched."""
    devices = [DeviceSpec("gpu-1", memory_bytes=memory_mib * MIB)]
    workload = ListedWorkload([Arrival(0, name) for name in functions])
    lines = []
    simulate(
        Scenario(devices, functions, workload, check=True), PolicySettings("fair_resident"), on_dispatch=lines.append
    )
    return max(line.time_s for line in lines)


def test_the_columns_are_read_and_written(tmp_path):
    functions = read(tmp_path, HEADER + "a,1,0,10,0.5,20,1\nb,1,0,10,0.5,,\n")
    assert [(spec.run_bytes, spec.one_per_device) for spec in functions.values()] == [(20 * MIB, True), (0, False)]
    again = tmp_path / "again.csv"
    write_functions(functions.values(), again)
    assert FunctionsFile(again).functions == functions


def test_a_wrong_flag_is_refused_with_its_place(tmp_path):
    with pytest.raises(InputError, match=r"functions.csv:2: one_per_device is 'yes'; it takes 0 or 1"):
        read(tmp_path, HEADER + "a,1,0,10,0.5,20,yes\n")


def test_two_runs_wait_for_each_other_if_their_memory_does_not_fit_together(tmp_path):
    functions = read(tmp_path, HEADER + "a,1,0,10,0.5,20,1\nb,1,0,10,0.5,20,1\n")
    assert end_of_last(functions, 60) == 0
    assert end_of_last(functions, 40) == 1
