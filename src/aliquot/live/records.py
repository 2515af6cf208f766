"""What the live platform keeps: namespaces, actions, activations. Frozen, and stored as they are.

Field names are OpenWhisk's where OpenWhisk has one, so that an entity's JSON is the record itself.
"""

from typing import Any

from msgspec import Struct

PYTHON = "python:3.11"
NODEJS = "nodejs:20"


class Key(Struct, frozen=True):
    """One credential of a namespace: `uuid:secret`, of which the secret is known to its owner alone."""

    uuid: str
    digest: str  # SHA-256 of the secret, in hex; secrets are long and random, so no slow hash is needed


class Quota(Struct, frozen=True):
    """How much one namespace may ask for; None: no bound."""

    invocations_per_minute: int | None = None
    concurrent_invocations: int | None = None


class Namespace(Struct, frozen=True):
    """A tenant."""

    name: str
    keys: tuple[Key, ...] = ()
    weight: float = 1  # the operator's
    quota: Quota = Quota()
    created: int = 0  # epoch ms


class Pair(Struct, frozen=True, omit_defaults=True):
    """One annotation, or one parameter. An `init` parameter goes to the environment, not to the arguments."""

    key: str
    value: Any = None
    init: bool = False


class Exec(Struct, frozen=True, omit_defaults=True):
    kind: str
    code: str = ""
    binary: bool = False
    main: str | None = None


class Limits(Struct, frozen=True):
    timeout: int = 60_000  # ms, for init and run separately
    memory: int = 256  # MB
    logs: int = 10  # MB
    concurrency: int = 1


class Action(Struct, frozen=True):
    """A function as its owner deployed it."""

    namespace: str
    name: str  # `name`, or `package/name`
    version: str
    exec: Exec
    parameters: tuple[Pair, ...] = ()
    annotations: tuple[Pair, ...] = ()
    limits: Limits = Limits()
    publish: bool = False
    updated: int = 0  # epoch ms
    revision: str = ""  # new with every write: a sandbox serves exactly one

    def annotation(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - whatever JSON holds
        return next((pair.value for pair in self.annotations if pair.key == key), default)


class Activation(Struct, frozen=True, gc=False):
    """The record of one invocation, ready to be stored: what lists need apart from what may be large."""

    id: str  # 32 lower-case hexadecimal digits
    namespace: str
    name: str  # of the action, as in lists: `name` or `package/name`
    start: int  # epoch ms
    end: int
    summary: bytes  # JSON object: the list item, `statusCode` included
    response: bytes  # JSON object: status, success, result, size
    logs: bytes  # JSON array of lines
    pickled: bytes | None = None  # the result as the SDK's client wants it, when it asked for that


class Accepted(Struct, frozen=True, gc=False):
    """An invocation that was acknowledged before it ran; it is in the queue until its activation is stored."""

    id: str
    namespace: str
    name: str
    accepted: int  # epoch ms
    payload: bytes  # as the sandbox will get it
    pickled: bool = False  # the payload is the SDK's, not JSON
    rerun: bool = False  # may run again after a crash
    started: bool = False
