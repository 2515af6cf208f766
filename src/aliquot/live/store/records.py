"""What the live platform keeps: namespaces, entities, activations. Frozen, and stored as they are.

Field names are OpenWhisk's where OpenWhisk has one, so that an entity's JSON is the record itself.
"""

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

PYTHON = "python:3.11"
NODEJS = "nodejs:20"
SEQUENCE = "sequence"
BLACKBOX = "blackbox"
SYSTEM = "whisk.system"  # the namespace of what comes with the platform; nobody's


class Key(Struct, frozen=True):
    """One credential of a namespace: `uuid:secret`, of which the secret is known to its owner alone."""

    uuid: str
    digest: str  # SHA-256 of the secret, in hex; secrets are long and random, so no slow hash is needed


class Quota(Struct, frozen=True):
    """How much one namespace may ask for; None: no bound."""

    invocations_per_minute: int | None = None
    concurrent_invocations: int | None = None
    fires_per_minute: int | None = None


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


class FullName(Struct, frozen=True, order=True):
    """An entity's name with its namespace: `/namespace/name`, or `/namespace/package/name` for an action in one."""

    namespace: str
    name: str  # `name`, or `package/name`

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.name}"

    @property
    def package(self) -> str:
        """Empty when it is in none."""
        return self.name.rpartition("/")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def path(self) -> str:
        """What stands before the last name: `namespace`, or `namespace/package`."""
        return f"{self.namespace}/{self.package}" if self.package else self.namespace


class Exec(Struct, frozen=True, omit_defaults=True):
    kind: str
    code: str = ""
    binary: bool = False
    main: str | None = None
    image: str | None = None  # of a blackbox
    components: tuple[FullName, ...] = ()  # of a sequence


class Limits(Struct, frozen=True):
    timeout: int = 60_000  # ms, for init and run separately
    memory: int = 256  # MB
    logs: int = 10  # MB
    concurrency: int = 1
    instances: int | UnsetType = UNSET  # sandboxes at once; unset: as many as the devices hold


class _Entity(Struct, frozen=True, kw_only=True):
    """What all entities of a namespace have. No two of one namespace have the same name, whatever they are."""

    parameters: tuple[Pair, ...] = ()
    annotations: tuple[Pair, ...] = ()
    publish: bool = False
    updated: int = 0  # epoch ms

    def annotation(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - whatever JSON holds
        return next((pair.value for pair in self.annotations if pair.key == key), default)


def is_truthy(value: object) -> bool:
    """As annotations are read: empty lists and objects are true."""
    return value not in (None, False, 0, "") or isinstance(value, list | dict)


class Action(_Entity, frozen=True):
    """A function as its owner deployed it, or a sequence of them."""

    namespace: str
    name: str  # `name`, or `package/name`
    version: str
    exec: Exec
    limits: Limits = Limits()
    revision: str = ""  # new with every write: a sandbox serves exactly one

    @property
    def full_name(self) -> FullName:
        return FullName(self.namespace, self.name)


class Package(_Entity, frozen=True):
    """Actions that share parameters; or another package under a name and with parameters of one's own: a binding."""

    namespace: str
    name: str
    version: str
    binding: FullName | None = None


class Trigger(_Entity, frozen=True):
    """A name for events. Rules say which actions one sets off."""

    namespace: str
    name: str
    version: str
    identity: str = ""  # given once: what was tied to a trigger is not tied to its namesake of later


class Rule(_Entity, frozen=True):
    namespace: str
    name: str
    version: str
    trigger: FullName
    action: FullName
    active: bool = True
    tied: str = ""  # the trigger's identity: when it is another's, the rule is inactive


Entity: TypeAlias = Action | Package | Trigger | Rule


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
    pickled: bytes | memoryview | None = None  # the result as the SDK's client wants it, when it asked for that
    session: str | None = None
    # A result too large to be copied: then `response` ends where it belongs, and a brace follows.
    large: bytes | memoryview | None = None


class Accepted(Struct, frozen=True, gc=False):
    """An invocation that was acknowledged before it ran; it is in the queue until its activation is stored."""

    id: str
    namespace: str  # the caller's
    name: str  # of the flow: how the caller reaches the action
    accepted: int  # epoch ms
    payload: bytes | memoryview  # as the sandbox will get it
    pickled: bool = False  # the payload is the SDK's, not JSON
    rerun: bool = False  # may run again after a crash
    started: bool = False
    cause: str = ""  # the activation that it is part of
    session: str = ""
