"""Descriptions of the system packages and their actions. The source of each action is a file in `actions/`.

Descriptions, parameters and samples are OpenWhisk's if OpenWhisk has the action.
"""

from typing import Any

from msgspec import Struct


class SystemAction(Struct, frozen=True):
    name: str
    description: str
    parameters: tuple[dict[str, Any], ...] = ()
    sample_input: dict[str, Any] | None = None
    sample_output: dict[str, Any] | None = None
    source: str = ""  # name of the file, if it differs from the action's
    defaults: tuple[tuple[str, Any], ...] = ()  # the action's own parameters
    feed: bool = False


class SystemPackage(Struct, frozen=True):
    name: str
    description: str
    actions: tuple[SystemAction, ...]
    parameters: tuple[dict[str, Any], ...] = ()


def _takes(name: str, description: str = "", *, required: bool = False, kind: str = "") -> dict[str, Any]:
    """Return a parameter's entry in the annotation `parameters`."""
    said = {"type": kind, "description": description}
    return {"name": name, "required": required} | {key: text for key, text in said.items() if text}


_LINES = _takes("lines", "An array of strings", required=True, kind="array")
_START = _takes("startDate", "The time of the first firing, in milliseconds since the epoch or ISO 8601")
_STOP = _takes("stopDate", "The time after which the trigger does not fire any more")
_NAMED = _takes("name", "The name to greet")

UTILS = SystemPackage(
    "utils",
    "Building blocks that format and assemble data",
    (
        SystemAction(
            "cat",
            "Concatenates input into a string",
            (_takes("lines", "An array of strings or numbers", required=True, kind="array"),),
            {"lines": [4, 2, 3]},
            {"lines": [4, 2, 3], "payload": "4\n2\n3"},
        ),
        SystemAction("date", "Current date and time"),
        SystemAction(
            "echo",
            "Returns the input",
            (_takes("payload", "Any JSON entity"),),
            {"payload": "Five fuzzy felines"},
            {"payload": "Five fuzzy felines"},
        ),
        SystemAction(
            "head",
            "Extract prefix of an array",
            (_LINES, _takes("num", "The length of the prefix", kind="integer")),
            {"lines": [4, 2, 3], "num": 2},
            {"lines": [4, 2], "num": 2},
        ),
        SystemAction(
            "hosturl",
            "Returns the URL to activate an action or trigger",
            (
                _takes("web", "True for web actions", kind="boolean"),
                _takes("ext", "Extension for web action, one of .html, .http, .json, .text", kind="string"),
                _takes("trigger", "True to construct path for trigger instead of action.", kind="boolean"),
                _takes("path", "The action name as just <action name> or <package name>/<action name>.", kind="string"),
            ),
            {"web": True, "path": "utils/echo"},
        ),
        SystemAction("namespace", "Returns namespace for the authorization key used to invoke this action"),
        SystemAction(
            "smash",
            "Nests all properties under given property",
            (_takes("$fieldName", "Name of property to nest object under", required=True, kind="string"),),
            {"a": 1, "b": {"c": 2, "d": 3}, "$fieldName": "p"},
            {"p": {"a": 1, "b": {"c": 2, "d": 3}}},
        ),
        SystemAction(
            "sort",
            "Sorts an array",
            (
                _takes("lines", "An array of strings", kind="array"),
                _takes("payload", "A string, instead of lines", kind="string"),
                _takes("separator", "The separator of the lines in the string", kind="string"),
            ),
            {"lines": [4, 2, 3]},
            {"lines": [2, 3, 4], "length": 3},
        ),
        SystemAction(
            "split",
            "Split a string into an array",
            (
                _takes("payload", "A string", required=True),
                _takes("separator", "The characters to use for splitting the string; line ends by default"),
            ),
            {"payload": "one,two,three", "separator": ","},
            {"lines": ["one", "two", "three"], "payload": "one,two,three"},
        ),
    ),
)

SAMPLES = SystemPackage(
    "samples",
    "A suite of simple actions to help you get started",
    (
        SystemAction(
            "greeting",
            "Returns a friendly greeting",
            (_NAMED, _takes("place", "The string to be included in the return value")),
            {"payload": "Cat", "place": "Narrowsburg"},
            {"payload": "Hello, Cat from Narrowsburg!"},
        ),
        SystemAction("hello", "Greets a person by name", (_NAMED,), {"name": "Cat"}, {"greeting": "Hello Cat!"}),
        SystemAction(
            "helloWorld",
            "Demonstrates logging facilities",
            (_takes("payload", "The string to be included in the log record"),),
            {"payload": "Cat"},
            {},
        ),
        SystemAction(
            "wordCount",
            "Count words in a string",
            (_takes("payload", "A string", required=True),),
            {"payload": "Five fuzzy felines"},
            {"count": 3},
        ),
    ),
)

ALARMS = SystemPackage(
    "alarms",
    "Alarms and periodic utility",
    (
        SystemAction(
            "alarm",
            "Fire trigger when alarm occurs",
            (
                _takes("cron", "Five fields as in crontab, or six with seconds first", required=True),
                _takes("timezone", "The time zone of the expression, such as Europe/Berlin; UTC by default"),
                _START,
                _STOP,
                _takes("maxTriggers", "The maximum number of firings", kind="integer"),
            ),
            source="feed",
            feed=True,
        ),
        SystemAction(
            "interval",
            "Fire trigger at specified interval",
            (_takes("minutes", "The minutes between two firings", required=True, kind="integer"), _START, _STOP),
            source="feed",
            defaults=(("isInterval", True),),
            feed=True,
        ),
        SystemAction(
            "once",
            "Fire trigger once when alarm occurs",
            (
                _takes("date", "The time of the firing, in milliseconds since the epoch or ISO 8601", required=True),
                _takes(
                    "deleteAfterFire",
                    "true deletes the trigger after it fired, rules also deletes its rules; false by default",
                ),
            ),
            source="feed",
            defaults=(("fireOnce", True),),
            feed=True,
        ),
    ),
    (_takes("trigger_payload", "The payload of each firing: an object, or a string with JSON of an object"),),
)

PACKAGES = (ALARMS, SAMPLES, UTILS)
