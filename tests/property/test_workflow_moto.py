"""Random machines end on moto as they end here: output, error, and the types of the history in each branch.

Branches run one after the other on both sides, because two that fail are a race. Errors that moto and AWS tell
differently are left out: a result placed into what is no object, JSONata that throws, and a branch of Parallel that
fails with an error of the language, for which moto has no name (so its Catch takes another way).
"""

import json
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from workflow_shell import Shell
from workflow_strategies import VALUE, jsonata_machines, machines

from aliquot.workflow.history import replay_history
from aliquot.workflow.interpreter import forks

LEFT_OUT = "States.ResultPathMatchFailure"
if find_spec("moto") is None:
    pytest.skip("moto is a development dependency", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")  # botocore and moto use what Python deprecates


@pytest.fixture(scope="module")
def moto():
    from moto_states import MotoStates  # which takes a second, so only in the process that needs it

    with pytest.MonkeyPatch.context() as monkeypatch, MotoStates(monkeypatch) as states:
        monkeypatch.setattr(forks, "MAX_AT_ONCE", 1)
        yield states


def branch_names(machine, path=()):
    """Yield the name of each state with the branch that has it."""
    for name, state in machine["States"].items():
        yield name, path
        for number, branch in enumerate([*state.get("Branches", []), *filter(None, [state.get("ItemProcessor")])]):
            yield from branch_names(branch, (*path, name, number))


def by_branch(definition, events):
    """Return the types of the events that name a state, for each branch, and all types of events that name none."""
    branches = dict(branch_names(definition))
    found = {}
    for event in events:
        details = event.get("stateEnteredEventDetails") or event.get("stateExitedEventDetails")
        found.setdefault(branches[details["name"]] if details else None, []).append(event["type"])
    return found


def failed_in_a_branch(event):
    return event["type"] == "ParallelStateFailed" and event["parallelStateFailedEventDetails"]["error"][:7] == "States."


def compare(moto, definition, value):
    shell = Shell(definition)
    ours = shell.run(value)
    history = replay_history(shell.machine, shell.log)
    assume(ours.error != LEFT_OUT and not any(map(failed_in_a_branch, history)))
    theirs, events = moto.run(definition, value)
    assert ours.status == theirs["status"], theirs.get("cause")
    if ours.status == "SUCCEEDED":
        told = theirs["output"]
        assert ours.output == (told if isinstance(ours.output, str) else json.loads(told))  # moto quotes no string
    else:
        assert ours.error == theirs["error"]
    assert by_branch(definition, history) == by_branch(definition, events)


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(max_examples=15, suppress_health_check=SLOW)
@given(definition=machines())
def test_a_random_machine_ends_as_on_moto(moto, definition):
    compare(moto, definition, VALUE)


@settings(max_examples=10, suppress_health_check=SLOW)
@given(definition=jsonata_machines())
def test_a_random_machine_in_jsonata_ends_as_on_moto(moto, definition):
    compare(moto, definition, VALUE)


@pytest.mark.long
@settings(max_examples=1000, suppress_health_check=SLOW)
@given(definition=st.one_of(machines(), jsonata_machines()))
def test_many_random_machines_end_as_on_moto(moto, definition):
    compare(moto, definition, VALUE)
