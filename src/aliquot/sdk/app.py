"""An app: the functions of one file, which are deployed together."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from aliquot.sdk.batched import BatchedFunction
from aliquot.sdk.classes import ClassFunction
from aliquot.sdk.client import Client, client_for
from aliquot.sdk.deployment import Deployment
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import UsageError
from aliquot.sdk.function import Function
from aliquot.sdk.kernels.graph import AppKernelGraph
from aliquot.sdk.kernels.onnx_files import OnnxFile
from aliquot.sdk.needs import BatchArguments, FunctionArguments, FunctionNeeds, check_group, check_schedule, read_needs
from aliquot.sdk.portable import register
from aliquot.sdk.server import find_server
from aliquot.sdk.session import Session, make_session
from aliquot.sdk.source import AppCode, read_code
from aliquot.sdk.units import read_ms, read_names, read_positive
from aliquot.sdk.wire import Operation
from aliquot.sdk.workflow import executions
from aliquot.sdk.workflow.decorator import Workflow
from aliquot.sdk.workflow.options import read_seconds

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

_MAX_NAME_LENGTH = 100
_NAME = rf"[A-Za-z][\w-]{{0,{_MAX_NAME_LENGTH - 1}}}"


class App:
    """An app, made by `app = App("vision")`. Put `@app.function(…)` over each function for the platform.

    `include` names files and folders beside the app's file that are sent with it, such as modules and data. The first
    remote call of a process deploys the function if the platform has another version or none, unless `autodeploy` is
    false. `url` and `key` select the platform. Without them it is that of ALIQUOT_URL and ALIQUOT_KEY, or the one that
    runs on this machine.
    """

    def __init__(
        self,
        name: str,
        *,
        include: list[str] | tuple[str, ...] = (),
        autodeploy: bool = True,
        url: str | None = None,
        key: str | None = None,
    ) -> None:
        if not re.fullmatch(_NAME, str(name), re.ASCII):
            takes = f"it takes letters, digits, '_' and '-', at most {_MAX_NAME_LENGTH}, a letter first"
            raise UsageError(f"App: {name!r} is not a name; {takes}")
        self.name = name
        self.autodeploy = autodeploy and "__OW_ACTION_NAME" not in os.environ  # a sandbox does not have the file
        self.functions: dict[str, Function[..., Any]] = {}
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.graphs: dict[str, AppKernelGraph] = {}
        self._include = read_names(include, "include")
        self.module: dict[str, Any] = sys._getframe(1).f_globals  # noqa: SLF001 - the caller, whose file is sent
        self._address = url, key
        self._cached_client: Client | None = None
        register(name, self.module)

    def __repr__(self) -> str:
        return f"<app {self.name}: {', '.join(self.functions) or 'no functions'}>"

    @overload
    def function(self, raw: Callable[P, R], /) -> Function[P, R]: ...
    @overload
    def function(self, /, **needs: Unpack[FunctionArguments]) -> Callable[[Callable[P, R]], Function[P, R]]: ...
    @overload
    def function(
        self, /, **needs: Unpack[BatchArguments]
    ) -> Callable[[Callable[[list[A]], list[R]]], BatchedFunction[A, R]]: ...
    def function(self, raw: Callable[..., Any] | None = None, /, **needs: Any) -> Any:
        """Make a function of the app, and declare its needs.

        gpu: a share of one GPU, or a number of whole ones. Without it the function runs on the node's CPU.
        gpu_memory: the memory that it needs on each of its GPUs.
        gpu_limit: the share that it may use while other functions are idle. Without it, all that is idle.
        gpu_memory_limit: the GPU memory that it may use at most. Without it, `gpu_memory`.
        memory: the memory that it needs on the host.
        timeout: a run that takes longer is ended.
        latency_slo: the time in which each call must have ended. A call that cannot meet it is refused at once.
        cost_slo: the most that each call may cost. A call that would cost more is refused at once.
        weight: its part of your share of the devices, relative to your other functions.
        imports: modules that are loaded before the function, so that it starts fast.
        requirements: packages that are installed for it.
        datasets: names of datasets. They are directories below `/datasets` (ALIQUOT_DATASETS), and their files are
            fetched ahead of time.
        volumes: names of volumes (`aliquot volume create`), which are writable and stay. `aliquot.volume(name)` is the
            folder of one.
        rerun: how often it may run again after a crash of the platform interrupted it: True (twice), False, or a number
            up to 10. If it is left out, tasks of workflows run again, and other calls do not.
        retries: another word for `rerun` as a number.
        schedule: when it is called without arguments, as cron writes it, in UTC: `"*/5 * * * *"`.
        warm: sandboxes that are held ready, where there is room that nobody uses.
        group: functions of the same group share a sandbox and pass values without a copy.
        calls: whether it may call functions outside its group. It gets a key for that.
        env: environment variables. They are no secrets: whoever can read the function can read them.
        secrets: names of secrets (`aliquot secret create`). The function gets their variables.
        batch: the calls that may run together. The function takes a list of items and returns a list of their results,
            and `f.remote(a)` gives the result of one item.
        cpu: whether it also runs on the node's CPU, with the same code (ALIQUOT_DEVICE names the device). The platform
            chooses for each call. `@f.variant("cpu")` goes over another version for the CPU instead.
        pure: whether its result follows from its arguments alone, so that it may run more than once.
        cache_ttl: how long results of a pure function are kept for calls with equal arguments.
        """
        read = read_needs(**needs)
        return self._add(raw, read) if raw is not None else lambda decorated: self._add(decorated, read)

    @overload
    def cls(self, raw: type, /) -> ClassFunction: ...
    @overload
    def cls(self, /, **needs: Unpack[FunctionArguments]) -> Callable[[type], ClassFunction]: ...
    def cls(self, raw: type | None = None, /, **needs: Unpack[FunctionArguments]) -> Any:
        """Make a class of the app, with the arguments of `function`.

        A sandbox makes one object of the class and runs its methods with `@aliquot.enter` once, before the first call.
        Methods whose name does not begin with `_` are called as `Model().predict.remote(x)`.
        """
        read = read_needs(**needs)

        def add(decorated: type) -> ClassFunction:
            if not isinstance(decorated, type):
                raise UsageError(f"app {self.name!r}: {decorated!r} is not a class; @app.cls goes over a class")
            self._check_name(decorated)
            made = ClassFunction(self, decorated, read)
            self.functions[decorated.__name__] = made
            return made

        return add if raw is None else add(raw)

    @overload
    def workflow(self, raw: Callable[P, R], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self,
        /,
        *,
        timeout: str | float | None = ...,
        durable: bool = ...,
        group: str | None = ...,
        latency_slo: str | float | None = ...,
        cost_slo: float | None = ...,
    ) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
    def workflow(
        self,
        raw: Callable[..., Any] | None = None,
        /,
        *,
        timeout: str | float | None = None,
        durable: bool = True,
        group: str | None = None,
        latency_slo: str | float | None = None,
        cost_slo: float | None = None,
    ) -> Any:
        """Make a workflow of the app. Its source is read into a graph, and mistakes are told at once.

        timeout: an execution that takes longer is ended with States.Timeout.
        durable: whether each step is on disk before the next one, so that a crash of the platform loses nothing.
            Without it executions are faster, and end with the server.
        group: puts the functions of the workflow into a group: they share a sandbox and pass values without a copy.
        latency_slo: the time in which each execution must have ended. One that cannot meet it is refused at once.
        cost_slo: the most that each execution may cost. One that would cost more is refused at once.
        """
        timeout_s = None if timeout is None else read_seconds(timeout, "timeout")
        if not isinstance(durable, bool):
            raise UsageError(f"durable: {durable!r} does not fit; it takes True or False")
        check_group(group)
        limits: dict[str, float] = {}
        if latency_slo is not None:
            limits["latency-slo-ms"] = read_ms(latency_slo, "latency_slo")
        if cost_slo is not None:
            limits["cost-slo"] = read_positive(cost_slo, "cost_slo")

        def add(decorated: Callable[..., Any]) -> Workflow[..., Any]:
            self._check_name(decorated)
            self.workflows[decorated.__name__] = Workflow(
                self, decorated, timeout_s, durable=durable, group=group, limits=limits
            )
            return self.workflows[decorated.__name__]

        return add if raw is None else add(raw)

    def kernel_graph(
        self, name: str, model: OnnxFile | None = None, *, iterations: int = 1, share: float | None = None
    ) -> AppKernelGraph:
        """Make a kernel graph of the app: device work without host code, built by the methods of the graph.

        model: a model instead, from `aliquot.kernels.onnx("net.onnx", shapes={"x": (1, 3, 224, 224)})`.
        iterations: how often the list of kernels is repeated in each call.
        share: its share of a device, 0.5 unless it is given. With 0 it runs on the node's CPU.
        """
        if not re.fullmatch(_NAME, str(name), re.ASCII):
            takes = f"it takes letters, digits, '_' and '-', at most {_MAX_NAME_LENGTH}, a letter first"
            raise UsageError(f"kernel_graph: {name!r} is not a name; {takes}")
        if name in self.functions or name in self.workflows or (name in self.graphs and self.module.get("__file__")):
            raise UsageError(f"app {self.name!r} has a function or graph {name!r} already")
        self.graphs[name] = AppKernelGraph(self, name, model, iterations, share)
        return self.graphs[name]

    def _add(self, raw: Callable[..., Any], needs: FunctionNeeds) -> Function[..., Any]:
        self._check_name(raw)
        check_schedule(raw, needs)
        made = Function if needs.batch is None else BatchedFunction
        function: Function[..., Any] = made(self, raw, needs)
        self.functions[raw.__name__] = function
        return function

    def _check_name(self, raw: Callable[..., Any]) -> None:
        """Refuse what cannot be deployed, and two functions, classes or workflows of one name."""
        _check(self.name, raw)
        if raw.__name__ in self.graphs:
            raise UsageError(f"app {self.name!r} has a kernel graph {raw.__name__!r} already")
        known = self.functions.get(raw.__name__) or self.workflows.get(raw.__name__)
        if known is not None and not _reloaded(getattr(known, "wrapped", known.raw), raw, self.module):
            raise UsageError(f"app {self.name!r} has a function {raw.__name__!r} already")

    def code(self, *wrapped: Callable[..., Any]) -> AppCode:
        """Read the app's file and the included ones, or in a notebook a function or class and what it uses."""
        return read_code(self.name, self.module, self._include, wrapped)

    @dual
    def deploy(self) -> Operation[list[Deployment]]:
        """Deploy all functions, kernel graphs and workflows of the app. What has not changed is left as it is."""
        parts = self.parts()
        if not parts:
            raise UsageError(f"app {self.name!r} has no functions; put @app.function over one")
        done: list[Deployment] = []
        for deploy in parts:
            deployed = yield from deploy()
            done.append(deployed)
        return done

    def parts(self) -> list[Callable[[], Operation[Deployment]]]:
        """Return the operations that deploy the parts of the app, workflows last, since they call the others."""
        one_by_one: tuple[Function[..., Any] | AppKernelGraph, ...] = (*self.functions.values(), *self.graphs.values())
        return [*(one.update for one in one_by_one), *(one.put for one in self.workflows.values())]

    @dual
    def answer(self, token: str, output: object = None) -> Operation[None]:
        """Answer a task that waits for its token (`aliquot.wait_for`). The output is a JSON value."""
        yield from executions.answer("success", {"token": token, "output": output})

    @dual
    def answer_failure(self, token: str, error: str, cause: str = "") -> Operation[None]:
        """Answer a task with an error. A handler catches it by its name, which may be that of an exception."""
        yield from executions.answer("failure", {"token": token, "error": error, "cause": cause})

    @dual
    def heartbeat(self, token: str) -> Operation[None]:
        """Tell that a task with a heartbeat is still alive."""
        yield from executions.answer("heartbeat", {"token": token})

    def session(
        self,
        name: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        user: str = "",
        id: str | None = None,  # noqa: A002 - its name
    ) -> Session:
        """Return a session for a `with` or `async with` block. Remote calls inside belong to it and reuse sandboxes.

        `user` names the user: the files that the session will read are predicted from the user's earlier sessions.
        The session ends with the block. With `id` an existing session is used, which does not end with the block.
        """
        return make_session(self, name, metadata, user, id)

    def client(self) -> Client:
        """Find the platform when it is first needed, so that the file can be imported without one."""
        if self._cached_client is None:
            self._cached_client = client_for(find_server(*self._address))
        return self._cached_client


