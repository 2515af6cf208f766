"""Web actions that tests deploy and ask, and how their answers are read."""

RETURN = "def main(args):\n    return args['result']"
ECHO = "def main(args):\n    return {'args': args}"


def annotations(**named):
    return [{"key": key.replace("_", "-"), "value": value} for key, value in named.items()]


def args_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["args"]


def error_of(answer):
    body = answer.json()
    assert body.pop("code") == answer.headers["x-request-id"]
    return answer.status_code, body["error"]
