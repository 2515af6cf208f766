"""Sequences and conductors as state machines: how components ended goes in, what runs next or the end comes out."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.sequences.frames import ComponentEnd, ConductorFrame
from aliquot.live.invocations.sequences.machine import CompositionMachine, RunAction
from aliquot.live.node.base import Status
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import SEQUENCE, Action, Exec, FullName, Limits, Pair

CODE = Exec("python:3.11", "x")
OK, APPLICATION_ERROR, DEVELOPER_ERROR = Status.SUCCESS, Status.APPLICATION_ERROR, Status.DEVELOPER_ERROR


def single(name, memory=256, **parameters):
    return Action(
        "me", name, "0.0.1", CODE, Limits(memory=memory), parameters=tuple(Pair(*pair) for pair in parameters.items())
    )


def sequence(name, *components):
    return Action("me", name, "0.0.1", Exec(SEQUENCE, components=tuple(FullName("me", one) for one in components)))


def conductor(name, memory=256, **parameters):
    action = single(name, memory, **parameters)
    return Action("me", name, "0.0.1", CODE, action.limits, parameters=action.parameters, annotations=(
        Pair("conductor", value=True),
    ))  # fmt: skip


class Stage:
    """A machine with actions that do as the test says; `ran` and `closed` tell what happened."""

    def __init__(self, *actions, most=50):
        self.actions = {action.name: action for action in actions}
        self.numbers = itertools.count(1)
        self.machine = CompositionMachine(self.resolve, lambda: f"id{next(self.numbers)}", max_components=most)
        self.ran = []
        self.closed = []
        self.waiting = None
        self.now = 1000

    def resolve(self, name):
        if name.namespace != "me":
            raise AccessDeniedError(str(name)[1:])
        if name.name not in self.actions:
            raise NotFoundError(str(name))
        return ResolvedAction.own(self.actions[name.name])

    def begin(self, name, payload=None):
        resolved = self.resolve(FullName("me", name))
        body = json.dumps(payload or {}).encode()
        self._take(self.machine.begin("top", resolved, body, cause="", now_ms=self.now))
        return self

    def finish(self, result, status=OK, duration=10, wait=0):
        run = self.waiting
        self.now += 100
        memory = run.resolved.action.limits.memory
        ending = ComponentEnd(run.id, status, json.dumps(result).encode(), duration, memory, wait)
        self._take(self.machine.returned(ending, self.now))
        return self

    def finish_all(self, answer):
        """End one run after the other with `answer(name)` until the composition ends."""
        for _ in range(100):
            self.finish(answer(self.next[0]))
            if self.end is not None:
                return
        raise AssertionError(f"the composition does not end: {self.ran}")

    def _take(self, commands):
        self.waiting = None
        for command in commands:
            assert self.waiting is None, "nothing follows a run"
            if isinstance(command, RunAction):
                self.waiting = command
                self.ran.append((command.resolved.action.name, json.loads(command.payload)))
            else:
                self.closed.append(command)

    @property
    def next(self):
        return self.waiting and (self.waiting.resolved.action.name, json.loads(self.waiting.payload))

    @property
    def end(self):
        """Status and result of the whole, once there is one."""
        last = self.closed[-1] if self.closed else None
        return (last.status, json.loads(last.result)) if last is not None and last.frame.id == "top" else None


# --- sequences ------------------------------------------------------------------------------------------------


def test_the_result_of_one_component_is_the_input_of_the_next():
    stage = Stage(sequence("s", "a", "b"), single("a"), single("b")).begin("s", {"x": 1})
    assert stage.next == ("a", {"x": 1})
    assert stage.finish({"y": 2}).next == ("b", {"y": 2})
    assert stage.finish({"z": 3}).end == (OK, {"z": 3})


def test_arrays_go_on_as_they_are_whatever_the_next_ones_parameters():
    stage = Stage(sequence("s", "a", "b"), single("a"), single("b", d=1)).begin("s")
    assert stage.finish([1, 2]).next == ("b", [1, 2])
    assert stage.finish([3]).end == (OK, [3])


def test_a_components_own_parameters_lie_beneath_what_it_is_given():
    stage = Stage(sequence("s", "a", "b"), single("a", p=1), single("b", p=1, q=2)).begin("s", {"x": 0})
    assert stage.next == ("a", {"p": 1, "x": 0})
    assert stage.finish({"p": 9}).next == ("b", {"p": 9, "q": 2})


@pytest.mark.parametrize("status", [APPLICATION_ERROR, DEVELOPER_ERROR, Status.INTERNAL_ERROR])
def test_a_sequence_stops_at_the_first_error_and_ends_as_it(status):
    stage = Stage(sequence("s", "a", "b"), single("a"), single("b")).begin("s")
    assert stage.finish({"error": "no"}, status).end == (status, {"error": "no"})
    assert [name for name, _ in stage.ran] == ["a"]


def test_an_error_among_the_arguments_of_the_first_does_not_stop_it():
    stage = Stage(sequence("s", "a"), single("a")).begin("s", {"error": "given"})
    assert stage.next == ("a", {"error": "given"})


def test_durations_are_summed_and_the_largest_memory_counts_and_the_logs_are_the_components():
    stage = Stage(sequence("s", "a", "b"), single("a", memory=512), single("b", memory=128)).begin("s")
    first = stage.waiting
    stage.finish({}, duration=30, wait=7)
    second = stage.waiting
    stage.finish({}, duration=12, wait=1)
    frame = stage.closed[-1].frame
    assert (frame.duration_ms, frame.memory_mb, frame.wait_ms, frame.start_ms) == (42, 512, 7, 1000)
    assert frame.components == [first.id, second.id]
    assert (first.cause, second.cause) == ("top", "top")


def test_a_sequence_within_one_has_a_record_of_its_own_between_the_components():
    stage = Stage(sequence("s", "a", "t", "b"), sequence("t", "c"), single("a"), single("b"), single("c")).begin("s")
    stage.finish({"n": 1}, duration=1)
    assert stage.next == ("c", {"n": 1})
    inner = stage.waiting.cause
    assert inner not in {"top", stage.waiting.id}
    stage.finish({"n": 2}, duration=2)
    (closed,) = stage.closed
    assert (closed.frame.id, closed.frame.cause, closed.frame.duration_ms) == (inner, "top", 2)
    assert stage.next == ("b", {"n": 2})
    stage.finish({"n": 3}, duration=4)
    top = stage.closed[-1].frame
    assert (top.duration_ms, top.components[1]) == (7, inner)


def test_a_component_that_is_gone_ends_the_sequence_there():
    stage = Stage(sequence("s", "a", "b"), single("a")).begin("s")
    assert stage.finish({}).end == (APPLICATION_ERROR, {"error": "Sequence component does not exist."})


def test_a_component_that_is_deleted_while_another_runs_is_not_found_in_its_turn():
    stage = Stage(sequence("s", "a", "b"), single("a"), single("b")).begin("s")
    del stage.actions["b"]
    assert stage.finish({}).end == (APPLICATION_ERROR, {"error": "Sequence component does not exist."})


def test_single_actions_are_counted_across_nested_sequences():
    stage = Stage(sequence("s", "t", "t", "t"), sequence("t", "a", "a"), single("a"), most=5).begin("s")
    stage.finish_all(lambda _: {})
    assert stage.end == (APPLICATION_ERROR, {"error": "Too many actions in the sequence."})
    assert len(stage.ran) == 5


def test_sequences_that_hold_each_other_end():
    stage = Stage(sequence("s", "t"), sequence("t", "s")).begin("s")
    assert stage.end == (APPLICATION_ERROR, {"error": "Too many actions in the sequence."})


def test_a_component_that_was_never_taken_fails_the_sequence():
    stage = Stage(sequence("s", "a", "b"), single("a"), single("b")).begin("s")
    stage._take(stage.machine.lost("no room", 5))
    assert stage.end == (Status.INTERNAL_ERROR, {"error": "no room"})


# --- conductors -----------------------------------------------------------------------------------------------


def test_a_conductor_calls_a_component_and_gets_its_result_with_the_state():
    stage = Stage(conductor("c"), single("a")).begin("c", {"x": 1})
    assert stage.next == ("c", {"x": 1})
    stage.finish({"action": "a", "params": {"n": 1}, "state": {"step": 2}})
    assert stage.next == ("a", {"n": 1})
    assert stage.finish({"m": 3, "step": 0}).next == ("c", {"m": 3, "step": 2})
    assert stage.finish({"params": {"done": True}}).end == (OK, {"done": True})


def test_without_an_action_the_whole_answer_is_the_result():
    stage = Stage(conductor("c")).begin("c")
    assert stage.finish({"a": 1, "state": {"x": 1}}).end == (OK, {"a": 1, "state": {"x": 1}})


def test_values_that_are_no_objects_are_boxed():
    stage = Stage(conductor("c"), single("a")).begin("c")
    assert stage.finish({"action": "a", "params": 5, "state": [1]}).next == ("a", {"value": 5})
    assert stage.finish([1, 2]).next == ("c", {"value": [1, 2], "state": [1]})
    assert stage.finish({"params": "text"}).end == (OK, {"value": "text"})


def test_an_array_from_a_conductor_is_its_result():
    assert Stage(conductor("c")).begin("c").finish([1]).end == (OK, [1])


def test_state_lasts_for_one_turn():
    stage = Stage(conductor("c"), single("a")).begin("c")
    stage.finish({"action": "a", "state": {"s": 1}}).finish({})
    assert stage.next == ("c", {"s": 1})
    stage.finish({"action": "a"}).finish({"r": 1})
    assert stage.next == ("c", {"r": 1})


def test_the_conductors_own_parameters_are_merged_at_every_turn():
    stage = Stage(conductor("c", p=1), single("a", q=2)).begin("c")
    assert stage.next == ("c", {"p": 1})
    assert stage.finish({"action": "a", "params": {"n": 1}}).next == ("a", {"q": 2, "n": 1})
    assert stage.finish({"r": 1}).next == ("c", {"p": 1, "r": 1})


@pytest.mark.parametrize("status", [APPLICATION_ERROR, DEVELOPER_ERROR])
def test_an_error_of_the_conductor_ends_the_composition(status):
    stage = Stage(conductor("c"), single("a")).begin("c")
    assert stage.finish({"error": "no"}, status).end == (status, {"error": "no"})


def test_an_error_of_a_component_is_the_conductors_to_judge():
    stage = Stage(conductor("c"), single("a")).begin("c")
    stage.finish({"action": "a", "state": {"s": 1}})
    assert stage.finish({"error": "no"}, DEVELOPER_ERROR).next == ("c", {"error": "no", "s": 1})
    assert stage.finish({"fine": True}).end == (OK, {"fine": True})


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (5, "Failed to parse action name from json value 5 during composition."),
        (None, "Failed to parse action name from json value null during composition."),
        ({"a": [1, 2]}, 'Failed to parse action name from json value {"a":[1,2]} during composition.'),
        ("", 'Failed to parse action name from json value "" during composition.'),
        ("/a", 'Failed to parse action name from json value "/a" during composition.'),
        ("a b/ c", 'Failed to parse action name from json value "a b/ c" during composition.'),
        ("/a/b/c/d", 'Failed to parse action name from json value "/a/b/c/d" during composition.'),
        ("nothing", "Failed to resolve action with name 'me/nothing' during composition."),
        ("pkg/nothing", "Failed to resolve action with name 'me/pkg/nothing' during composition."),
        ("/_/nothing", "Failed to resolve action with name 'me/nothing' during composition."),
        ("/you/x", "Failed entitlement check for action with name 'you/x' during composition."),
        ("you/p/x", "Failed entitlement check for action with name 'you/p/x' during composition."),
    ],
)
def test_what_cannot_be_called_is_told_to_the_conductor(action, text):
    stage = Stage(conductor("c")).begin("c")
    assert stage.finish({"action": action, "state": {"s": 1}}).next == ("c", {"error": text, "s": 1})


@pytest.mark.parametrize("name", ["p/a", "/me/p/a", "/_/p/a", "me/p/a", "_/p/a", "//me//p/a"])
def test_a_component_may_be_named_in_every_way_that_openwhisk_knows(name):
    stage = Stage(conductor("c"), single("p/a")).begin("c")
    assert stage.finish({"action": name}).next == ("p/a", {})


def test_too_many_components_are_told_to_the_conductor_and_its_own_turns_are_bounded_too():
    stage = Stage(conductor("c"), single("a"), most=3).begin("c")
    stage.finish_all(lambda _: {"action": "a"})
    assert stage.end == (APPLICATION_ERROR, {"error": "Too many actions in the composition."})
    names = [name for name, _ in stage.ran]
    assert (names.count("a"), names.count("c")) == (3, 7)
    assert stage.ran[-1] == ("c", {"error": "Too many actions in the composition."})


def test_nested_conductors_share_the_limits():
    stage = Stage(conductor("c"), conductor("d"), single("a"), most=3).begin("c")
    answers = {"c": {"action": "d"}, "d": {"action": "a"}, "a": {}}
    stage.finish_all(answers.get)
    names = [name for name, _ in stage.ran]
    assert names.count("a") <= 3
    assert names.count("c") + names.count("d") == 7


def test_a_conductor_that_calls_itself_without_end_ends():
    stage = Stage(conductor("c"), most=3).begin("c")
    stage.finish_all(lambda _: {"action": "c"})
    assert len(stage.ran) == 7
    assert stage.end[0] is APPLICATION_ERROR


def test_a_conductor_that_calls_itself_through_a_sequence_ends():
    stage = Stage(conductor("c"), sequence("s", "c"), most=3).begin("c")
    stage.finish_all(lambda _: {"action": "s"})
    assert len(stage.ran) <= 7


def test_conductors_in_a_row_have_limits_of_their_own():
    stage = Stage(sequence("s", "c", "c"), conductor("c"), single("a"), most=2).begin("s")
    for _ in range(2):
        for _ in range(2):
            stage.finish({"action": "a"}).finish({})
        stage.finish({"done": True})
    assert stage.end == (OK, {"done": True})


def test_a_sequence_counts_as_one_component_of_a_conductor():
    stage = Stage(conductor("c", memory=300), sequence("s", "a", "a"), single("a", memory=400), most=2).begin("c")
    stage.finish({"action": "s", "params": {"n": 1}}, duration=1)
    assert stage.next == ("a", {"n": 1})
    stage.finish({}, duration=2).finish({"n": 2}, duration=4)
    assert stage.next == ("c", {"n": 2})
    stage.finish({}, duration=8)
    inner, top = (close.frame for close in stage.closed)
    assert (inner.cause, inner.duration_ms, top.duration_ms) == ("top", 6, 15)
    assert len(top.components) == 3
    assert top.memory_mb == 400


def test_a_cancelled_composition_ends_with_the_component_that_runs_and_its_conductor_is_not_asked():
    stage = Stage(conductor("c"), single("a")).begin("c")
    stage.finish({"action": "a"})
    stage.machine.cancel("top")
    assert stage.finish({"error": "cancelled"}, Status.INTERNAL_ERROR).end == (
        Status.INTERNAL_ERROR,
        {"error": "cancelled"},
    )


def test_a_component_that_succeeded_before_its_cancel_is_not_what_the_composition_comes_to():
    stage = Stage(sequence("s", "a", "b"), single("a"), single("b")).begin("s")
    stage.machine.cancel("top")
    assert stage.finish({"half": "done"}).end == (Status.INTERNAL_ERROR, {"error": "cancelled"})
    stage = Stage(conductor("c"), single("a")).begin("c")
    stage.machine.cancel("top")
    assert stage.finish({"action": "a"}).end == (Status.INTERNAL_ERROR, {"error": "cancelled"})


def test_a_composition_that_was_through_when_it_was_cancelled_has_its_result():
    stage = Stage(sequence("s", "a"), single("a")).begin("s")
    stage.machine.cancel("top")
    assert stage.finish({"all": "done"}).end == (OK, {"all": "done"})
    stage = Stage(conductor("c")).begin("c")
    stage.machine.cancel("top")
    assert stage.finish({"params": {"all": "done"}}).end == (OK, {"all": "done"})


def test_what_is_aborted_closes_the_innermost_first():
    stage = Stage(sequence("s", "t"), sequence("t", "a"), single("a")).begin("s")
    inner = stage.waiting.cause
    assert [close.frame.id for close in stage.machine.abort("broken")] == [inner, "top"]


# --- whatever components do -----------------------------------------------------------------------------------

NAMES = ["a", "b", "s1", "s2", "s3", "c1", "c2", "gone"]
CONDUCTORS = {"c1", "c2"}
_names = st.sampled_from(NAMES)
_sequences = st.lists(_names, min_size=1, max_size=4)
_answers = st.one_of(
    st.fixed_dictionaries({}, optional={
        "action": st.one_of(_names, st.sampled_from(["/you/x", "", 7])),
        "params": st.one_of(st.integers(), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)),
        "state": st.one_of(st.none(), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)),
    }),
    st.just([1]),
    st.just({"error": "no"}),
)  # fmt: skip


@given(
    top=st.sampled_from(["s1", "s2", "c1"]),
    bodies=st.fixed_dictionaries({"s1": _sequences, "s2": _sequences, "s3": _sequences}),
    answers=st.lists(_answers, min_size=1, max_size=8),
    most=st.integers(1, 4),
    cancel_at=st.one_of(st.none(), st.integers(0, 10)),
)
def test_limits_hold_and_everything_that_opens_closes_once(top, bodies, answers, most, cancel_at):
    actions = [sequence(name, *parts) for name, parts in bodies.items()]
    stage = Stage(*actions, single("a", p=1), single("b"), conductor("c1", q=1), conductor("c2"), most=most).begin(top)
    for turn, answer in enumerate(itertools.cycle(answers)):
        if stage.waiting is None:
            break
        if turn == cancel_at:
            stage.machine.cancel("top")
        assert turn < 100_000
        stage.finish(answer, APPLICATION_ERROR if "error" in answer else OK)
    assert [close.frame.id for close in stage.closed].count("top") == 1
    assert stage.closed[-1].frame.id == "top"
    assert stage.machine.has_ended
    ids = [close.frame.id for close in stage.closed]
    assert len(ids) == len(set(ids)), "each once"
    frames = {close.frame.id: close.frame for close in stage.closed}
    for frame in frames.values():
        inside = [child for child in frame.components if child in frames]
        assert all(frames[child].cause == frame.id for child in inside)
    if top == "c1":
        turns = sum(name in CONDUCTORS for name, _ in stage.ran)
        assert turns <= 2 * most + 1
        conducted = [frame for frame in frames.values() if frame.resolved.action.name in CONDUCTORS]
        nested = sum(frame.id != "top" and isinstance(frames[frame.cause], ConductorFrame) for frame in conducted)
        called = sum(len(frame.components) for frame in conducted) - turns - nested
        assert called <= most, "single actions and sequences that conductors called"
