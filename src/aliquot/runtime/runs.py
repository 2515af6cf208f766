"""One run of one function: decodes the payload, calls the function, and turns its result into an answer."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any, Callable  # noqa: UP035 - Python 3.9 on

from . import answers, objects, parts, program, values
from .answers import RunAnswer
from .control_channel import ChannelError
from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS
from .summary import summarize

NOT_PICKLED = "The action's result is neither JSON nor can it be pickled: {}."

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .control_channel import ControlChannel


def run_json(
    main: Callable[..., Any],
    payload: bytes | memoryview,
    max_bytes: int,
    *,
    sdk: bool,
    channel: ControlChannel | None = None,
) -> RunAnswer:
    """Call a function with a JSON object. An SDK function gets it as keyword arguments."""
    try:
        arguments = answers.decode(str(payload, "utf-8"))
        result = parts.collect(main(**arguments), channel, pickled=False) if sdk else main(arguments)
    except (SystemExit, MemoryError) as error:
        return answers.from_exit(error)
    except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
        return print_and_answer(error)
    if not sdk:
        return answers.from_result(result, max_bytes)
    return answer_result(result if isinstance(result, dict) else {"value": result}, max_bytes, channel)


def answer_result(
    result: dict[str, Any], max_bytes: int, channel: ControlChannel | None, *, task: bool | None = None
) -> RunAnswer:
    """Answer with the result of an SDK function as JSON. A task of a workflow may also return other objects."""
    answer = answers.from_result(result, max_bytes)
    if answer.status == SUCCESS:
        fits = len(answer.result) <= objects.MAX_JSON_BYTES
    else:
        fits = answer.status != DEVELOPER_ERROR or answer.result == answers.error_json(answers.OUT_OF_MEMORY)
    if fits or not (is_task() if task is None else task):
        return answer
    try:
        return objects.answer_with_objects(result, max_bytes, channel)
    except MemoryError as error:
        return answers.from_exit(error)
    except Exception as error:  # noqa: BLE001 - a reducer of the function's own may raise anything
        return answer if answer.status == SUCCESS else answers.developer_error(NOT_PICKLED.format(error))


def run_value(
    main: Callable[..., Any],
    value: Any,  # noqa: ANN401 - whatever the function before returned
    max_bytes: int,
    channel: ControlChannel | None,
    *,
    hands_on: bool,
) -> RunAnswer:
    """Call an SDK function with a value. `hands_on` says that the next function of a sequence takes the result."""
    try:
        result = parts.collect(main(**value), None, pickled=False)
    except (SystemExit, MemoryError) as error:
        return answers.from_exit(error)
    except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
        return print_and_answer(error)
    result = result if isinstance(result, dict) else {"value": result}
    return hand_on(result, max_bytes, channel) if hands_on else answer_result(result, max_bytes, channel)


def hand_on(result: Any, max_bytes: int, channel: ControlChannel | None) -> RunAnswer:  # noqa: ANN401 - the function's
    """Answer with the result as JSON, or pickled with a summary for the record if JSON cannot hold it."""
    answer = answers.from_result(result, max_bytes)
    out_of_memory = answers.error_json(answers.OUT_OF_MEMORY)
    if channel is None or answer.status != DEVELOPER_ERROR or answer.result == out_of_memory:
        return answer
    try:
        pickled = pickle_result(result, max_bytes, channel)
    except Exception:  # noqa: BLE001 - neither JSON nor a pickle can hold it
        return answer
    return pickled._replace(result=summarize(result)) if pickled.status == SUCCESS else pickled


def print_and_answer(error: BaseException) -> RunAnswer:
    """Print an exception with its traceback, and answer with its text. The caller of a task also gets its class."""
    program.print_exception(error)
    text = answers.error_text(error)
    if is_task():
        return RunAnswer(APPLICATION_ERROR, answers.to_json({"error": {"name": type(error).__name__, "message": text}}))
    return RunAnswer(APPLICATION_ERROR, answers.error_json(text))


def is_task() -> bool:
    """Return whether this run is a task of a workflow. The variable stays from an earlier run, so it names its own."""
    try:
        task = json.loads(os.environ.get("ALIQUOT_TASK", "{}"))
    except ValueError:  # the function has changed it
        return False
    return isinstance(task, dict) and task.get("activation", "") == os.environ.get("__OW_ACTIVATION_ID")


def run_pickled(
    main: Callable[..., Any],
    payload: bytes | memoryview,
    buffer: int,
    max_bytes: int,
    *,
    channel: ControlChannel | None,
    share: bool,
) -> RunAnswer:
    """Call a function with pickled arguments. `share` says that the caller takes a shared buffer."""
    try:
        args, kwargs = load_payload(payload, buffer, channel)
        result = parts.collect(main(*args, **kwargs), channel, pickled=True)
        return pickle_result(result, max_bytes, channel if share else None)
    except (SystemExit, MemoryError) as error:
        return answers.from_exit(error)
    except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
        trace = program.print_exception(error)
        return answers.from_exception(error, trace)


def load_payload(payload: bytes | memoryview, buffer: int, channel: ControlChannel | None) -> Any:  # noqa: ANN401
    """Unpickle a payload whose large buffers are in the payload itself or in a shared buffer."""
    if not values.is_envelope(payload):
        return pickle.loads(payload)  # noqa: S301 - from the function's own caller, in the function's sandbox
    body, sizes, behind = values.open_envelope(payload)
    memory = channel.take(buffer) if buffer and channel is not None else values.copy_buffers(sizes, behind)
    return values.load(body, sizes, memory)


def pickle_result(result: Any, max_bytes: int, channel: ControlChannel | None) -> RunAnswer:  # noqa: ANN401
    """Pickle a result. With a channel its large buffers go into a shared buffer, if there is space for one."""
    if channel is not None:
        large = values.LargeBuffers()
        body = pickle.dumps(values.wrap_large_bytes(result), protocol=5, buffer_callback=large)
        if large.views:
            try:
                buffer = channel.put(large.views)
            except (ChannelError, OSError):
                buffer = 0  # no space: the buffers go into the reply
            if buffer:
                sizes = [len(view) for view in large.views]
                size = len(body) + sum(sizes)
                sealed = values.seal_envelope(body, sizes)
                return RunAnswer(SUCCESS, b'{"pickled":true,"size":%d}' % size, sealed, buffer)
    body = pickle.dumps(result, protocol=5)
    if len(body) > max_bytes:
        return answers.too_long(len(body), max_bytes)
    return RunAnswer(SUCCESS, b'{"pickled":true,"size":%d}' % len(body), body)
