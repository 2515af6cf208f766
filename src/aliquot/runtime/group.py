"""The functions of a group inside their sandbox: each runs in its own surroundings, and values pass as they are.

A chain runs one function on what the other returned; a function may call another of the group. Either way it is the
very same object that the next one gets, and every function has an activation of its own: the server hears where one
begins and where it ends (`side`).
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Callable, Protocol  # noqa: UP035 - Python 3.9 on

from . import answers, inside, program, runs
from .answers import Answer
from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS
from .member import Member, Surroundings
from .shown import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .output import OutputPipes
    from .side import Side


_KEY = "__OW_API_KEY"


class Passage(Protocol):
    """How values come back from function to function: the SDK's matter."""

    def back(self, value: Any) -> Callable[[], Any]:  # noqa: ANN401 - what a function returned or raised
        """Called where it was made; what it gives is called where the caller is."""
        ...

    def noted(self, error: Any, activation_id: str) -> Exception:  # noqa: ANN401 - likewise
        """What the caller sees raised."""
        ...

    def failure(self, text: str, activation_id: str) -> Exception:
        """Of a function that could not be made ready."""
        ...


class Group:
    def __init__(self, description: dict[str, Any], side: Side | None, output: OutputPipes) -> None:
        self._result_bytes: int = description["result_bytes"]
        self._side = side
        self._output = output
        Surroundings.shared = frozenset(sys.modules) - {"__main__", program.MODULE}
        around = Surroundings()
        key = around.environment.pop(_KEY, None)  # of the one for which the sandbox starts: others may have none
        for number, member in enumerate(description["members"]):
            member["directory"] = f"action-{number}"
            if key is not None and member["name"] == description["first"]:
                member["env"][_KEY] = key
        self._members = {one["name"]: Member(one, around) for one in description["members"]}
        self._current: Member | None = None
        self._thread = threading.get_ident()
        inside.tell_group(self)

    def load(self, name: str) -> None:
        """Raises `program.InitError`, or whatever ends a process."""
        self._enter(name, {}).load()

    def _enter(self, name: str, env: dict[str, str]) -> Member:
        member = self._members[name]
        if member is not self._current:
            if self._current is not None:
                self._current.put_away()
            member.put_in_place()
            self._current = member
        os.environ.update(env)
        return member

    # --- chains -----------------------------------------------------------------------------------------

    def run(self, request: dict[str, Any], payload: bytes | memoryview, parcel: int) -> Answer:
        """The steps, one after the other; the answer is that of the last, or of the one that failed."""
        *before, last = request["steps"]
        try:
            member = self._ready((before or [last])[0]["function"], request["env"])
            if not (before or request["handed"] or request["hand_on"]):
                return self._run_alone(member, request, payload, parcel)
            value = self._value(request, payload, parcel)
            for following in [*before[1:], last]:
                answer, value = self._step(member, value)
                if answer is not None:
                    return answer
                env = self._ended(SUCCESS, value)
                value = answers.merged(following["defaults"], value)
                member = self._ready(following["function"], env)
        except program.InitError as error:
            return answers.failed(str(error))
        except MemoryError:
            return answers.failed(answers.OUT_OF_MEMORY)
        answer, value = self._step(member, value)
        side = self._side if request["hand_on"] else None
        return runs.handed_on(value, self._result_bytes, side) if answer is None else answer

    def _value(self, request: dict[str, Any], payload: bytes | memoryview, parcel: int) -> Any:  # noqa: ANN401 - given
        """What the first step gets."""
        if not request["handed"]:
            return answers.decode(str(payload, "utf-8"))
        return answers.merged(request["steps"][0]["defaults"], runs.loaded(payload, parcel, self._side))

    def _ready(self, name: str, env: dict[str, str]) -> Member:
        member = self._enter(name, env)
        member.load()
        return member

    def _run_alone(self, member: Member, request: dict[str, Any], payload: bytes | memoryview, parcel: int) -> Answer:
        main = member.main
        assert main is not None  # noqa: S101 - it is loaded
        if not request["pickled"]:
            return runs.on_json(main, payload, self._result_bytes, sdk=member.sdk)
        share = request["share"]
        return runs.on_pickle(main, payload, parcel, self._result_bytes, side=self._side, share=share)

    def _step(self, member: Member, value: Any) -> tuple[Answer | None, Any]:  # noqa: ANN401 - the functions'
        """The answer if it is the last that can be said, otherwise what it returned, ready for the next."""
        main = member.main
        assert main is not None  # noqa: S101 - it is loaded
        try:
            result = main(**value) if member.sdk else main(value)
        except (SystemExit, MemoryError) as error:
            return answers.ended(error), None
        except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
            return runs.raised(error), None
        if member.sdk and not isinstance(result, dict):
            result = {"value": result}
        status, counted = answers.settled(result)
        return (None, counted) if status == SUCCESS else (answers.judged(result, self._result_bytes), None)

    def _ended(self, status: int, value: Any) -> dict[str, str]:  # noqa: ANN401 - the function's
        """The server hears what has ended; the environment of what comes next, if anything does."""
        assert self._side is not None  # noqa: S101 - who has functions to run has a side channel
        answer, _ = self._side.ask({"end": status, "printed": self._output.flush()}, shown(value))
        env: dict[str, str] = answer.get("env", {})
        return env

    # --- calls from function to function ----------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether it may be called from here: not from another thread, whose output could not be told apart."""
        return name in self._members and self._side is not None and threading.get_ident() == self._thread

    def call(self, name: str, arguments: Callable[[], Any], passage: Passage) -> Any:  # noqa: ANN401 - the function's
        """What it returns; or it raises what that raises. `arguments` is called where it runs."""
        caller = self._current
        assert caller is not None and self._side is not None  # noqa: S101, PT018 - it runs, and `has` was asked
        begun, _ = self._side.ask({"begin": name, "printed": self._output.flush()})
        member = self._enter(name, begun["env"])
        raised: Exception | None = None
        try:
            member.load()
            args, kwargs = arguments()
            result = member.main(*args, **kwargs)  # type: ignore[misc] # it is loaded
            bring = passage.back(result)
        except program.InitError as error:
            self._ended(DEVELOPER_ERROR, {"error": str(error)})
            self._enter(caller.name, {})
            raise passage.failure(str(error), begun["id"]) from None
        except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
            program.print_exception(error)
            raised = error
            result = {"error": f"{type(error).__name__}: {answers.text(error)}"}
            bring = _carried(error, passage)
        except BaseException as leaving:
            # It ends this process, too, unless the caller catches it, and then goes on as itself.
            status = DEVELOPER_ERROR if isinstance(leaving, SystemExit) else APPLICATION_ERROR
            self._ended(status, {"error": f"{type(leaving).__name__}: {answers.text(leaving)}"})
            self._enter(caller.name, {})
            raise
        self._ended(SUCCESS if raised is None else APPLICATION_ERROR, result)
        self._enter(caller.name, {})
        if raised is None:
            return bring()
        raise passage.noted(bring(), begun["id"])


def _carried(error: Exception, passage: Passage) -> Callable[[], Any]:
    """An exception on its way to the caller; something like it when it does not travel."""
    stand_in = RuntimeError(f"{type(error).__name__}: {answers.text(error)}")
    try:
        bring = passage.back(error)
    except Exception:  # noqa: BLE001 - a reducer of the function's own may raise anything
        return lambda: stand_in

    def brought() -> Any:  # noqa: ANN401 - the function's
        try:
            return bring()
        except Exception:  # noqa: BLE001 - many exceptions pickle and then fail to come back
            return stand_in

    return brought
