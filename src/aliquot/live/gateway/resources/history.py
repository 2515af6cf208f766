"""Endpoints for the past: a search in the calls, decisions, what ran where, counts over time, figures of a function.

The historian answers them, in a process of its own. A namespace sees its own part, and the operator's token sees all.
"""

import time
from typing import Any

from aliquot.live.gateway.http.query import epoch, number
from aliquot.live.gateway.http.refusal import Refusal, malformed_query
from aliquot.live.gateway.http.routing import Endpoint, EndpointAccess, Query, Request, Response
from aliquot.live.history.historian_process import HistorianBusyError, HistorianError, HistorianProcess
from aliquot.live.history.index.searching import FAILED, MAX_FOUND, OPEN, STATUSES, FoundCalls
from aliquot.live.history.index.series import KEPT, MEASURES, MINUTE_S, SECOND_S
from aliquot.live.history.index.telling import (
    MAX_DECISIONS_SHOWN,
    DecisionsAnswer,
    FiguresAnswer,
    SeriesAnswer,
    SlicesAnswer,
)
from aliquot.live.history.messages import (
    DecisionList,
    DeviceSlices,
    FunctionFigures,
    Question,
    Search,
    SeriesOf,
    Viewer,
)

_PATH = "/api/v1/observe"
DEFAULT_LAST_S = 60.0
MAX_LAST_S = 6 * 3600.0
MAX_NAME_CHARACTERS = 200
_NAMESPACE = Query("namespace", str, "for the operator: only this namespace")
_SINCE = Query("since", int, "when the calls arrived at the earliest, in milliseconds since the epoch")
_UPTO = Query("upto", int, "when the calls arrived at the latest, in milliseconds since the epoch")
_LAST = Query("last", float, f"seconds before now, at most {MAX_LAST_S:g}")
_SEARCH = (
    _NAMESPACE,
    Query("name", str, "a part of the function's name"),
    Query("status", str, f"one of {', '.join((*STATUSES, FAILED, OPEN))}"),
    Query("start", str, "cold, swap_in, warm or composition"),
    Query("device", str, "the name of a device"),
    Query("session", str, "the name of a session"),
    Query("cause", str, "the cause of the longest part of the wait, as `aliquot why` names it"),
    Query("duration", float, "seconds from the arrival to the end, at the least"),
    Query("wait", float, "seconds from the arrival to the dispatch, at the least"),
    Query("error", str, "a part of the error's text"),
    _SINCE,
    _UPTO,
    Query("cursor", str, "from the answer before, for the next part"),
    Query("limit", int, f"calls at the most, up to {MAX_FOUND}"),
)


