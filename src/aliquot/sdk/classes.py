"""Classes of an app: set up once in each sandbox, with methods that are called like functions.

A class is one function on the platform, so that all its methods share its sandboxes and what the set-up has loaded.
The first argument of a call names the method.
"""

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from aliquot.sdk.deployment import Deployment
from aliquot.sdk.errors import UsageError
from aliquot.sdk.function import Function
from aliquot.sdk.needs import FunctionNeeds
from aliquot.sdk.wire import Operation

if TYPE_CHECKING:
    from aliquot.sdk.app import App

F = TypeVar("F", bound=Callable[..., Any])

_ROLE = "__aliquot_role__"
_ENTER, _EXIT = "enter", "exit"


def enter(method: F) -> F:
    """Mark a method as the set-up of its class. It runs once in each sandbox, before the first call."""
    return _marked(method, _ENTER)


def exit(method: F) -> F:  # noqa: A001 - `aliquot.exit`, as its counterpart is `aliquot.enter`
    """Mark a method that runs when a sandbox of its class is stopped, for a few seconds at most."""
    return _marked(method, _EXIT)


def _marked(method: F, role: str) -> F:
    if not isinstance(method, FunctionType):
        raise UsageError(f"@aliquot.{role}: {method!r} is not a method; it goes over a def in a class")
    setattr(method, _ROLE, role)
    return method


class ClassFunction(Function[..., Any]):
    """The result of `@app.cls`. `Model().predict(x)` runs here, `Model().predict.remote(x)` on the platform."""

    def __init__(self, app: "App", raw: type, needs: FunctionNeeds) -> None:
        members = _members_of(raw)
        self._enter = [name for name, role in members.items() if role == _ENTER]
        self._exit = [name for name, role in members.items() if role == _EXIT]
        self.methods = tuple(name for name, role in members.items() if not role and not name.startswith("_"))
        if not self.methods:
            raise UsageError(f"app {app.name!r}: class {raw.__name__} has no method to call; write one without a '_'")
        if needs.schedule is not None or needs.batch is not None:
            word = "schedule" if needs.batch is None else "batch"
            raise UsageError(f"{word}: {raw.__name__} is a class; it goes over a function")
        if self._exit and needs.group:
            raise UsageError(f"group: class {raw.__name__} has @aliquot.exit, which a group of functions cannot run")
        super().__init__(app, raw, needs._replace(exit=bool(self._exit)))
        self.wrapped = raw
        self.raw = self._serve
        self._instance: Any = None
        self._called: dict[str, ClassMethod] = {}

    def __repr__(self) -> str:
        return f"<class {self.action} of Aliquot>"

    def method(self, name: str) -> "ClassMethod":
        """Return a method as a function of the app, the same one each time."""
        if name not in self._called:
            self._called[name] = ClassMethod(self, name)
        return self._called[name]

    def __call__(self, /, *args: object, **kwargs: object) -> "ClassInstance":
        """Return an object whose methods can be called here and on the platform."""
        if args or kwargs:
            raise UsageError(
                f"{self.action}: it takes no arguments, because sandboxes make their own objects; load what it needs "
                "in a method with @aliquot.enter"
            )
        return ClassInstance(self)

    # --- in the sandbox, or in this process ---------------------------------------------------------------

    def set_up(self) -> None:
        """Make the object and run its set-up, once in a process. The launcher of a sandbox calls this."""
        if self._instance is None:
            instance = self.wrapped()
            for name in self._enter:
                getattr(instance, name)()
            self._instance = instance

    def tear_down(self) -> None:
        """Run the methods with `@aliquot.exit`. The launcher of a sandbox calls this at its end."""
        if self._instance is not None:
            for name in self._exit:
                getattr(self._instance, name)()

    def _serve(self, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the method's own
        """Call a method. JSON names it as the argument `method`, which may be left out if there is only one."""
        if args:
            name, *args = args  # type: ignore[assignment]
        elif len(self.methods) == 1 and kwargs.get("method") != self.methods[0]:
            name = self.methods[0]
        else:
            name = kwargs.pop("method", None)
        if name not in self.methods:
            raise TypeError(f"method: {name!r} does not fit; {self.action} has {', '.join(self.methods)}")
        self.set_up()
        return getattr(self._instance, name)(*args, **kwargs)


class ClassInstance:
    """An object of an app's class. Its methods are functions of the app."""

    def __init__(self, owner: ClassFunction) -> None:
        self._owner = owner

    def __repr__(self) -> str:
        return f"<object of {self._owner.action} of Aliquot>"

    def __getattr__(self, name: str) -> "ClassMethod":
        if name not in self._owner.methods:
            raise AttributeError(
                f"{self._owner.action} has no method {name!r} to call; it has {', '.join(self._owner.methods)}"
            )
        return self._owner.method(name)


class ClassMethod(Function[..., Any]):
    """A method of an app's class: `f(x)` runs here, `f.remote(x)`, `f.spawn(x)` and `f.map(…)` on the platform."""

    def __init__(self, owner: ClassFunction, method: str) -> None:
        super().__init__(owner.app, getattr(owner.wrapped, method), owner.needs)
        self._owner, self.method = owner, method
        self.action = owner.action
        self.raw = self._make_caller(getattr(owner.wrapped, method))

    def _make_caller(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls the method here, with the method's own parameters."""
        import inspect

        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the method's own
            return self._owner.raw(self.method, *args, **kwargs)

        own = inspect.signature(method)
        call.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])  # type: ignore[attr-defined]
        call.__name__, call.__module__ = method.__name__, method.__module__
        return call

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.method, *args)

    def deploy_once(self) -> Operation[None]:
        return self._owner.deploy_once()

    def update(self) -> Operation[Deployment]:
        return self._owner.update()

    def forget_deployment(self) -> None:
        self._owner.forget_deployment()


def _members_of(raw: type) -> dict[str, str]:
    """Return the roles of the methods of a class and its bases, in the order in which they are written."""
    found: dict[str, str] = {}
    for base in reversed(raw.__mro__[:-1]):
        for name, value in vars(base).items():
            if isinstance(value, FunctionType):
                found[name] = getattr(value, _ROLE, "")
    return found
