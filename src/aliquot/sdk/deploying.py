"""Deployment as operations: an action for each function, written only when something about it has changed."""

from typing import Any, NamedTuple

from aliquot.sdk import answers
from aliquot.sdk.calls import action_path
from aliquot.sdk.needs import ANNOTATIONS, Needs
from aliquot.sdk.source import KIND, Code
from aliquot.sdk.wire import JSON, Operation, Request, ask, to_json


class Deployment(NamedTuple):
    """What became of one function."""

    name: str  # the action's
    version: str
    changed: bool  # False: it was already there like this


def deploy(app: str, action: str, main: str, code: Code, needs: Needs) -> Operation[Deployment]:
    """Create the action, or bring it up to date."""
    body = _body(app, main, code, needs)
    digest = _digest(body)
    path = action_path(action)
    reply = yield from ask(Request("GET", path, {"code": "false"}))
    if reply.status != 404:  # noqa: PLR2004 - there is none yet
        there = answers.check(reply, action).json()
        if any(pair == {"key": "sdk-digest", "value": digest} for pair in there.get("annotations", ())):
            return Deployment(action, str(there.get("version", "")), changed=False)
    body["annotations"].append({"key": "sdk-digest", "value": digest})
    said = {pair["key"] for pair in body["annotations"]}
    body["delAnnotations"] = [key for key in ANNOTATIONS if key not in said]
    reply = yield from ask(
        Request("PUT", path, {"overwrite": "true"}, {"Content-Type": JSON}, to_json(body), patience_s=60)
    )
    written = answers.check(reply, action).json()
    return Deployment(action, str(written.get("version", "")), changed=True)


def _body(app: str, main: str, code: Code, needs: Needs) -> dict[str, Any]:
    annotations = {"sdk": True, "sdk-app": app, **needs.annotations()}
    return {
        "exec": {"kind": KIND, "code": code.text, "main": main},
        "limits": needs.limits(),
        "annotations": [{"key": key, "value": value} for key, value in annotations.items()],
    }


def _digest(body: dict[str, Any]) -> str:
    from hashlib import sha256

    return sha256(to_json(body)).hexdigest()
