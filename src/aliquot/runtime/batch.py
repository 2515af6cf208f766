"""One run of a function for several calls at once. It gets a list of their arguments and returns a list of results.

The first part of the request describes each item: its form, the bytes of its payload, and what its caller takes. The
second part has the payloads, one behind another. If the function returned, the reply's JSON lists the status, result
and bytes of the pickle of each item, and the pickles follow. If it raised, the JSON is an object with the error.
"""

from __future__ import annotations

from typing import Any, Callable  # noqa: UP035 - Python 3.9 on

from . import answers, objects, program, runs
from .answers import RunAnswer
from .frames import APPLICATION_ERROR, DEVELOPER_ERROR, SUCCESS
from .summary import summarize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .control_channel import ControlChannel

JSON, PICKLED, HANDED, OBJECTS = "json", "pickled", "handed", "objects"  # forms of an item's payload

WRONG_RESULT = (
    "The function must return a list with one result for each of its {} items, in their order; it returned {}."
)
ONE_ARGUMENT = "{}() takes one item of its batch as its argument {!r}; it was given {}"


class BatchFunction:
    """A function that takes the items of a batch."""

    def __init__(
        self, main: Callable[..., Any], max_bytes: int, *, sdk: bool, channel: ControlChannel | None = None
    ) -> None:
        """`max_bytes` limits the result of each item."""
        self._main = main
        self._max_bytes = max_bytes
        self._sdk = sdk
        self._channel = channel
        self._buffers: Iterator[int] = iter(())  # numbers of shared buffers that are not taken yet

    def run(self, items: list[dict[str, Any]], payloads: bytes | memoryview, buffers: list[int]) -> RunAnswer:
        """Run the function once for all items. An item whose arguments cannot be read fails alone.

        `buffers` has the numbers of the shared buffers of all items, one item's behind another's.
        """
        own: list[RunAnswer | None] = []
        values: list[Any] = []
        view, at = memoryview(payloads), 0
        self._buffers = iter(buffers)
        for item in items:
            try:
                values.append(self._read(item, view[at : at + item["size"]]))
                own.append(None)
            except MemoryError:
                return answers.developer_error(answers.OUT_OF_MEMORY)
            except Exception as error:  # noqa: BLE001 - for example a class that is not here
                own.append(self._failed(item, error))
            at += item["size"]
        try:
            results = self._main(values) if values else []
        except (SystemExit, MemoryError) as error:
            return answers.from_exit(error)
        except BaseException as error:  # noqa: BLE001 - the function's own, whatever it is
            return _raised(error)
        return self._reply(items, own, results, len(values))

    def _reply(self, items: list[dict[str, Any]], own: list[RunAnswer | None], results: Any, count: int) -> RunAnswer:  # noqa: ANN401 - the function's
        listed = _listed(results, count)
        if listed is None:
            shown = f"{len(results)}" if isinstance(results, (list, tuple)) else f"a {type(results).__name__}"
            wrong = answers.error_json(WRONG_RESULT.format(count, shown))
            return _joined([RunAnswer(DEVELOPER_ERROR, wrong)] * len(items))
        following = iter(listed)
        try:
            return _joined(
                [
                    self._answer(item, next(following)) if failed is None else failed
                    for item, failed in zip(items, own)  # noqa: B905 - Python 3.9
                ]
            )
        except MemoryError:
            return answers.developer_error(answers.OUT_OF_MEMORY)

    # --- items ------------------------------------------------------------------------------------------

    def _read(self, item: dict[str, Any], payload: memoryview) -> Any:  # noqa: ANN401 - the caller's
        """Return the argument of one item."""
        if item["form"] == PICKLED:
            args, kwargs = runs.load_payload(payload, 0, None)
            return self._argument(args, kwargs)
        if item["form"] == OBJECTS:
            numbers = [next(self._buffers) for _ in range(item["objects"])]
            return self._argument((), objects.load_arguments(payload, [], numbers, self._channel))
        if item["form"] == HANDED:
            value = answers.merge(item["defaults"], runs.load_payload(payload, 0, None))
        else:
            value = answers.decode(str(payload, "utf-8"))
        return self._argument((), value) if self._sdk else value

    def _argument(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the caller's
        code = getattr(getattr(self._main, "__wrapped__", self._main), "__code__", None)
        parameter = code.co_varnames[0] if code is not None and code.co_argcount else ""
        if len(args) == 1 and not kwargs:
            return args[0]
        if not args and list(kwargs) == [parameter]:
            return kwargs[parameter]
        given = ", ".join([*(["positional arguments"] if args else []), *map(repr, kwargs)]) or "none"
        raise TypeError(ONE_ARGUMENT.format(getattr(code, "co_name", "it"), parameter, given))

    def _answer(self, item: dict[str, Any], result: Any) -> RunAnswer:  # noqa: ANN401 - the function's
        """Answer one item. An exception in its place fails that item alone."""
        if isinstance(result, BaseException):
            return self._failed(item, result)
        if item["form"] == PICKLED:
            try:
                return runs.pickle_result(result, self._max_bytes, None)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - a value that cannot be pickled
                return self._failed(item, error)
        if self._sdk:
            result = result if isinstance(result, dict) else {"value": result}
            answer = runs.answer_result(result, self._max_bytes, None, task=item["task"])
        else:
            answer = answers.from_result(result, self._max_bytes)
        if answer.status == DEVELOPER_ERROR and item["hand_on"]:  # the next function of the sequence takes a pickle
            return self._answer({**item, "form": PICKLED}, result)._replace(result=summarize(result))
        return answer

    def _failed(self, item: dict[str, Any], error: BaseException) -> RunAnswer:
        trace = program.print_exception(error)
        if item["form"] == PICKLED:
            return answers.from_exception(error, trace)
        text = answers.error_text(error)
        if item["task"]:
            found = {"error": {"name": type(error).__name__, "message": text}}
            return RunAnswer(APPLICATION_ERROR, answers.to_json(found))
        return RunAnswer(APPLICATION_ERROR, answers.error_json(text))


def _listed(results: Any, count: int) -> list[Any] | None:  # noqa: ANN401 - the function's
    """Return the results as a list, or None if there is not one for each item. An array has its rows."""
    if isinstance(results, (str, bytes, dict, set, frozenset)) or not hasattr(results, "__len__"):
        return None
    try:
        listed = list(results)
    except Exception:  # noqa: BLE001 - an object of the function's own
        return None
    return listed if len(listed) == count else None


def _raised(error: BaseException) -> RunAnswer:
    """Answer with an exception of the whole run. The server gives it to each caller, or runs the items again alone."""
    trace = program.print_exception(error)
    kind = type(error).__name__
    # Frameworks have an exception of their own for a device without memory, which the process survives.
    described = {"error": answers.error_text(error), "type": kind, "outOfMemory": kind == "OutOfMemoryError"}
    return RunAnswer(APPLICATION_ERROR, answers.to_json(described), answers.from_exception(error, trace).pickled)


def _joined(parts: list[RunAnswer]) -> RunAnswer:
    listed = b",".join(b"[%d,%s,%d]" % (part.status, part.result, len(part.pickled)) for part in parts)
    return RunAnswer(SUCCESS, b"[" + listed + b"]", b"".join(part.pickled for part in parts))
