"""Waits that tests of a whole server share."""

import httpx

from aliquot.testing.waiting import wait_until


def wait_for_record(client, activation_id):
    """Wait until the activation has its record, and return it."""
    answer = wait_until(
        lambda: client.get(f"activations/{activation_id}"),
        lambda answer: answer.status_code != httpx.codes.NOT_FOUND,
        what=f"the record of {activation_id}",
    )
    assert answer.status_code == httpx.codes.OK, answer.text
    return answer.json()


def wait_until_busy(server, *functions):
    """Wait until a sandbox of each of these functions has a run, and the store knows that the run has begun."""
    wait_until(
        lambda: [(one["function"], one["state"]) for one in server.operate("GET", "status")["sandboxes"]],
        lambda sandboxes: {(function, "busy") for function in functions} <= set(sandboxes),
        what=f"runs of {', '.join(functions)}",
    )
    wait_until_written(server)


def wait_until_written(server):
    """Wait until no write waits for the disk."""
    wait_until(
        server.metrics,
        lambda page: "aliquot_store_backlog 0" in page,
        what="the store to have written everything",
    )


def wait_until_idle(server):
    """Wait until the server has no calls."""
    wait_until(lambda: server.operate("GET", "status")["calls"], lambda calls: calls == 0, what="all calls to end")
