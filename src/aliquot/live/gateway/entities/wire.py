"""The JSON bodies of requests and responses about entities and activations, as types for decoding and for OpenAPI.

A `…Put` or `…Post` is a request, a `…View` or `…Item` (in a list) a response.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

RuleStatus: TypeAlias = Literal["active", "inactive"]
# The pattern is for the OpenAPI page only. A wrong version is refused in OpenWhisk's own words.
Version: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": r"^(?!0+\.0+\.0+$)\d{1,9}\.\d{1,9}\.\d{1,9}$"})]


class PairPut(Struct):
    """An annotation or parameter."""

    key: Annotated[str, Meta(min_length=1)]
    value: Any = None
    init: bool | None = None  # becomes an environment variable, not an argument


class ExecPut(Struct):
    kind: str | None = None
    code: str | None = None
    main: str | None = None
    image: str | None = None  # for a blackbox
    components: list[str] | None = None  # for a sequence: `/namespace/package/action`


class LimitsPut(Struct):
    timeout: int | None = None  # ms
    memory: int | None = None  # MB
    logs: int | None = None  # MB
    concurrency: int | None = None
    instances: int | None = None  # maximum number of sandboxes


class EntityPut(Struct, kw_only=True):
    """The fields of every entity. Absent fields keep their old value, and unknown ones are ignored."""

    annotations: list[PairPut] | None = None
    version: Version | None = None
    publish: bool | None = None


class ActionPut(EntityPut, rename="camel"):
    """An action. Its annotations are merged with the existing ones."""

    exec: ExecPut | None = None
    parameters: list[PairPut] | None = None
    del_annotations: list[str] | None = None
    limits: LimitsPut | None = None


class BindingPut(Struct):
    """The package to bind, where `_` is the caller's namespace. {} makes a package that is not a binding."""

    namespace: str | None = None
    name: str | None = None


class PackagePut(EntityPut):
    parameters: list[PairPut] | None = None
    binding: BindingPut | None = None


class TriggerPut(EntityPut):
    parameters: list[PairPut] | None = None


class PathPut(Struct):
    """A full name in two parts, such as `{"path": "namespace/package", "name": "action"}`."""

    path: str
    name: str


class RulePut(EntityPut):
    """A rule. Names are full, as in `/namespace/package/action`, and `_` stands for the caller's namespace."""

    trigger: str | PathPut | None = None
    action: str | PathPut | None = None


class StatusPost(Struct):
    status: RuleStatus


class PairView(Struct):
    key: str
    value: Any
    init: bool | UnsetType = UNSET


class ExecView(Struct):
    """An action's code. A sequence has only a kind and components."""

    kind: str
    binary: bool | UnsetType = UNSET
    code: str | UnsetType = UNSET
    main: str | UnsetType = UNSET
    image: str | UnsetType = UNSET
    components: list[str] | UnsetType = UNSET


class LimitsView(Struct):
    timeout: int
    memory: int
    logs: int
    concurrency: int
    instances: int | UnsetType = UNSET


class EntityView(Struct, kw_only=True):
    namespace: str  # `namespace/package` for an action in a package
    name: str
    version: str
    publish: bool
    annotations: list[PairView]
    updated: int  # ms since the epoch


class ActionView(EntityView):
    """An action. The answer to the PUT of a workflow has the `warnings` of its check, if there are some."""

    exec: ExecView
    parameters: list[PairView]
    limits: LimitsView
    warnings: list[str] | UnsetType = UNSET


class ExecItem(Struct):
    binary: bool


class ActionItem(EntityView):
    exec: ExecItem
    limits: LimitsView


class BindingView(Struct):
    """The bound package, or {} if the package is not a binding."""

    namespace: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class PackageActionView(Struct):
    name: str
    version: str
    annotations: list[PairView]


class PackageView(EntityView):
    """A package. Only GET includes `actions` and `feeds`."""

    binding: BindingView
    parameters: list[PairView]
    actions: list[PackageActionView] | UnsetType = UNSET
    feeds: list[PackageActionView] | UnsetType = UNSET


class PackageItem(EntityView):
    binding: bool | BindingView  # false if it is not a binding


class TriggerLimitsView(Struct):
    """The limits of a trigger, always {}."""


class PathView(Struct):
    path: str
    name: str


class TriggerRuleView(Struct):
    action: PathView
    status: RuleStatus


class TriggerView(EntityView):
    parameters: list[PairView]
    limits: TriggerLimitsView
    rules: dict[str, TriggerRuleView]  # by `namespace/rule`


class RuleItem(EntityView):
    trigger: PathView
    action: PathView


class RuleView(RuleItem):
    status: RuleStatus


class ErrorView(Struct):
    error: str
    code: str


class ActivationId(Struct, rename="camel"):
    activation_id: str


class ActionCount(Struct):
    actions: int


class PackageCount(Struct):
    packages: int


class TriggerCount(Struct):
    triggers: int


class RuleCount(Struct):
    rules: int


class ActivationCount(Struct):
    activations: int


class ResponseView(Struct):
    status: str
    success: bool
    size: int
    result: Any


class LogsView(Struct):
    logs: list[str]


class ActivationView(Struct, rename="camel"):
    namespace: str
    name: str
    version: str
    subject: str
    activation_id: str
    publish: bool
    start: int
    logs: list[str]
    annotations: list[PairView]
    response: ResponseView
    end: int | UnsetType = UNSET
    duration: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET


class ActivationItem(Struct, rename="camel"):
    """An activation in a list. With `docs` it is the full record, which has no `statusCode`."""

    namespace: str
    name: str
    version: str
    publish: bool
    annotations: list[PairView]
    activation_id: str
    start: int
    status_code: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    duration: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    logs: list[str] | UnsetType = UNSET
    response: ResponseView | UnsetType = UNSET
