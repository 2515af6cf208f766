"""Valid definitions that together use every field of the States Language."""

END = {"Type": "Pass", "End": True}


def machine(**states):
    return {"StartAt": next(iter(states)), "States": states}


TASKS = {
    "Comment": "Tasks",
    "TimeoutSeconds": 100,
    "Version": "1.0",
    **machine(
        A={
            "Type": "Task",
            "Comment": "the first",
            "Resource": "arn:aws:lambda:eu-west-1:123456789012:function:first",
            "InputPath": "$.a",
            "Parameters": {"x.$": "$.b", "y": [1, {"z.$": "States.Format('{}', $.c)"}]},
            "ResultSelector": {"r.$": "$.result"},
            "ResultPath": "$.out",
            "OutputPath": "$.out",
            "TimeoutSeconds": 20,
            "HeartbeatSeconds": 5,
            "Retry": [
                {"ErrorEquals": ["Custom", "States.Timeout"], "IntervalSeconds": 2, "MaxAttempts": 4},
                {
                    "ErrorEquals": ["States.ALL"],
                    "BackoffRate": 1.5,
                    "MaxDelaySeconds": 60,
                    "JitterStrategy": "FULL",
                },
            ],
            "Catch": [
                {"ErrorEquals": ["Custom"], "ResultPath": "$.error", "Next": "B"},
                {"ErrorEquals": ["States.ALL"], "Next": "C"},
            ],
            "Next": "B",
        },
        B={
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
            "Parameters": {"FunctionName": "second", "Payload": {"token.$": "$$.Task.Token"}},
            "TimeoutSecondsPath": "$.t",
            "HeartbeatSecondsPath": "$.h",
            "ResultPath": None,
            "Next": "C",
        },
        C={"Type": "Fail", "Error": "Mine", "Cause": "because"},
    ),
}

BRANCHING = machine(
    Start={
        "Type": "Choice",
        "InputPath": "$",
        "Choices": [
            {"Variable": "$.a", "StringEquals": "x", "Next": "W"},
            {
                "And": [{"Variable": "$.n", "NumericGreaterThanEquals": 3}, {"Variable": "$.t", "IsTimestamp": True}],
                "Next": "W2",
            },
            {"Not": {"Variable": "$.b", "BooleanEqualsPath": "$.c"}, "Next": "W3"},
            {"Or": [{"Variable": "$.s", "StringMatches": "a*"}, {"Variable": "$.q", "IsPresent": False}], "Next": "W4"},
        ],
        "Default": "Done",
    },
    W={"Type": "Wait", "Seconds": 10, "Next": "Done"},
    W2={"Type": "Wait", "SecondsPath": "$.s", "Next": "Done"},
    W3={"Type": "Wait", "Timestamp": "2030-01-01T00:00:00Z", "Next": "Done"},
    W4={"Type": "Wait", "TimestampPath": "$.t", "InputPath": "$.x", "OutputPath": "$.y", "End": True},
    Done={"Type": "Succeed", "InputPath": "$.a", "OutputPath": None},
)  # fmt: skip

NESTED = machine(
    P={
        "Type": "Parallel",
        "Parameters": {"a": 1},
        "Branches": [machine(P1=END), machine(P2={"Type": "Pass", "Result": 3, "Next": "P3"}, P3={"Type": "Succeed"})],
        "ResultSelector": {"x.$": "$[0]"},
        "ResultPath": "$.p",
        "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 0}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "F"}],
        "Next": "M",
    },
    M={
        "Type": "Map",
        "ItemsPath": "$.items",
        "ItemSelector": {"v.$": "$$.Map.Item.Value", "i.$": "$$.Map.Item.Index"},
        "ItemProcessor": {"ProcessorConfig": {"Mode": "INLINE"}, **machine(I={"Type": "Pass", "End": True})},
        "MaxConcurrency": 4,
        "ToleratedFailurePercentage": 10,
        "ResultPath": "$.m",
        "Next": "M2",
    },
    M2={
        "Type": "Map",
        "Iterator": machine(I2={"Type": "Task", "Resource": "arn:aws:lambda:us-east-1:1:function:f", "End": True}),
        "Parameters": {"x.$": "$.a"},
        "MaxConcurrencyPath": "$.n",
        "ToleratedFailureCount": 3,
        "End": True,
    },
    F={"Type": "Fail", "ErrorPath": "$.e", "CausePath": "States.Format('x')"},
)

JSONATA = {
    "QueryLanguage": "JSONata",
    **machine(
        A={
            "Type": "Task",
            "Resource": "arn:aws:lambda:us-east-1:123456789012:function:f",
            "Arguments": {"x": "{% $states.input.a %}"},
            "Assign": {"y": "{% $states.result.z %}"},
            "Output": "{% $states.result %}",
            "TimeoutSeconds": "{% $states.input.t %}",
            "Catch": [{"ErrorEquals": ["States.ALL"], "Output": {"e": "{% $states.errorOutput %}"}, "Next": "D"}],
            "Next": "B",
        },
        B={
            "Type": "Choice",
            "Choices": [{"Condition": "{% $y > 3 %}", "Next": "C", "Assign": {"z": 1}, "Output": "{% $y %}"}],
            "Default": "D",
        },
        C={
            "Type": "Map",
            "Items": "{% $states.input.items %}",
            "ItemSelector": {"v": "{% $states.context.Map.Item.Value %}"},
            "ItemProcessor": machine(I={"Type": "Pass", "Output": {"q": "{% $y & $z %}"}, "End": True}),
            "MaxConcurrency": 2,
            "Next": "W",
        },
        W={"Type": "Wait", "Seconds": "{% $y %}", "Next": "D"},
        D={"Type": "Fail", "Error": "{% $states.input.Error %}", "Cause": "x"},
    ),
}

MIXED = machine(
    A={"Type": "Pass", "Result": {"n": 1}, "Next": "B"},
    B={"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% $states.input.n + 1 %}", "End": True},
)

DEFINITIONS = {"tasks": TASKS, "branching": BRANCHING, "nested": NESTED, "jsonata": JSONATA, "mixed": MIXED}
