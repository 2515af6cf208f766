"""The outline of a definition: rows of Tasks that could share a sandbox, and forks with the tasks that run at once."""

from workflow_definitions import END, machine

from aliquot.workflow.outline import MAX_OUTLINED_TASKS, neighbour_warnings, outline_of, turn_warnings


def task(name, following=None, **fields):
    return {"Type": "Task", "Resource": name, **fields, **({"Next": following} if following else {"End": True})}


def parallel(*branches, **more):
    return {"Type": "Parallel", "Branches": list(branches), "End": True, **more}


def mapped(processor, **more):
    return {"Type": "Map", "ItemProcessor": processor, "End": True, **more}


def neighbours(definition, *groups):
    """Return the warnings, where functions of one of the groups (texts of letters) could share a sandbox."""
    could = lambda names: any(set(names) <= set(group) for group in groups)  # noqa: E731
    return [(one.state, one.reason) for one in neighbour_warnings(outline_of(definition), lambda _: False, could)]


def turns(definition, sizes, room):
    """Return the states that are warned of, where tasks fit while their sizes are at most `room` together."""

    def count(states):
        fitting, left = 0, room
        for size in sorted((sizes[state] for state in states), reverse=True):
            if size <= left:
                fitting, left = fitting + 1, left - size
        return fitting

    warnings = turn_warnings(outline_of(definition), sizes, count)
    return {one.state: one.reason.partition(": ")[2] for one in warnings}


def test_the_longest_row_that_could_share_a_sandbox_is_named_once():
    flow = machine(A=task("f", "B"), B=task("g", "C"), C=task("h", "D"), D=task("i"))
    assert [state for state, _ in neighbours(flow, "fghi")] == ["A"]
    assert "with 'B', 'C', 'D' after it, it would fit into one group (f, g, h, i)" in neighbours(flow, "fghi")[0][1]
    assert [state for state, _ in neighbours(flow, "fg", "hi")] == ["A", "C"]
    assert neighbours(flow, "gh")[0][0] == "B"
    assert neighbours(flow, "fh") == []
    backwards = machine(B=task("g", "C"), A=task("f", "B"), C=task("h"))
    assert [state for state, _ in neighbours({**backwards, "StartAt": "A"}, "fgh")] == ["A"]


def test_rows_are_found_in_branches_and_end_where_something_happens_between():
    flow = machine(P=parallel(machine(A=task("f", "B"), B=task("g")), machine(C=task("f"))))
    assert [state for state, _ in neighbours(flow, "fg")] == ["A"]
    assert neighbours(machine(A=task("f", "B"), B=task("g", TimeoutSeconds=3)), "fg") == []
    assert neighbours(machine(A=task("f", "B"), B={**END, "Next": "C"}, C=task("g")), "fg") == []


def test_functions_that_share_a_sandbox_are_not_named():
    flow = outline_of(machine(A=task("f", "B"), B=task("g")))
    assert list(neighbour_warnings(flow, lambda _: True, lambda _: True)) == []


def test_branches_that_do_not_fit_at_once_take_turns():
    flow = machine(P=parallel(machine(A=task("f")), machine(B=task("g")), machine(C=task("cpu"))))
    assert turns(flow, {"A": 0.5, "B": 0.5}, 1) == {}
    told = turns(flow, {"A": 0.5, "B": 0.75}, 1)
    assert told == {"P": "2 tasks with a slice ('A', 'B') may run at once, and 1 of them fit on the devices"}


def test_a_branch_counts_with_its_largest_slice():
    long = machine(A=task("f", "B", Comment="small"), B=task("g", "W"), W={"Type": "Wait", "Seconds": 1, "End": True})
    flow = machine(P=parallel(long, machine(C=task("h"))))
    assert turns(flow, {"A": 0.1, "B": 0.5, "C": 0.5}, 1) == {}
    assert "('B', 'C')" in turns(flow, {"A": 0.1, "B": 0.6, "C": 0.5}, 1)["P"]


def test_a_map_counts_as_often_as_it_may_run_at_once():
    flow = machine(M=mapped(machine(A=task("f")), MaxConcurrency=3))
    assert turns(flow, {"A": 0.25}, 1) == {}
    assert turns(flow, {"A": 0.5}, 1)["M"].startswith("3 tasks with a slice ('A') may run at once, and 2 of them")
    unbounded = machine(M=mapped(machine(A=task("f"))))
    assert turns(unbounded, {"A": 1}, 1) == {}
    computed = {"QueryLanguage": "JSONata", **machine(M=mapped(machine(A=task("f")), MaxConcurrency="{% 3 %}"))}
    assert turns(computed, {"A": 1}, 1) == {}


def test_the_innermost_fork_that_does_not_fit_is_named():
    inner = parallel(machine(C=task("f")), machine(D=task("f")))
    flow = machine(P=parallel(machine(A=task("f")), machine(B=inner)))
    sizes = dict.fromkeys("ACD", 0.5)
    assert list(turns(flow, sizes, 1)) == ["P"]
    assert list(turns(flow, sizes, 0.5)) == ["B"]
    assert list(turns(machine(M=mapped(machine(P=inner), MaxConcurrency=2)), sizes, 1)) == ["M"]


def test_the_outline_of_a_large_definition_is_empty():
    names = [f"S{number}" for number in range(MAX_OUTLINED_TASKS + 1)]
    states = {name: task("f", after) for name, after in zip(names, [*names[1:], None], strict=True)}
    assert outline_of(machine(**states)).rows == ()
    del states[names[-1]]
    states[names[-2]] = task("f")
    assert len(outline_of(machine(**states)).rows) == MAX_OUTLINED_TASKS - 1
