"""The table of fields: which field may stand in which type of state, and in which query language."""

from typing import NamedTuple

from aliquot.workflow.language.records import CHOICE, FAIL, MAP, PARALLEL, PASS, SUCCEED, TASK, WAIT
from aliquot.workflow.query.languages import JSONATA, JSONPATH, LANGUAGES, PYTHON

PATHS = (JSONPATH,)
EXPRESSIONS = (JSONATA, PYTHON)


class Field(NamedTuple):
    """A field: the types of state that have it, and the query languages in which they do.

    `python_kinds` are more types that have it in Python, whose expressions fail with names that a rule can catch.
    """

    kinds: tuple[str, ...]
    languages: tuple[str, ...] = LANGUAGES
    python_kinds: tuple[str, ...] = ()

    def kinds_in(self, language: str) -> tuple[str, ...]:
        return self.kinds + self.python_kinds if language == PYTHON else self.kinds


ALL_KINDS = (TASK, PASS, WAIT, CHOICE, SUCCEED, FAIL, PARALLEL, MAP)
WORKING = (TASK, PARALLEL, MAP)
LEAVING = (*WORKING, PASS, WAIT)

STATE_FIELDS: dict[str, Field] = {
    "Type": Field(ALL_KINDS),
    "Comment": Field(ALL_KINDS),
    "QueryLanguage": Field(ALL_KINDS),
    "Next": Field(LEAVING),
    "End": Field(LEAVING),
    "Assign": Field((*LEAVING, CHOICE)),
    "Output": Field((*LEAVING, CHOICE, SUCCEED), EXPRESSIONS),
    "InputPath": Field((*LEAVING, CHOICE, SUCCEED), PATHS),
    "OutputPath": Field((*LEAVING, CHOICE, SUCCEED), PATHS),
    "ResultPath": Field((*WORKING, PASS), PATHS),
    "Parameters": Field((*WORKING, PASS), PATHS),
    "ResultSelector": Field(WORKING, PATHS),
    "Arguments": Field((TASK, PARALLEL), EXPRESSIONS),
    "Retry": Field(WORKING),
    "Catch": Field(WORKING, python_kinds=(PASS, WAIT, CHOICE)),
    "Resource": Field((TASK,)),
    "TimeoutSeconds": Field((TASK,)),
    "TimeoutSecondsPath": Field((TASK,), PATHS),
    "HeartbeatSeconds": Field((TASK,)),
    "HeartbeatSecondsPath": Field((TASK,), PATHS),
    "Result": Field((PASS,), PATHS),
    "Seconds": Field((WAIT,)),
    "SecondsPath": Field((WAIT,), PATHS),
    "Timestamp": Field((WAIT,)),
    "TimestampPath": Field((WAIT,), PATHS),
    "Choices": Field((CHOICE,)),
    "Default": Field((CHOICE,)),
    "Error": Field((FAIL,)),
    "ErrorPath": Field((FAIL,), PATHS),
    "Cause": Field((FAIL,)),
    "CausePath": Field((FAIL,), PATHS),
    "Branches": Field((PARALLEL,)),
    "ItemProcessor": Field((MAP,)),
    "Iterator": Field((MAP,)),  # the former name of ItemProcessor
    "ItemsPath": Field((MAP,), PATHS),
    "Items": Field((MAP,), EXPRESSIONS),
    "ItemSelector": Field((MAP,)),
    "ItemBatcher": Field((MAP,)),
    "MaxConcurrency": Field((MAP,)),
    "MaxConcurrencyPath": Field((MAP,), PATHS),
    "ToleratedFailureCount": Field((MAP,)),
    "ToleratedFailureCountPath": Field((MAP,), PATHS),
    "ToleratedFailurePercentage": Field((MAP,)),
    "ToleratedFailurePercentagePath": Field((MAP,), PATHS),
    "Label": Field((MAP,)),
}

REFUSED_FIELDS: dict[str, str] = {
    "ItemReader": "items come from the state's input or from Items, not from a bucket",
    "ResultWriter": "results are the output of the state, and are not written to a bucket",
    "Credentials": "Tasks run with the rights of the workflow's namespace",
}

MACHINE_FIELDS = ("Comment", "QueryLanguage", "StartAt", "States")
ROOT_FIELDS = (*MACHINE_FIELDS, "TimeoutSeconds", "Version")
PROCESSOR_FIELDS = (*MACHINE_FIELDS, "ProcessorConfig")

EXCLUSIVE: dict[str, tuple[tuple[str, ...], ...]] = {
    TASK: (("TimeoutSeconds", "TimeoutSecondsPath"), ("HeartbeatSeconds", "HeartbeatSecondsPath")),
    WAIT: (("Seconds", "SecondsPath", "Timestamp", "TimestampPath"),),
    FAIL: (("Error", "ErrorPath"), ("Cause", "CausePath")),
    MAP: (
        ("ItemProcessor", "Iterator"),
        ("ItemSelector", "Parameters"),
        ("MaxConcurrency", "MaxConcurrencyPath"),
        ("ToleratedFailureCount", "ToleratedFailureCountPath"),
        ("ToleratedFailurePercentage", "ToleratedFailurePercentagePath"),
    ),
}
REQUIRED: dict[str, tuple[tuple[str, ...], ...]] = {
    TASK: (("Resource",),),
    CHOICE: (("Choices",),),
    WAIT: (("Seconds", "SecondsPath", "Timestamp", "TimestampPath"),),
    PARALLEL: (("Branches",),),
    MAP: (("ItemProcessor", "Iterator"),),
}
