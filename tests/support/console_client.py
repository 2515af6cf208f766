"""A client of the console that sends what a browser sends, or what an attacker would."""

import http.client
import json
from urllib.parse import urlsplit


class ConsoleAnswer:
    def __init__(self, answer):
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read()

    def json(self):
        return json.loads(self.body)


class ConsoleClient:
    """A browser without a page: it keeps the cookie and the session's token."""

    def __init__(self, url):
        self.host = urlsplit(url).netloc
        self.cookie = self.csrf = ""

    def send(self, method, path, body=None, **headers):
        """Send a request as a page of the console does. A header of None is left out."""
        sent = {"Host": self.host, "Origin": f"http://{self.host}", "Sec-Fetch-Site": "same-origin"}
        if self.cookie:
            sent["Cookie"] = self.cookie
        if self.csrf and method != "GET":
            sent["X-Aliquot-CSRF"] = self.csrf
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            data = b"" if body is None else json.dumps(body).encode()
            if method != "GET":
                connection.putheader("Content-Length", str(len(data)))
                connection.putheader("Content-Type", "application/json")
            connection.endheaders(data)
            return ConsoleAnswer(connection.getresponse())
        finally:
            connection.close()

    def log_in(self, **given):
        """Log in with `key` or `code`, and keep the cookie."""
        answer = self.send("POST", "/console/session", given)
        if answer.status == 200:
            self.cookie = answer.headers["set-cookie"].split(";")[0]
            self.csrf = answer.json()["csrf"]
        return answer
