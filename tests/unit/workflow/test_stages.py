"""The stages of a definition: what waits for what, which definitions have none, and which states may still come."""

import pytest
from workflow_definitions import machine

from aliquot.workflow.interpreter import Execution, RunTask, Started, TaskEnded
from aliquot.workflow.language.checked import checked_machine
from aliquot.workflow.stages import PossibleStates, UnplannableError, stages_of

END = {"End": True}


def task(name="f", following=None, **fields):
    return {"Type": "Task", "Resource": name, **fields, **({"Next": following} if following else END)}


def branch(**states):
    return {"StartAt": next(iter(states)), "States": states}


def planned(definition):
    return {stage.name: stage.after for stage in stages_of(checked_machine(definition))}


CASCADE = machine(
    Small=task("small", "Sure"),
    Sure={
        "Type": "Choice",
        "Choices": [{"Variable": "$.sure", "BooleanEquals": True, "Next": "Tell"}],
        "Default": "Big",
    },
    Big=task("big", "Tell"),
    Tell=task("tell"),
)


def test_tasks_in_a_row_wait_for_each_other():
    stages = stages_of(checked_machine(machine(A=task("f", "B"), B=task("g"))))
    assert stages == (("A", "f", ()), ("B", "g", ("A",)))


def test_branches_wait_for_what_is_before_them_and_are_waited_for():
    both = {"Type": "Parallel", "Branches": [branch(L=task()), branch(M=task("f", "N"), N=task())], "Next": "Z"}
    assert planned(machine(A=task("f", "P"), P=both, Z=task())) == {
        "A": (), "L": ("A",), "M": ("A",), "N": ("M",), "Z": ("L", "N"),
    }  # fmt: skip


def test_a_branch_without_tasks_passes_on_what_it_waits_for():
    both = {
        "Type": "Parallel",
        "Branches": [branch(L=task()), branch(N={"Type": "Pass", **END})],
        "Next": "Z",
    }
    assert planned(machine(A=task("f", "P"), P=both, Z=task()))["Z"] == ("L", "A")


def test_all_ways_of_a_choice_are_planned():
    assert planned(CASCADE) == {"Small": (), "Big": ("Small",), "Tell": ("Small", "Big")}


def test_states_that_only_follow_an_error_are_not_planned():
    caught = [{"ErrorEquals": ["States.ALL"], "Next": "Repair"}]
    assert list(planned(machine(A=task("f", "B", Catch=caught), B=task(), Repair=task("f", "A")))) == ["A", "B"]


def test_a_definition_with_very_many_states_has_no_plan():
    states = {f"S{number}": {"Type": "Pass", "Next": f"S{number + 1}"} for number in range(500)}
    with pytest.raises(UnplannableError, match="at most 500 states"):
        planned(machine(**states, S500=task()))


@pytest.mark.parametrize(
    ("state", "field", "definition"),
    [
        ("W", "Type", machine(W={"Type": "Wait", "Seconds": 1, "Next": "A"}, A=task())),
        ("M", "Type", machine(M={"Type": "Map", "ItemProcessor": branch(A=task()), **END})),
        ("A", "Resource", machine(A=task("f.waitForTaskToken"))),
        ("A", "Resource", machine(A=task("arn:aws:states:::lambda:invoke", Parameters={"FunctionName.$": "$.f"}))),
        ("", "States", machine(A={"Type": "Pass", **END})),
        (
            "A",
            "Next",
            machine(
                A=task("f", "C"),
                C={"Type": "Choice", "Choices": [{"Variable": "$.x", "IsNull": True, "Next": "A"}], "Default": "Z"},
                Z=task(),
            ),
        ),
    ],
)
def test_a_definition_that_cannot_be_planned_names_the_state(state, field, definition):
    with pytest.raises(UnplannableError) as raised:
        planned(definition)
    assert (raised.value.complaint.state, raised.value.complaint.field) == (state, field)


def test_states_after_a_task_that_run_in_its_sandbox_are_one_stage_with_it():
    found = stages_of(checked_machine(machine(A=task("f", "B"), B=task("g", "C"), C=task("h"))), lambda _: 1)
    assert [(stage.name, stage.after) for stage in found] == [("A", ()), ("C", ("A",))]


def run_to(definition, **outputs):
    """Run a definition whose tasks end with these outputs, and return the states that may still come."""
    execution = Execution(checked_machine(definition))
    waiting = execution.step([Started("x", {})], 0)
    while True:
        ready = [one for one in waiting if isinstance(one, RunTask) and one.state in outputs]
        waiting = [one for one in waiting if one not in ready]
        if not ready:
            return PossibleStates().of(execution.root)
        for one in ready:
            waiting += execution.step([TaskEnded(one.task, outputs[one.state])], 0)


def test_what_a_choice_has_passed_by_cannot_come_any_more():
    assert {"Big", "Tell"} <= run_to(CASCADE)
    sure = run_to(CASCADE, Small={"sure": True})
    assert "Tell" in sure
    assert "Big" not in sure
    assert "Big" in run_to(CASCADE, Small={"sure": False})
    assert not run_to(CASCADE, Small={"sure": True}, Tell={})


def test_inside_of_branches_each_way_counts():
    inner = {name: {**state} for name, state in CASCADE["States"].items()}
    both = {"Type": "Parallel", "Branches": [{"StartAt": "Small", "States": inner}, branch(L=task())], "Next": "Z"}
    definition = machine(P=both, Z=task())
    assert {"Big", "L", "Z"} <= run_to(definition)
    found = run_to(definition, Small={"sure": True}, L={})
    assert "Z" in found
    assert "Tell" in found
    assert not {"Big", "L"} & found
