"""Resources of Tasks: an action or workflow by name, and AWS's names for the same."""

import re
from functools import lru_cache

from aliquot.workflow.language.records import Resource

CALLBACK = ".waitForTaskToken"
INVOKE = "arn:aws:states:::lambda:invoke"
LAMBDA = re.compile(r"arn:[\w-]+:lambda:[\w-]*:\d*:function:([\w-]+)(?::[\w$-]+)?")
NAME = re.compile(r"/?[\w@.-][\w@. -]*(/[\w@.-][\w@. -]*){0,2}")
ACCEPTED = (
    "the name of an action or workflow (name, package/name or /namespace/package/name), the ARN of a Lambda function "
    f"or {INVOKE}; {CALLBACK} may follow"
)


def function_name(text: str) -> str | None:
    """Return the name of the function that a name or an ARN stands for, or None."""
    if found := LAMBDA.fullmatch(text):
        return found[1]
    return text if NAME.fullmatch(text) else None


@lru_cache(maxsize=1024)  # a task asks for the resources of all tasks that may follow it
def read_resource(text: str) -> Resource | None:
    """Return the resource that a text stands for, or None."""
    callback = text.endswith(CALLBACK)
    plain = text.removesuffix(CALLBACK)
    if plain == INVOKE:
        return Resource("", callback, wrapped=True)
    name = function_name(plain)
    return None if name is None else Resource(name, callback)
