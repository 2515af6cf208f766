"""An app: functions that are deployed together, defined in one file."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, overload

from aliquot.sdk.client import Client, client_for
from aliquot.sdk.deploying import Deployment
from aliquot.sdk.dual import dual
from aliquot.sdk.errors import UsageError
from aliquot.sdk.function import Function
from aliquot.sdk.needs import Needs, read_needs
from aliquot.sdk.portable import register
from aliquot.sdk.server import find_server
from aliquot.sdk.session import Session, make
from aliquot.sdk.source import Code, read_code
from aliquot.sdk.units import read_names
from aliquot.sdk.wire import Operation

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_NAME = 100
_NAME = rf"[A-Za-z][\w-]{{0,{_LONGEST_NAME - 1}}}"


class App:
    """`app = App("vision")`, then `@app.function(…)` over what shall run on the platform.

    `include` names files beside this one that are sent along: modules it imports, data it reads. The first remote
    call of a process deploys the function if it is not there as it is here, unless `autodeploy` is off. `url` and
    `key` say which platform; otherwise it is the one of ALIQUOT_URL and ALIQUOT_KEY, or of `aliquot up` here.
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
            takes = f"it takes letters, digits, '_' and '-', at most {_LONGEST_NAME}, a letter first"
            raise UsageError(f"App: {name!r} is not a name; {takes}")
        self.name = name
        self.autodeploy = autodeploy and "__OW_ACTION_NAME" not in os.environ  # a sandbox has not got the file
        self.functions: dict[str, Function[..., Any]] = {}
        self._include = read_names(include, "include")
        self.module: dict[str, Any] = sys._getframe(1).f_globals  # noqa: SLF001 - whose file is to be sent
        self._address = url, key
        self._found: Client | None = None
        register(name, self.module)

    def __repr__(self) -> str:
        return f"<app {self.name}: {', '.join(self.functions) or 'no functions'}>"

    @overload
    def function(self, raw: Callable[P, R], /) -> Function[P, R]: ...
    @overload
    def function(
        self,
        /,
        *,
        gpu: float | None = ...,
        gpu_memory: str | int | None = ...,
        gpu_limit: float | None = ...,
        gpu_memory_limit: str | int | None = ...,
        memory: str | int | None = ...,
        timeout: str | float | None = ...,
        latency_slo: str | float | None = ...,
        weight: float | None = ...,
        imports: list[str] | tuple[str, ...] = ...,
        requirements: list[str] | tuple[str, ...] = ...,
        datasets: list[str] | tuple[str, ...] = ...,
        rerun: bool = ...,
        group: str | None = ...,
        calls: bool | None = ...,
    ) -> Callable[[Callable[P, R]], Function[P, R]]: ...
    def function(
        self,
        raw: Callable[..., Any] | None = None,
        /,
        *,
        gpu: float | None = None,
        gpu_memory: str | int | None = None,
        gpu_limit: float | None = None,
        gpu_memory_limit: str | int | None = None,
        memory: str | int | None = None,
        timeout: str | float | None = None,
        latency_slo: str | float | None = None,
        weight: float | None = None,
        imports: list[str] | tuple[str, ...] = (),
        requirements: list[str] | tuple[str, ...] = (),
        datasets: list[str] | tuple[str, ...] = (),
        rerun: bool = False,
        group: str | None = None,
        calls: bool | None = None,
    ) -> Any:
        """Say what a function needs.

        `gpu` is a share of one GPU, or how many whole ones (none: it runs on the node's CPU), and `gpu_memory` its part
        of that GPU's memory, or of each one's; `gpu_limit` and `gpu_memory_limit` are how far it may go beyond that
        (all that nobody uses, and nothing, if not said). `memory` is the host's. `timeout` ends a run, `latency_slo` is
        what you wish for, `weight` how much of your own share this function gets beside your others. `imports` are
        loaded before the function starts, so that it starts fast; `requirements` are installed for it. `datasets` are
        names of datasets, which it finds as directories below `/datasets` (ALIQUOT_DATASETS), and whose files are
        brought before it asks. `rerun=True`: it may run again if a crash interrupts it.
        Functions of the same `group` share a sandbox, and hand each other values without a copy. `calls=True`: it may
        call functions outside of its group, and is given a key for that.
        """
        needs = read_needs(
            gpu=gpu,
            gpu_memory=gpu_memory,
            gpu_limit=gpu_limit,
            gpu_memory_limit=gpu_memory_limit,
            memory=memory,
            timeout=timeout,
            latency_slo=latency_slo,
            weight=weight,
            imports=imports,
            requirements=requirements,
            datasets=datasets,
            rerun=rerun,
            group=group,
            calls=calls,
        )
        return self._add(raw, needs) if raw is not None else lambda decorated: self._add(decorated, needs)

    def _add(self, raw: Callable[P, R], needs: Needs) -> Function[P, R]:
        _check(self.name, raw)
        if raw.__name__ in self.functions and not self._reloaded(raw):
            raise UsageError(f"app {self.name!r} has a function {raw.__name__!r} already")
        function = Function(self, raw, needs)
        self.functions[raw.__name__] = function
        return function

    def _reloaded(self, raw: Callable[..., Any]) -> bool:
        """The same lines once more, as a notebook does; not two functions of one name."""
        before, now = self.functions[raw.__name__].raw.__code__, raw.__code__
        return (before.co_filename, before.co_firstlineno) == (now.co_filename, now.co_firstlineno)

    def code(self) -> Code:
        """The file as it is now."""
        return read_code(self.name, self.module, self._include)

    @dual
    def deploy(self) -> Operation[list[Deployment]]:
        """Bring all its functions up to date on the platform; what has not changed is left alone."""
        if not self.functions:
            raise UsageError(f"app {self.name!r} has no functions; put @app.function over one")
        done: list[Deployment] = []
        for function in self.functions.values():
            deployed = yield from function.update()
            done.append(deployed)
        return done

    def session(
        self,
        name: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        user: str = "",
        id: str | None = None,  # noqa: A002 - its name
    ) -> Session:
        """`with app.session():` (or `async with`): remote calls inside belong together and find their sandboxes again.

        `user` says whose it is: what its functions will read is foreseen from the user's earlier sessions.
        It ends with the block. With `id` one that is there is taken up, and goes on after the block.
        """
        return make(self, name, metadata, user, id)

    def client(self) -> Client:
        """Found when it is first needed: a file must be importable where no platform is."""
        if self._found is None:
            self._found = client_for(find_server(*self._address))
        return self._found


def _check(app: str, raw: Callable[..., Any]) -> None:
    """What cannot be found again in the sandbox, or not be sent back, is refused here and now."""
    code = getattr(raw, "__code__", None)
    if code is None:
        raise UsageError(f"app {app!r}: {raw!r} is not a function; @app.function goes over a def, as the topmost")
    if raw.__qualname__ != raw.__name__:
        raise UsageError(f"app {app!r}: {raw.__qualname__} is inside another function or class; move it to the top")
    if raw.__name__ == "<lambda>":
        raise UsageError(f"app {app!r}: a lambda has no name to be called by; write a def")
    coroutine, generator, async_generator = 0x80, 0x20, 0x200  # inspect's flags, without its import
    if code.co_flags & (coroutine | generator | async_generator):
        raise UsageError(
            f"app {app!r}: {raw.__name__} is async or a generator, which is not supported; return the whole result"
        )
