"""Feeds, as OpenWhisk's clients deal with them: an action that is told what becomes of a trigger."""

from collections.abc import Mapping
from typing import Any

from aliquot.cli.gateway import GatewayClient, annotations_of
from aliquot.cli.invoke import call, why
from aliquot.sdk.errors import FunctionError


def feed_of(trigger: Mapping[str, Any]) -> str:
    """The feed action's full name; empty when it has none."""
    feed = annotations_of(trigger).get("feed")
    return feed if isinstance(feed, str) else ""


def tell_feed(
    gateway: GatewayClient, feed: str, event: str, trigger: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - whatever the feed says
    """The feed's answer to CREATE, READ, UPDATE or DELETE; one that refuses is an error."""
    payload = {
        **parameters,
        "lifecycleEvent": event,
        "triggerName": f"/{trigger['namespace']}/{trigger['name']}",
        "authKey": gateway.client.server.key,  # with it the feed fires the trigger
    }
    record = call(gateway, feed, payload)
    response = record["response"]
    if not response["success"]:
        raise FunctionError(
            f"the feed {feed} refused {event} of {trigger['name']}: {why(response)}",
            activation_id=record["activationId"],
        )
    return response.get("result")
