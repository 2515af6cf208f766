"""The functions of a group inside their sandbox: each runs with its own process state, and values pass uncopied.

A chain runs each function on the result of the one before, and a function may call another of the group. In both cases
the next function gets the same object. Every function has its own activation: the sandbox reports to the server where
one begins and ends (`control_channel`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable, Protocol  # noqa: UP035 - Python 3.9 on

from . import answers, objects, program, runs, sdk_support
from .answers import RunAnswer
from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS
from .member import GroupMember, ProcessState
from .summary import summarize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .control_channel import ControlChannel
    from .output import OutputPipes
    from .run_variables import RunVariables


_KEY = "__OW_API_KEY"
_DEADLINE = "__OW_DEADLINE"  # in ms; that of a later step is sent as if it began with the run
_SHORT_RUN_S = 0.015  # the server reads no output of a shorter run before its end


class ResultConverter(Protocol):
    """Converts the result of a called function for its caller. The SDK implements it."""

    def convert(self, value: Any) -> Callable[[], Any]:  # noqa: ANN401 - what a function returned or raised
        """Convert a value in the state of the called function. The caller calls the result in its own state."""
        ...

    def add_note(self, error: Any, activation_id: str) -> Exception:  # noqa: ANN401 - likewise
        """Return the exception that the caller sees."""
        ...

    def load_failure(self, text: str, activation_id: str) -> Exception:
        """Return the exception for a function that could not be loaded."""
        ...


class _ArgumentsError(Exception):
    """The arguments of a run cannot be loaded."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FunctionGroup:
    """Loads the functions of a group, switches the process between them, and runs them."""

    def __init__(
        self, description: dict[str, Any], channel: ControlChannel | None, output: OutputPipes, variables: RunVariables
    ) -> None:
        self._max_bytes: int = description["result_bytes"]
        self._channel = channel
        self._output = output
        self._variables = variables
        ProcessState.shared = frozenset(sys.modules) - {"__main__", program.MODULE}
        state = ProcessState()
        key = state.environment.pop(os.fsencode(_KEY), None)  # belongs to the function for which the sandbox starts
        for number, member in enumerate(description["members"]):
            member["directory"] = f"action-{number}"
            if key is not None and member["name"] == description["first"]:
                member["env"][_KEY] = os.fsdecode(key)
        self._members = {one["name"]: GroupMember(one, state) for one in description["members"]}
        self._current: GroupMember | None = None
        self._begun_s = 0.0  # when the current run began
        self._thread = threading.get_ident()
        sdk_support.set_group(self)

    def load(self, name: str) -> None:
        """Load one function. Raises `program.InitError`, or an exception that ends a process."""
        self._switch_to(name, {}).load()

    def _switch_to(self, name: str, env: dict[str, str]) -> GroupMember:
        member = self._members[name]
        if member is not self._current:
            if self._current is not None:
                self._current.save()
            member.restore(env)
            self._current = member
        self._variables.set(env)
        return member

    # --- chains -----------------------------------------------------------------------------------------

    def run(self, request: dict[str, Any], payload: bytes | memoryview, buffer: int) -> RunAnswer:
        """Run the steps one after the other. Return the answer of the last one, or of the one that failed."""
        self._begun_s = time.monotonic()
        first, *others = request["steps"]
        earlier = _EarlierResults(request["steps"])
        try:
            member = self._load_member(first["function"], request["env"])
            alone = not (others or request["handed"] or request["hand_on"])
            if alone and request["objects"] is None:
                return self._run_alone(member, request, payload, buffer)
            value = self._first_value(request, payload, buffer)
            for number, following in enumerate(others):
                answer, value = self._step(member, value)
                if answer is not None:
                    return answer
                earlier.keep(number, _plain_result(member, value))
                member = self._load_member(following["function"], self._end_step(value, following))
                if following["arguments"] is not None:
                    value = earlier.arguments(following["arguments"])
                value = answers.merge(following["defaults"], value)
        except program.InitError as error:
            return answers.developer_error(str(error))
        except MemoryError:
            return answers.developer_error(answers.OUT_OF_MEMORY)
        except _ArgumentsError as error:
            return runs.print_and_answer(error.cause)
        answer, value = self._step(member, value)
        if answer is not None:
            return answer
        if member.sdk and not request["hand_on"]:
            return runs.answer_result(value, self._max_bytes, self._channel)
        return runs.hand_on(value, self._max_bytes, self._channel if request["hand_on"] else None)

    def _first_value(self, request: dict[str, Any], payload: bytes | memoryview, buffer: int) -> Any:  # noqa: ANN401
        """Return the value that the first step gets. Raises `_ArgumentsError`."""
        if request["objects"] is not None:
            try:
                return objects.load_arguments(payload, request["steps"], request["objects"], self._channel)
            except MemoryError:
                raise
            except Exception as error:  # for example a class that is not here
                raise _ArgumentsError(error) from error
        if not request["handed"]:
            return answers.decode(str(payload, "utf-8"))
        return answers.merge(request["steps"][0]["defaults"], runs.load_payload(payload, buffer, self._channel))

    def _load_member(self, name: str, env: dict[str, str]) -> GroupMember:
        member = self._switch_to(name, env)
        member.load()
        return member

    def _run_alone(
        self, member: GroupMember, request: dict[str, Any], payload: bytes | memoryview, buffer: int
    ) -> RunAnswer:
        main = member.main
        assert main is not None  # noqa: S101 - it is loaded
        if not request["pickled"]:
            return runs.run_json(main, payload, self._max_bytes, sdk=member.sdk, channel=self._channel)
        share = request["share"]
        return runs.run_pickled(main, payload, buffer, self._max_bytes, channel=self._channel, share=share)

    def _step(self, member: GroupMember, value: Any) -> tuple[RunAnswer | None, Any]:  # noqa: ANN401 - the functions'
        """Run one step. Return its answer if the chain ends here, otherwise the result for the next step."""
        main = member.main
        assert main is not None  # noqa: S101 - it is loaded
        try:
            result = main(**value) if member.sdk else main(value)
        except (SystemExit, MemoryError) as error:
            return answers.from_exit(error), None
        except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
            return runs.print_and_answer(error), None
        if member.sdk and not isinstance(result, dict):
            result = {"value": result}
        status, counted = answers.split_status(result)
        return (None, counted) if status == SUCCESS else (answers.from_result(result, self._max_bytes), None)

    def _end_step(self, value: Any, following: dict[str, Any]) -> dict[str, str]:  # noqa: ANN401 - the function's
        """Tell the server that a step of a chain has ended, and return the environment of the next one.

        The server is not waited for, unless it has to read the output of this step before there is more of it. It may
        read output at any time once the run has taken a while.
        """
        assert self._channel is not None  # noqa: S101 - a sandbox of a group has a control channel
        printed = self._output.flush()
        took_s = time.monotonic() - self._begun_s
        if printed or took_s > _SHORT_RUN_S:
            return self._report_end(SUCCESS, value, printed=printed)
        self._channel.tell({"end": SUCCESS, "printed": False, "answer": False}, summarize(value))
        env: dict[str, str] = following["env"]
        return {**env, _DEADLINE: str(int(env[_DEADLINE]) + round(took_s * 1000))}

    def _report_end(
        self,
        status: int,
        value: Any,  # noqa: ANN401 - the function's
        *,
        printed: bool,
    ) -> dict[str, str]:
        """Tell the server that an activation has ended. Return the environment of the next step, if there is one."""
        assert self._channel is not None  # noqa: S101 - a sandbox of a group has a control channel
        reply, _ = self._channel.ask({"end": status, "printed": printed}, summarize(value))
        env: dict[str, str] = reply.get("env", {})
        return env

    # --- calls from function to function ----------------------------------------------------------------

    def can_call(self, name: str) -> bool:
        """Return whether a function can be called here. Another thread cannot: its output would be mixed up."""
        return name in self._members and self._channel is not None and threading.get_ident() == self._thread

    def call(self, name: str, arguments: Callable[[], Any], converter: ResultConverter) -> Any:  # noqa: ANN401
        """Call a function of the group and return its result, or raise what it raises.

        `arguments` is called in the state of the called function.
        """
        caller = self._current
        assert caller is not None and self._channel is not None  # noqa: S101, PT018 - `can_call` was true
        begun, _ = self._channel.ask({"begin": name, "printed": self._output.flush()})
        member = self._switch_to(name, begun["env"])
        raised: Exception | None = None
        try:
            member.load()
            args, kwargs = arguments()
            result = member.main(*args, **kwargs)  # type: ignore[misc] # it is loaded
            convert = converter.convert(result)
        except program.InitError as error:
            self._return_to(caller, DEVELOPER_ERROR, {"error": str(error)})
            raise converter.load_failure(str(error), begun["id"]) from None
        except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
            program.print_exception(error)
            raised = error
            result = {"error": f"{type(error).__name__}: {answers.error_text(error)}"}
            convert = _convert_exception(error, converter)
        except BaseException as leaving:
            # It ends this process, unless the caller catches it.
            status = DEVELOPER_ERROR if isinstance(leaving, SystemExit) else APPLICATION_ERROR
            self._return_to(caller, status, {"error": f"{type(leaving).__name__}: {answers.error_text(leaving)}"})
            raise
        self._return_to(caller, SUCCESS if raised is None else APPLICATION_ERROR, result)
        if raised is None:
            return convert()
        raise converter.add_note(convert(), begun["id"])

    def _return_to(self, caller: GroupMember, status: int, result: Any) -> None:  # noqa: ANN401 - the function's
        self._report_end(status, result, printed=self._output.flush())
        self._switch_to(caller.name, {})


