"""An HTTP client of one namespace on a running server, for tests, benchmarks and demonstrations."""

import base64
import functools
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from aliquot.testing.waiting import wait_until

REQUEST_TIMEOUT_S = 60
CALL_TIMEOUT_S = 900  # longer than any function may run
POLL_S = 0.05
_MAX_ERROR_CHARS = 400


class CallError(RuntimeError):
    """A server refused a request, or a function failed. The text has the answer."""


@functools.cache
def certificates() -> ssl.SSLContext:
    """Read the trusted certificates once. That takes 25 ms, longer than most requests."""
    return httpx.create_ssl_context()


class NamespaceClient(httpx.Client):
    """An `httpx.Client` with the key of a namespace, whose paths are relative to it, such as `actions/echo`."""

    def __init__(self, url: str, key: str, **options: Any) -> None:  # noqa: ANN401 - options of httpx
        user, _, secret = key.partition(":")
        options = {"timeout": REQUEST_TIMEOUT_S, "verify": certificates(), **options}
        super().__init__(base_url=f"{url}/api/v1/namespaces/_/", auth=(user, secret), **options)
        self.authorization = "Basic " + base64.b64encode(key.encode()).decode()  # the header, for other clients

    def deploy(
        self,
        name: str,
        code: str,
        *,
        kind: str = "python:3.11",
        main: str | None = None,
        **body: Any,  # noqa: ANN401 - JSON
    ) -> None:
        """Create or replace an action. `body` holds further fields of the request, such as `limits`."""
        program = {"kind": kind, "code": code, **({"main": main} if main else {})}
        answer = self.put(f"actions/{name}", params={"overwrite": "true"}, json={"exec": program, **body})
        check(answer)

    def call(self, name: str, args: Mapping[str, Any], *, session: str | None = None) -> dict[str, Any]:
        """Call an action and return its activation record, whether the function succeeded or failed.

        A call that outlasts the server's blocking time is looked up until its record is there.
        """
        query = {"blocking": "true", **({"session": session} if session else {})}
        answer = self.post(f"actions/{name}", params=query, json=dict(args))
        record: dict[str, Any] = answer.json()
        if "activationId" not in record:
            raise CallError(f"{name} answered {answer.status_code}: {answer.text[:_MAX_ERROR_CHARS]}")
        return record if "response" in record else self._wait_for_record(name, record["activationId"])

    def result(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Call an action and return its result. Raise `CallError` if the function fails."""
        return result_of(name, self.call(name, args))

    def _wait_for_record(self, name: str, activation_id: str) -> dict[str, Any]:
        answer = wait_until(
            lambda: self.get(f"activations/{activation_id}"),
            lambda answer: answer.is_success,
            what=f"the end of {name}, activation {activation_id}",
            timeout_s=CALL_TIMEOUT_S,
            pause_s=POLL_S,
        )
        record: dict[str, Any] = answer.json()
        return record

    @contextmanager
    def session(self, name: str, user: str = "") -> Iterator[str]:
        """Create a session, yield its id, and end it."""
        sessions = self.base_url.join("/api/v1/sessions")
        answer = self.post(sessions, json={"name": name, **({"user": user} if user else {})})
        session = str(check(answer).json()["sessionId"])
        try:
            yield session
        finally:
            check(self.delete(f"{sessions}/{session}"))


def result_of(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result in an activation record. Raise `CallError` if the function failed."""
    response = record["response"]
    if not response["success"]:
        raise CallError(f"{name} failed: {str(response['result'])[:_MAX_ERROR_CHARS]}")
    result: dict[str, Any] = response["result"]
    return result


def check(answer: httpx.Response) -> httpx.Response:
    """Return the answer. Raise `CallError` with its text if its status is an error."""
    if not answer.is_success:
        request = f"{answer.request.method} {answer.request.url.path}"
        raise CallError(f"{request} answered {answer.status_code}: {answer.text[:_MAX_ERROR_CHARS]}")
    return answer


def to_pairs(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Convert annotations or parameters into the list of pairs that the API takes."""
    return [{"key": key, "value": value} for key, value in values.items()]


def from_pairs(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Convert a list of pairs, such as the annotations of an activation, into a dictionary."""
    return {pair["key"]: pair.get("value") for pair in pairs}
