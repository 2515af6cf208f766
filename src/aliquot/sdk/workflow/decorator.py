"""A workflow of an app, made by `@app.workflow`: `w(x)` runs here, `w.remote(x)` runs the graph on the platform."""

import os
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from aliquot.sdk.client import Client
from aliquot.sdk.workflow.here import runs_here

if TYPE_CHECKING:
    from aliquot.sdk.app import App

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """The result of `@app.workflow`. Its source is read once, when it is decorated."""

    def __init__(self, app: "App", raw: Callable[P, R], timeout_s: int | None) -> None:
        update_wrapper(self, raw)
        self.app = app
        self.raw = raw
        self.name = raw.__name__
        self.action = f"{app.name}.{raw.__name__}"
        self._timeout_s = timeout_s
        self._definition: dict[str, Any] | None = None
        if "__OW_ACTION_NAME" not in os.environ:  # in a sandbox nobody asks for it
            self.definition()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        token = runs_here.set(True)
        try:
            return self.raw(*args, **kwargs)
        finally:
            runs_here.reset(token)

    def __repr__(self) -> str:
        return f"<workflow {self.action} of Aliquot>"

    def client(self) -> Client:
        return self.app.client()

    def definition(self) -> dict[str, Any]:
        """Return the definition in the Amazon States Language. Raises `WorkflowRefusedError` with all mistakes."""
        from aliquot.sdk.workflow.reading import read_workflow

        if self._definition is None:
            self._definition = read_workflow(self.raw, self, self._timeout_s)
        return self._definition