class HistoryEndpoints:
    """Handles questions about the past."""

    def __init__(self, historian: HistorianProcess) -> None:
        self._historian = historian

    def endpoints(self) -> list[Endpoint]:
        observer: dict[str, Any] = {"access": EndpointAccess.OBSERVER, "statuses": (503,)}
        decisions = (
            Query("name", str, "a part of the function's name"),
            Query("kind", str, "the name of a command, such as StopSandbox"),
            Query("device", str, "the name of a device"),
            Query("call", str, "the id of a call"),
            Query("limit", int, f"decisions at the most, up to {MAX_DECISIONS_SHOWN}"),
        )
        series = (
            Query("names", str, f"separated by commas; some of {', '.join(MEASURES)}"),
            Query("step", int, f"seconds of a point: {SECOND_S} or {MINUTE_S}"),
            *(_LAST, _NAMESPACE),
        )
        named = (Query("name", str, "the function"), _LAST, _NAMESPACE)
        return [
            Endpoint("GET", f"{_PATH}/activations", self.search, "Search the newest calls", {200: FoundCalls},
                     query=_SEARCH, **observer),
            Endpoint("GET", f"{_PATH}/decisions", self.decisions, "What the scheduler decided, and why",
                     {200: DecisionsAnswer}, query=decisions, **observer),
            Endpoint("GET", f"{_PATH}/slices", self.slices, "What ran on each device over time", {200: SlicesAnswer},
                     query=(_LAST,), **observer),
            Endpoint("GET", f"{_PATH}/series", self.series, "Counts of calls over time", {200: SeriesAnswer},
                     query=series, **observer),
            Endpoint("GET", f"{_PATH}/figures", self.figures, "The calls of a function in numbers",
                     {200: FiguresAnswer}, query=named, **observer),
        ]  # fmt: skip

    async def search(self, request: Request) -> Response:
        fields = request.fields
        status = _text(fields, "status")
        if status not in {"", *STATUSES, FAILED, OPEN}:
            raise malformed_query("status", f"'{status}' is none of {', '.join((*STATUSES, FAILED, OPEN))}")
        texts = {name: _text(fields, name) for name in ("name", "start", "device", "session", "cause", "error")}
        return await self._ask(
            Search(
                viewer=_viewer(request), namespace=_namespace(request), status=status, **texts,
                min_duration_s=_seconds(fields, "duration", 0.0), min_wait_s=_seconds(fields, "wait", 0.0),
                since_s=(epoch(fields, "since") or 0) / 1000, upto_s=(epoch(fields, "upto") or 0) / 1000,
                cursor=_text(fields, "cursor"), limit=_limit(fields, 100, MAX_FOUND),
            )
        )  # fmt: skip

    async def decisions(self, request: Request) -> Response:
        texts = {name: _text(request.fields, name) for name in ("name", "kind", "device", "call")}
        limit = _limit(request.fields, 200, MAX_DECISIONS_SHOWN)
        return await self._ask(DecisionList(viewer=_viewer(request), limit=limit, **texts))

    async def slices(self, request: Request) -> Response:
        end_s = time.time()
        last_s = _last(request.fields)
        return await self._ask(DeviceSlices(viewer=_viewer(request), begin_s=end_s - last_s, end_s=end_s))

    async def series(self, request: Request) -> Response:
        names = [name for name in _text(request.fields, "names").split(",") if name] or list(MEASURES)
        for name in names:
            if name not in MEASURES:
                raise malformed_query("names", f"'{name}' is none of {', '.join(MEASURES)}")
        step = _limit(request.fields, SECOND_S, MINUTE_S, "step")
        if step not in KEPT:
            raise malformed_query("step", f"'{step}' is neither {SECOND_S} nor {MINUTE_S}")
        end_s = time.time()
        begin_s = end_s - _last(request.fields, 3600.0 if step == SECOND_S else 86400.0)
        question = SeriesOf(
            viewer=_viewer(request), names=names, begin_s=begin_s, end_s=end_s, step_s=step,
            namespace=_namespace(request),
        )  # fmt: skip
        return await self._ask(question)

    async def figures(self, request: Request) -> Response:
        name = _text(request.fields, "name")
        if not name:
            raise malformed_query("name", "it takes the name of a function")
        last_s = _last(request.fields, MAX_LAST_S, 3600.0)
        return await self._ask(
            FunctionFigures(viewer=_viewer(request), name=name, namespace=_namespace(request), last_s=last_s)
        )

    async def _ask(self, question: Question) -> Response:
        try:
            return Response(200, await self._historian.ask(question))
        except HistorianBusyError as error:
            raise Refusal(429, f"{error}.") from error
        except HistorianError as error:
            raise Refusal(503, f"The history cannot be read now: {error}.") from error


def _viewer(request: Request) -> Viewer:
    """Return the one who asks. The operator has no principal."""
    if request.principal is None:
        return Viewer()
    namespace = request.principal.namespace
    return Viewer(namespace.name, namespace.owner, namespace.created / 1000)


def _namespace(request: Request) -> str:
    return _text(request.fields, "namespace") if request.principal is None else ""


def _text(fields: dict[str, str], name: str) -> str:
    text = fields.get(name, "").strip()
    if len(text) > MAX_NAME_CHARACTERS:
        raise malformed_query(name, f"it takes at most {MAX_NAME_CHARACTERS} characters")
    return text


def _limit(fields: dict[str, str], usual: int, highest: int, name: str = "limit") -> int:
    if (text := fields.get(name)) is None:
        return usual
    value = number(text)
    if value is None or not 1 <= value <= highest:
        raise malformed_query(name, f"'{text}' is not a number from 1 to {highest}")
    return value


def _seconds(fields: dict[str, str], name: str, usual: float) -> float:
    if (text := fields.get(name)) is None:
        return usual
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise malformed_query(name, f"'{text}' is not a number of 0 or more")
    return value


def _last(fields: dict[str, str], highest: float = MAX_LAST_S, usual: float = DEFAULT_LAST_S) -> float:
    last_s = _seconds(fields, "last", min(usual, highest))
    if not 0 < last_s <= highest:
        raise malformed_query("last", f"'{last_s:g}' is not a number of seconds up to {highest:g}")
    return last_s