def _plain_result(member: GroupMember, value: Any) -> Any:  # noqa: ANN401 - the function's
    """Return the result of a step as its caller sees it. A function of the SDK returns other things than objects."""
    return value["value"] if member.sdk and isinstance(value, dict) and list(value) == ["value"] else value


class _EarlierResults:
    """The results of a chain's steps that later steps take a part of. Others are not kept."""

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self._wanted = {
            argument["step"] for step in steps for argument in (step["arguments"] or {}).values() if "step" in argument
        }
        self._results: dict[int, Any] = {}

    def keep(self, number: int, value: Any) -> None:  # noqa: ANN401 - the function's
        if number in self._wanted:
            self._results[number] = value

    def arguments(self, described: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a step: given values, and parts of earlier results, which are not copied.

        Raises `_ArgumentsError`.
        """
        made = {}
        for name, argument in described.items():
            if "step" not in argument:
                made[name] = argument.get("value")
                continue
            value = self._results[argument["step"]]
            try:
                for key in argument.get("path", ()):
                    value = value[key]
            except Exception as error:  # the functions' values may raise anything
                raise _ArgumentsError(error) from error
            made[name] = value
        return made


def _convert_exception(error: Exception, converter: ResultConverter) -> Callable[[], Any]:
    """Convert an exception for the caller, or a `RuntimeError` with its text if it cannot be converted."""
    stand_in = RuntimeError(f"{type(error).__name__}: {answers.error_text(error)}")
    try:
        convert = converter.convert(error)
    except Exception:  # noqa: BLE001 - a reducer of the function's own may raise anything
        return lambda: stand_in

    def converted() -> Any:  # noqa: ANN401 - the function's
        try:
            return convert()
        except Exception:  # noqa: BLE001 - many exceptions can be pickled, but not loaded
            return stand_in

    return converted