def _reloaded(before: Callable[..., Any], now: Callable[..., Any], module: dict[str, Any]) -> bool:
    """Return whether the same lines ran again, or in a notebook a cell that was changed, which has another name."""
    old, new = _place_of(before), _place_of(now)
    return old == new or (not module.get("__file__") and old[0] != new[0])


def _place_of(value: Callable[..., Any]) -> tuple[str, int]:
    """Return the file and the line of a function, or of the first method of a class."""
    codes = [getattr(one, "__code__", None) for one in (value, *vars(value).values())]
    return next(((code.co_filename, code.co_firstlineno) for code in codes if code is not None), ("", 0))


def _check(app: str, raw: Callable[..., Any]) -> None:
    """Refuse functions that the sandbox could not find, or whose results could not be sent back."""
    code = getattr(raw, "__code__", None)
    if code is None and not isinstance(raw, type):
        raise UsageError(f"app {app!r}: {raw!r} is not a function; @app.function goes over a def, as the topmost")
    if raw.__qualname__ != raw.__name__:
        raise UsageError(f"app {app!r}: {raw.__qualname__} is inside another function or class; move it to the top")
    if raw.__name__ == "<lambda>":
        raise UsageError(f"app {app!r}: a lambda has no name to be called by; write a def")
    if code is None:
        return
    coroutine, async_generator = 0x80, 0x200  # the flags of inspect, which is slow to import
    if code.co_flags & (coroutine | async_generator):
        raise UsageError(f"app {app!r}: {raw.__name__} is async, which is not supported; write a plain def")
