"""Deployment of functions and workflows: each becomes an action, which is written only when it has changed."""

from typing import Any, NamedTuple

from aliquot.sdk import answers
from aliquot.sdk.calls import action_path
from aliquot.sdk.needs import ANNOTATIONS, FunctionNeeds
from aliquot.sdk.source import KIND, AppCode
from aliquot.sdk.wire import JSON, HttpRequest, Operation, ask, to_json


class Deployment(NamedTuple):
    """The result of deploying one function or workflow."""

    name: str  # of the action
    version: str
    changed: bool  # false if the platform had it already
    warnings: tuple[str, ...] = ()  # about a workflow

    def as_json(self) -> dict[str, Any]:
        """Return the result for programs. Warnings are left out if there are none."""
        return {name: value for name, value in self._asdict().items() if value != ()}


def deploy(app: str, action: str, main: str, code: AppCode, needs: FunctionNeeds) -> Operation[Deployment]:
    """Create the action of a function, or update it if it has changed."""
    return (yield from _put(action, _body(app, main, code, needs)))


def deploy_workflow(
    app: str, action: str, definition: dict[str, Any], limits: dict[str, float], *, durable: bool
) -> Operation[Deployment]:
    """Create the action of a workflow, or update it if it has changed. `limits` are annotations."""
    annotations = {"sdk": True, "sdk-app": app, **({} if durable else {"durable": False}), **limits}
    body = {
        "exec": {"kind": "workflow", "code": to_json(definition).decode()},
        "annotations": [{"key": key, "value": value} for key, value in annotations.items()],
    }
    return (yield from _put(action, body))


def deploy_kernel_graph(app: str, action: str, document: dict[str, Any], share: float | None) -> Operation[Deployment]:
    """Create the action of a kernel graph, or update it if it has changed."""
    annotations = {"sdk-app": app, **({} if share is None else {"gpu-share": share})}
    body = {
        "exec": {"kind": "kernel:1", "code": to_json(document).decode()},
        "annotations": [{"key": key, "value": value} for key, value in annotations.items()],
    }
    return (yield from _put(action, body))


def _put(action: str, body: dict[str, Any]) -> Operation[Deployment]:
    digest = _digest(body)
    path = action_path(action)
    reply = yield from ask(HttpRequest("GET", path, {"code": "false"}))
    if reply.status != 404:  # noqa: PLR2004 - there is none yet
        deployed = answers.check(reply, action).json()
        if any(pair == {"key": "sdk-digest", "value": digest} for pair in deployed.get("annotations", ())):
            return Deployment(action, str(deployed.get("version", "")), changed=False)
    body["annotations"].append({"key": "sdk-digest", "value": digest})
    kept = {pair["key"] for pair in body["annotations"]}
    body["delAnnotations"] = [key for key in ANNOTATIONS if key not in kept]
    reply = yield from ask(
        HttpRequest("PUT", path, {"overwrite": "true"}, {"Content-Type": JSON}, to_json(body), timeout_s=60)
    )
    written = answers.check(reply, action).json()
    return Deployment(
        action, str(written.get("version", "")), changed=True, warnings=tuple(written.get("warnings", ()))
    )


def _body(app: str, main: str, code: AppCode, needs: FunctionNeeds) -> dict[str, Any]:
    annotations = {"sdk": True, "sdk-app": app, "sdk-file": code.file, **needs.annotations()}
    return {
        "exec": {"kind": KIND, "code": code.text, "main": main},
        "limits": needs.limits(),
        "annotations": [{"key": key, "value": value} for key, value in annotations.items()],
    }


def _digest(body: dict[str, Any]) -> str:
    from hashlib import sha256

    return sha256(to_json(body)).hexdigest()
