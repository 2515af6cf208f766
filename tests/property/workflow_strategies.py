"""Random machines. Their values keep one shape, so that most paths select something."""

from hypothesis import strategies as st

VALUE = {"n": 2, "s": "log-a", "l": [1, 2, 3], "o": {"a": 1}, "b": True}
ERRORS = ["E1", "E2"]

PASS_FIELDS = [
    {},
    {"Result": {**VALUE, "n": 3}},
    {"Result": 7, "ResultPath": "$.r"},
    {"Parameters": {"n.$": "$.n", "s.$": "$.s", "l.$": "$.l", "o.$": "$.o", "b": False}},
    {"InputPath": "$.o", "ResultPath": "$.q"},
    {"InputPath": "$.l[*]", "ResultPath": "$.q.deep"},
    {"Parameters": {"m.$": "States.MathAdd($.n, 1)"}, "ResultPath": "$.o"},
    {"Parameters": {"f.$": "States.Format('{}-{}', $.n, $.s)"}, "ResultPath": "$.f"},
    {"Parameters": {"f.$": "States.ArrayPartition($.l, 2)", "c": [1, {"d.$": "$.b"}]}, "ResultPath": "$.o.p"},
    {"Result": [9, 8], "ResultPath": "$.l"},
    {"ResultPath": None},
    {"OutputPath": "$"},
    {"InputPath": "$.nowhere", "ResultPath": "$.q"},
]
DRAWN_BY_CHANCE = {"Parameters": {"u.$": "States.UUID()", "r.$": "States.MathRandom(1, 99)"}, "ResultPath": "$.o"}
RULES = [
    {"Variable": "$.n", "NumericEquals": 2},
    {"Variable": "$.n", "NumericGreaterThan": 2},
    {"Variable": "$.s", "StringMatches": "log-*"},
    {"Variable": "$.s", "StringLessThan": "a"},
    {"Variable": "$.nowhere", "IsPresent": True},
    {"Not": {"Variable": "$.nowhere", "IsPresent": False}},
    {"And": [{"Variable": "$.b", "BooleanEquals": True}, {"Variable": "$.n", "IsNumeric": True}]},
    {"Or": [{"Variable": "$.s", "IsNull": True}, {"Variable": "$.n", "NumericEqualsPath": "$.n"}]},
]


class Names:
    """Numbers for the names of states, which are unique in a definition."""

    def __init__(self):
        self.count = 0

    def __next__(self):
        self.count += 1
        return f"S{self.count}"


@st.composite
def machines(draw, *, tasks=False, retries=True):
    """Draw a definition. With tasks it calls `f`, waits for times and for callbacks, and depends on chance."""
    made = draw(_machine(Names(), tasks, retries, 0))
    limit = draw(st.sampled_from([None, None, 4, 20])) if tasks else None
    return made if limit is None else {**made, "TimeoutSeconds": limit}


@st.composite
def _machine(draw, names, tasks, retries, depth):
    chain = [next(names) for _ in range(draw(st.integers(1, 3 if depth else 4)))]
    kinds = ["Pass", "Pass", "Choice", "Wait"]
    if depth < 2:
        kinds += ["Parallel", "Map"]
    if tasks:
        kinds += ["Task", "Task", "Callback"]
    states = {}
    for number, name in enumerate(chain):
        last = number == len(chain) - 1
        following = None if last else chain[number + 1]
        kind = draw(
            st.sampled_from([*[kind for kind in kinds if kind != "Choice"], "Succeed", "Fail"] if last else kinds)
        )
        states[name] = draw(_state(kind, following, chain[-1], names, tasks, retries, depth))
    return {"StartAt": chain[0], "States": states}


@st.composite
def _state(draw, kind, following, final, names, tasks, retries, depth):
    way = {"Next": following} if following else {"End": True}
    if kind == "Succeed":
        return {"Type": "Succeed"}
    if kind == "Fail":
        return {"Type": "Fail", "Error": draw(st.sampled_from(ERRORS)), "Cause": "why"}
    if kind == "Pass":
        assigned = {"Assign": {f"v{depth}.$": "$.n", f"w{depth}": [1]}}  # names of outer machines cannot be assigned
        fields = [*PASS_FIELDS, assigned, *([DRAWN_BY_CHANCE] * 3 if tasks else [])]
        return {"Type": "Pass", **draw(st.sampled_from(fields)), **way}
    if kind == "Wait":
        return {"Type": "Wait", "Seconds": draw(st.integers(1, 5)) if tasks else 0, **way}
    if kind == "Choice":
        rules = [
            {**rule, "Next": draw(st.sampled_from([following, final]))}
            for rule in draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=2))
        ]
        return {"Type": "Choice", "Choices": rules, "Default": following}
    return draw(_working_state(kind, way, final, names, tasks, retries, depth))


