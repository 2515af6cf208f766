"""Inputs and outputs of workflows that JSON cannot hold: containers of objects (`runtime.objects`)."""

from typing import Any, NamedTuple

from aliquot.sdk.errors import UsageError
from aliquot.sdk.portable import dump_whole, load
from aliquot.sdk.wire import JSON, PICKLE, to_json


class EncodedInput(NamedTuple):
    """The body of a request with an input, and its content type."""

    body: bytes
    content_type: str

    @property
    def has_objects(self) -> bool:
        return self.content_type == PICKLE


def encode_input(value: dict[str, Any], app: str) -> EncodedInput:
    """Return an input as JSON, or as a container if JSON cannot hold it or it is too large to be looked into."""
    from aliquot.runtime import objects

    try:
        body = to_json(value)
        if len(body) <= objects.MAX_JSON_BYTES:
            return EncodedInput(body, JSON)
    except (TypeError, ValueError):
        pass  # a part of it is no JSON
    plain, found = objects.take_out(value)
    packed = [objects.PackedObject(path, dump_whole(one, app)) for path, one in found]
    return EncodedInput(objects.pack(to_json(plain), packed), PICKLE)


def load_output(container: bytes, app: str) -> Any:  # noqa: ANN401 - the output
    """Return the output of an execution from its container. Like every unpickling this may run code."""
    import json

    from aliquot.runtime import objects

    try:
        text, packed = objects.unpack(container)
        root = [json.loads(bytes(text))]
        for one in packed:
            objects.place(root, one.path, load(bytes(one.body), app))
    except ValueError as error:
        raise UsageError(
            f"the platform has sent an output that this version of the SDK cannot read: {error}"
        ) from error
    return root[0]
