"""Answers to calls of kernel graphs."""

import msgspec
from msgspec import Struct

from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.node.base import Outcome, Status

_BEGIN = b'{"error":{"complaints":'
_TOO_LARGE = "the outputs:"  # begins the complaint about an answer that would be too large


class _Complaints(Struct):
    complaints: list[str]
    status: int = 0  # of HTTP, if the platform has refused the call


class _CallError(Struct):
    error: _Complaints


def misfit_refusal(outcome: Outcome) -> Refusal | None:
    """Return the refusal of a call that does not fit its graph, or None for any other end of a run."""
    if outcome.status is not Status.APPLICATION_ERROR or bytes(outcome.result[: len(_BEGIN)]) != _BEGIN:
        return None
    error = msgspec.json.decode(outcome.result, type=_CallError).error
    complaints = error.complaints
    if error.status:
        return Refusal(error.status, "; ".join(complaints), more={"complaints": complaints})
    status = 413 if complaints and complaints[0].startswith(_TOO_LARGE) else 400
    text = "The call does not fit its kernel graph: " + "; ".join(complaints)
    return Refusal(status, text, more={"complaints": complaints})
