"""Parts of results from a hostile function: it can neither flood the server nor send what is not JSON."""

import time

from aliquot.testing.client import to_pairs

CODE = """
import time, aliquot
from aliquot.sdk.sandbox import sandbox
app = aliquot.App("floods")
@app.function
def flood(body, count):
    for _ in range(count):
        sandbox.channel._sock.send(b'{"part":false}\\n' + body.encode())
    time.sleep(1)
    yield "done"
"""


def streamed(client, payload, read_after_s=0.0):
    """Return the events of a call, which are read after a while."""
    headers, query = {"accept": "text/event-stream"}, {"blocking": "true"}
    with client.stream("POST", "actions/flood", params=query, headers=headers, json=payload) as answer:
        time.sleep(read_after_s)
        return answer.read().decode()


def test_parts_that_do_not_wait_or_are_no_json_end_their_sandbox(tenants):
    tenants.attacker.deploy("flood", CODE, main="flood", annotations=to_pairs({"sdk": True}))
    large = '"' + "x" * 60_000 + '"'
    flooded = streamed(tenants.attacker, {"body": large, "count": 10_000}, read_after_s=2.0)
    assert flooded.count("event: part") < 500  # what the sockets hold, and 16
    assert '"success":false' in flooded
    malformed = streamed(tenants.attacker, {"body": '"\\n\\nevent: result', "count": 1})
    assert malformed.count("event: result") == 1
    assert '"success":false' in malformed
    tenants.check_neighbour()
