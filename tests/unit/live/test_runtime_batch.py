"""The launcher's side of a batch: one call of the function, and an answer for each item."""

import json
import pickle

import pytest

from aliquot.runtime import objects, program
from aliquot.runtime.batch import HANDED, JSON, OBJECTS, PICKLED, BatchFunction
from aliquot.runtime.frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS

MAX_BYTES = 1000


def item(payload, form=JSON, **more):
    return {
        "form": form,
        "size": len(payload),
        "task": False,
        "hand_on": False,
        "defaults": {},
        "objects": 0,
        **more,
    }, payload


def pickled(*args, **kwargs):
    return item(pickle.dumps((args, kwargs)), PICKLED)


def as_json(value, **more):
    return item(json.dumps(value).encode(), **more)


def run(main, *items, sdk=True):
    """Return the whole answer, and status, result and pickled value of each item."""
    function = BatchFunction(main, MAX_BYTES, sdk=sdk)
    answer = function.run([one for one, _ in items], b"".join(own for _, own in items), [])
    listed, at = json.loads(answer.result), 0
    made = []
    for status, result, size in listed if isinstance(listed, list) else ():
        own = answer.pickled[at : at + size]
        is_container = size and not own.startswith(b"\x80")
        value = "a container" if is_container else pickle.loads(own) if size else None  # noqa: S301 - our own
        made.append((status, result, value))
        at += size
    return answer, made


def doubled(values):
    return [value * 2 for value in values]


def test_each_caller_gets_its_result_in_its_own_form():
    _, made = run(doubled, pickled(1), as_json({"values": "a"}), pickled(values=3))
    assert [(status, value) for status, _, value in made] == [(SUCCESS, 2), (SUCCESS, None), (SUCCESS, 6)]
    assert made[1][1] == {"value": "aa"}


def test_a_plain_action_gets_and_returns_objects():
    _, made = run(lambda items: [{"x": 1}, {"error": "no"}, 5][: len(items)], *[as_json({})] * 3, sdk=False)
    assert [(status, result) for status, result, _ in made[:2]] == [
        (SUCCESS, {"x": 1}),
        (APPLICATION_ERROR, {"error": "no"}),
    ]
    assert made[2][0] == DEVELOPER_ERROR


def test_an_item_whose_arguments_cannot_be_read_fails_alone():
    """The others run without it."""
    _, made = run(doubled, pickled(1), item(b"no pickle", PICKLED), pickled(2, 3), as_json({"other": 1}), pickled(4))
    assert [status for status, _, _ in made] == [SUCCESS, *[APPLICATION_ERROR] * 3, SUCCESS]
    assert isinstance(made[2][2], TypeError)
    assert made[4][2] == 8


@pytest.mark.parametrize("results", [[1], {1: 1, 2: 2}, "ab", None, 7, iter([1, 2])])
def test_anything_but_one_result_for_each_item_is_wrong_for_all(results):
    _, made = run(lambda _: results, pickled(1), pickled(2))
    assert [status for status, _, _ in made] == [DEVELOPER_ERROR] * 2
    assert "one result for each of its 2 items" in made[0][1]["error"]


def test_an_exception_of_the_whole_run_is_described_once():
    def fail(_):
        raise ValueError("broken")

    answer, made = run(fail, pickled(1), as_json({"_": 1}))
    assert made == []
    assert answer.status == APPLICATION_ERROR
    assert json.loads(answer.result) == {"error": "broken", "type": "ValueError", "outOfMemory": False}
    assert str(pickle.loads(answer.pickled)) == "broken"  # noqa: S301 - our own


def test_exhausted_memory_ends_the_sandbox():
    def fail(_):
        raise MemoryError

    assert run(fail, pickled(1))[0].status == DEVELOPER_ERROR


def test_a_result_that_no_pickle_holds_or_that_is_too_long_fails_its_item():
    _, made = run(lambda _: [lambda: 1, "x" * 2 * MAX_BYTES, "y"], *(pickled(number) for number in range(3)))
    assert [status for status, _, _ in made] == [APPLICATION_ERROR, APPLICATION_ERROR, SUCCESS]


def test_a_task_gets_the_name_of_its_items_exception():
    _, made = run(lambda _: [KeyError("k")], as_json({"_": 1}, task=True))
    assert made[0][1] == {"error": {"name": "KeyError", "message": "'k'"}}


def test_an_item_of_a_sequence_has_the_defaults_of_its_function_and_may_answer_with_a_pickle():
    handed = item(pickle.dumps({"x": {1, 2}}), HANDED, hand_on=True, defaults={"y": 3})
    _, made = run(lambda items: items, handed, sdk=False)
    ((status, _, value),) = made
    assert (status, value) == (SUCCESS, {"x": {1, 2}, "y": 3})


def test_an_item_of_a_workflow_may_have_objects_and_return_them():
    packed = objects.pack(b'{"items":null}', [objects.PackedObject([0, "items"], pickle.dumps({1, 2}))])
    _, made = run(lambda items: items, item(packed, OBJECTS, task=True), as_json({"items": 3}, task=True))
    assert [status for status, _, _ in made] == [SUCCESS, SUCCESS]
    assert made[1][1] == {"value": 3}
    assert made[0][2] == "a container"


def test_parameters_of_the_environment_are_no_arguments_of_an_item():
    main = program._without_arguments(lambda items: items, frozenset({"secret"}))
    _, made = run(main, as_json({"secret": 1, "x": 2}), sdk=False)
    assert made[0][1] == {"x": 2}
