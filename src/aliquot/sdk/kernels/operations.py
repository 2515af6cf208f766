"""Operations on kernel graphs: deploy, call, spawn, wait. They do no I/O: a driver carries them out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aliquot.sdk import answers
from aliquot.sdk.calls import NAMESPACE, action_path, activation_path, post
from aliquot.sdk.deployment import Deployment, deploy_kernel_graph
from aliquot.sdk.errors import PlatformError
from aliquot.sdk.wire import HttpRequest, Operation, ask, pause

if TYPE_CHECKING:
    from aliquot.kernels.graph import KernelGraph

Outputs = dict[str, Any]  # by name: arrays of NumPy, and objects as `{"key": "…"}`

SAFETENSORS = "application/x-safetensors"
_TRANSFER_TIMEOUT_S = 3600.0
_FIRST_POLL_S, _LAST_POLL_S = 0.005, 0.5
_NOT_FOUND, _ACCEPTED = 404, 202


def deploy(
    app: str, action: str, document: dict[str, Any], blobs: Mapping[str, bytes], share: float | None
) -> Operation[Deployment]:
    """Store the constants and models that the platform does not have, and deploy the graph."""
    for digest, content in blobs.items():
        path = f"{NAMESPACE}/blobs/{digest}"
        reply = yield from ask(HttpRequest("HEAD", path))
        if reply.status == _NOT_FOUND:
            headers = {"Content-Type": "application/octet-stream"}
            request = HttpRequest("PUT", path, {}, headers, content, timeout_s=_TRANSFER_TIMEOUT_S)
            answers.check((yield from ask(request)), f"{action}: blob {digest[:12]}")
    return (yield from deploy_kernel_graph(app, action, document, share))


def call(action: str, graph: KernelGraph, body: bytes) -> Operation[Outputs]:
    """Run a graph with a safetensors file, and return its outputs."""
    from aliquot.sdk.kernels import arrays

    query = {"blocking": "true", "result": "true"}
    reply = yield from post(HttpRequest("POST", action_path(action), query, {"Content-Type": SAFETENSORS}, body))
    if reply.status == _ACCEPTED:
        activation_id = reply.json()["activationId"]
        text = f"{action}: it still runs after 60 s, as activation {activation_id}; use spawn for long calls"
        raise PlatformError(text, activation_id=activation_id)
    if not reply.headers.get("content-type", "").startswith(SAFETENSORS):
        if answers.is_final(reply):
            raise answers.failure_of(reply, action, reply.headers.get(answers.ACTIVATION, ""))
        raise answers.error_of(reply, action)
    return arrays.read_file(graph, reply.body)


def spawn(action: str, body: bytes) -> Operation[str]:
    """Start a call with a safetensors file, and return its activation id."""
    reply = yield from post(HttpRequest("POST", action_path(action), {}, {"Content-Type": SAFETENSORS}, body))
    return str(answers.check(reply, action).json()["activationId"])


def wait(action: str, graph: KernelGraph, activation_id: str, timeout_s: float | None) -> Operation[Outputs]:
    """Wait until a spawned call has ended, and return its outputs, which have become objects."""
    from aliquot.sdk.kernels import arrays

    give_up = None if timeout_s is None else time.monotonic() + timeout_s
    delay = _FIRST_POLL_S
    while True:
        reply = yield from ask(HttpRequest("GET", f"{activation_path(activation_id)}/result"))
        if reply.status != _NOT_FOUND:  # it has ended
            break
        left = delay if give_up is None else give_up - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{action}: activation {activation_id} has not ended within {timeout_s:g} s")
        yield from pause(min(delay, left))
        delay = min(_LAST_POLL_S, delay * 1.5)
    body = answers.check(reply, action).json()
    result = body.get("result") or {}
    if not body.get("success") or "outputs" not in result:
        raise answers.failure_of(reply, action, activation_id)
    found: Outputs = {}
    for name, stored in result["outputs"].items():
        request = HttpRequest("GET", f"{NAMESPACE}/objects/{stored['key']}", timeout_s=_TRANSFER_TIMEOUT_S)
        reply = yield from ask(request)
        content = answers.check(reply, f"{action}: object {stored['key']}").body
        found |= arrays.to_arrays(graph, {name: content})
    return found
