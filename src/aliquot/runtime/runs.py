"""One run of one function: from the bytes that came to what is called, and from its result to the answer."""

from __future__ import annotations

import pickle
from typing import Any, Callable  # noqa: UP035 - Python 3.9 on

from . import answers, program, values
from .answers import Answer
from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS
from .shown import shown
from .side import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .side import Side


def on_json(main: Callable[..., Any], payload: bytes | memoryview, most_bytes: int, *, sdk: bool) -> Answer:
    try:
        arguments = answers.decode(str(payload, "utf-8"))
        result = main(**arguments) if sdk else main(arguments)
    except (SystemExit, MemoryError) as error:
        return answers.ended(error)
    except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
        return raised(error)
    if sdk and not isinstance(result, dict):
        result = {"value": result}
    return answers.judged(result, most_bytes)


def on_value(main: Callable[..., Any], value: Any, most_bytes: int, side: Side | None) -> Answer:  # noqa: ANN401 - handed
    """Of a function of the SDK in a sequence. `side`: another of them gets the result, which then need not be JSON."""
    try:
        result = main(**value)
    except (SystemExit, MemoryError) as error:
        return answers.ended(error)
    except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
        return raised(error)
    return handed_on(result if isinstance(result, dict) else {"value": result}, most_bytes, side)


def handed_on(result: Any, most_bytes: int, side: Side | None) -> Answer:  # noqa: ANN401 - the function's
    """As JSON, or else pickled, with what a record shows of it."""
    answer = answers.judged(result, most_bytes)
    if side is None or answer.status != DEVELOPER_ERROR or answer.result == answers.error(answers.OUT_OF_MEMORY):
        return answer
    try:
        handed = pickled(result, most_bytes, side)
    except Exception:  # noqa: BLE001 - neither JSON nor a pickle can hold it
        return answer
    return handed._replace(result=shown(result)) if handed.status == SUCCESS else handed


def raised(error: BaseException) -> Answer:
    program.print_exception(error)
    return Answer(APPLICATION_ERROR, answers.error(answers.text(error)))


def on_pickle(
    main: Callable[..., Any],
    payload: bytes | memoryview,
    parcel: int,
    most_bytes: int,
    *,
    side: Side | None,
    share: bool,
) -> Answer:
    """`share`: the caller takes a parcel."""
    try:
        args, kwargs = loaded(payload, parcel, side)
        answer = pickled(main(*args, **kwargs), most_bytes, side if share else None)
    except (SystemExit, MemoryError) as error:
        return answers.ended(error)
    except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
        trace = program.print_exception(error)
        return answers.raised(error, trace)
    return answer


def loaded(payload: bytes | memoryview, parcel: int, side: Side | None) -> Any:  # noqa: ANN401 - what was sent
    if not values.is_envelope(payload):
        return pickle.loads(payload)  # noqa: S301 - from the function's own caller, in the function's sandbox
    body, sizes, behind = values.opened(payload)
    memory = side.take(parcel) if parcel and side is not None else values.copied(sizes, behind)
    return values.load(body, sizes, memory)


def pickled(result: Any, most_bytes: int, side: Side | None) -> Answer:  # noqa: ANN401 - the function's
    if side is not None:
        apart = values.Buffers()
        body = pickle.dumps(values.with_bytes_apart(result), protocol=5, buffer_callback=apart)
        if apart.views:
            try:
                parcel = side.put(apart.views)
            except (Refused, OSError):
                parcel = 0  # no room: as a plain body, then
            if parcel:
                sizes = [len(view) for view in apart.views]
                whole = len(body) + sum(sizes)
                sealed = values.seal_up(body, sizes)
                return Answer(SUCCESS, b'{"pickled":true,"size":%d}' % whole, sealed, parcel)
    body = pickle.dumps(result, protocol=5)
    if len(body) > most_bytes:
        return answers.too_long(len(body), most_bytes)
    return Answer(SUCCESS, b'{"pickled":true,"size":%d}' % len(body), body)