@st.composite
def _handling(draw, following, final, tasks, retries):
    handling = {}
    if retries and draw(st.booleans()):
        rule = {"ErrorEquals": ["E1"], "IntervalSeconds": 1, "MaxAttempts": draw(st.integers(0, 2))}
        handling["Retry"] = [{**rule, "JitterStrategy": "FULL"} if tasks else rule]
    if following and draw(st.booleans()):
        name = draw(st.sampled_from(["E1", "E2", "States.ALL", "States.TaskFailed"]))
        handling["Catch"] = [
            {"ErrorEquals": [name], "ResultPath": "$.caught", "Next": draw(st.sampled_from([following, final]))}
        ]
    return handling


@st.composite
def _working_state(draw, kind, way, final, names, tasks, retries, depth):
    handling = draw(_handling(way.get("Next"), final, tasks, retries))
    if kind == "Task":
        limit = draw(st.sampled_from([{}, {}, {"TimeoutSeconds": 3}, {"HeartbeatSeconds": 2}]))
        return {"Type": "Task", "Resource": "f", "ResultPath": "$.task", **limit, **handling, **way}
    if kind == "Callback":
        return {"Type": "Task", "Resource": "f.waitForTaskToken", "ResultPath": "$.task", **handling, **way}
    inner = _machine(names, tasks, retries, depth + 1)
    if kind == "Parallel":
        branches = [draw(inner) for _ in range(draw(st.integers(1, 2)))]
        return {"Type": "Parallel", "Branches": branches, "ResultPath": "$.par", **handling, **way}
    limits = (
        {"MaxConcurrency": draw(st.integers(0, 2)), "ToleratedFailureCount": draw(st.integers(0, 1))} if tasks else {}
    )
    return {
        "Type": "Map",
        "ItemsPath": "$.l",
        "ItemSelector": {"n.$": "$$.Map.Item.Value", "s.$": "$.s", "l": [1], "o": {"a": 1}, "b.$": "$.b"},
        "ItemProcessor": draw(inner),
        "MaxConcurrency": 1,
        "ResultPath": "$.mapped",
        **limits,
        **handling,
        **way,
    }


OUTPUTS = [
    "{% $states.input %}",
    {"n": "{% $states.input.n + 1 %}", "l": "{% [$states.input.l, 4] %}", "s": "{% $states.input.s & '!' %}"},
    "{% $states.input.l[0] %}",
    "{% $states.input.nowhere %}",
    {"n": "{% $count($states.input.l) %}", "l": [1], "s": "x"},
    "{% $map($states.input.l, function($x) { $string($x) }) %}",
    {"n": "{% $v %}", "l": "{% $states.input.l %}", "s": "{% $states.context.State.Name %}"},
]
CONDITIONS = ["{% $states.input.n > 2 %}", "{% 'a' in $states.input.l %}", "{% $exists($states.input.s) %}"]


@st.composite
def jsonata_machines(draw):
    """Draw a definition in JSONata, without tasks."""
    names = Names()
    chain = [next(names) for _ in range(draw(st.integers(1, 4)))]
    states = {"First": {"Type": "Pass", "Assign": {"v": "{% $states.input.n * 10 %}"}, "Next": chain[0]}}
    for number, name in enumerate(chain):
        following = chain[number + 1] if number < len(chain) - 1 else "Last"
        kind = draw(st.sampled_from(["Pass", "Choice", "Map", "Parallel"]))
        output = {"Output": draw(st.sampled_from(OUTPUTS))}
        inner = {"StartAt": next(names), "States": {}}
        inner["States"][inner["StartAt"]] = {"Type": "Pass", "Output": "{% [$v, $states.input] %}", "End": True}
        if kind == "Pass":
            states[name] = {"Type": "Pass", **output, "Next": following}
        elif kind == "Choice":
            rule = {
                "Condition": draw(st.sampled_from(CONDITIONS)),
                "Next": "Last",
                "Output": {"n": 1, "l": [5], "s": ""},
            }
            states[name] = {"Type": "Choice", "Choices": [rule], "Default": following}
        elif kind == "Map":
            items = {"Items": "{% [$states.input.n, 2] %}", "MaxConcurrency": 1, "ItemProcessor": inner}
            states[name] = {"Type": "Map", **items, "Output": {"n": 1, "l": "{% $states.result %}"}, "Next": following}
        else:
            states[name] = {"Type": "Parallel", "Branches": [inner], "Arguments": {"a": "{% $v %}"}, "Next": following}
    states["Last"] = {"Type": "Succeed"}
    return {"QueryLanguage": "JSONata", "StartAt": "First", "States": states}
