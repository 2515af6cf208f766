"""The bodies of requests and answers, as types: they read what comes, and the OpenAPI page is made from them."""

from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

EntityName: TypeAlias = Annotated[str, Meta(description="letters, digits, _ and, inside, @ . & - and blanks")]


class PairPut(Struct):
    """One annotation or parameter."""

    key: Annotated[str, Meta(min_length=1)]
    value: Any = None
    init: bool | None = None  # goes to the environment, not to the arguments


class ExecPut(Struct):
    kind: str | None = None
    code: str | None = None
    main: str | None = None


class LimitsPut(Struct):
    timeout: int | None = None  # ms
    memory: int | None = None  # MB
    logs: int | None = None  # MB
    concurrency: int | None = None


class ActionPut(Struct, rename="camel"):
    """Absent fields keep their old value. Unknown ones are ignored."""

    exec: ExecPut | None = None
    parameters: list[PairPut] | None = None
    annotations: list[PairPut] | None = None
    del_annotations: list[str] | None = None
    limits: LimitsPut | None = None
    version: str | None = None
    publish: bool | None = None


class Pair(Struct):
    key: str
    value: Any
    init: bool | UnsetType = UNSET


class Exec(Struct):
    kind: str
    binary: bool
    code: str | UnsetType = UNSET
    main: str | UnsetType = UNSET


class Limits(Struct):
    timeout: int
    memory: int
    logs: int
    concurrency: int


class Action(Struct):
    namespace: str
    name: str
    version: str
    publish: bool
    exec: Exec
    annotations: list[Pair]
    parameters: list[Pair]
    limits: Limits
    updated: int


class ExecItem(Struct):
    binary: bool


class ActionItem(Struct):
    namespace: str
    name: str
    version: str
    publish: bool
    exec: ExecItem
    annotations: list[Pair]
    limits: Limits
    updated: int


class Error(Struct):
    error: str
    code: str


class ActivationId(Struct, rename="camel"):
    activation_id: str


class ActionCount(Struct):
    actions: int


class ActivationCount(Struct):
    activations: int


class Response(Struct):
    status: str
    success: bool
    size: int
    result: Any


class Logs(Struct):
    logs: list[str]


class Activation(Struct, rename="camel"):
    namespace: str
    name: str
    version: str
    subject: str
    activation_id: str
    publish: bool
    start: int
    logs: list[str]
    annotations: list[Pair]
    response: Response
    end: int | UnsetType = UNSET
    duration: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET


class ActivationItem(Struct, rename="camel"):
    """In a list; with `docs` it is the record, which has no `statusCode`."""

    namespace: str
    name: str
    version: str
    publish: bool
    annotations: list[Pair]
    activation_id: str
    start: int
    status_code: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    duration: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    logs: list[str] | UnsetType = UNSET
    response: Response | UnsetType = UNSET
