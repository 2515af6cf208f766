"""Find the platform: its address and the credentials for it."""

import os
from typing import NamedTuple

from aliquot.sdk import running
from aliquot.sdk.errors import NoServerError, UsageError

_LOCAL = "local.json"
START_ONE = "start a platform on this machine with: aliquot up"


class ServerAddress(NamedTuple):
    """The address of a platform and the credentials for it."""

    url: str  # without a trailing slash
    key: str = ""  # uuid:secret, the key of one namespace
    operator: str = ""  # the token for the operator's requests, or empty
    origin: str = ""  # where it was found, for messages

    def __repr__(self) -> str:
        return f"Server({self.url!r})"  # keeps credentials out of logs


def find_server(
    url: str | None = None, key: str | None = None, data: str | os.PathLike[str] | None = None
) -> ServerAddress:
    """Return the platform that the arguments name, or the environment, or the data folder of a server that runs here.

    Raises `NoServerError` when there is none, and `UsageError` when the arguments are incomplete or ambiguous.
    """
    if url is not None or key is not None:
        return _server_at(url or os.environ.get("ALIQUOT_URL"), key or os.environ.get("ALIQUOT_KEY"), "the arguments")
    if data is None and (os.environ.get("ALIQUOT_URL") or os.environ.get("ALIQUOT_KEY")):
        return _server_at(os.environ.get("ALIQUOT_URL"), os.environ.get("ALIQUOT_KEY"), "ALIQUOT_URL and ALIQUOT_KEY")
    if data is None and os.environ.get("__OW_API_KEY"):  # a function that has its owner's key
        return _server_at(os.environ.get("__OW_API_HOST"), os.environ["__OW_API_KEY"], "the sandbox's environment")
    return read_server(os.path.join(find_folder(data), _LOCAL))


def find_folder(data: str | os.PathLike[str] | None = None) -> str:
    """Return the data folder that is given, or else ALIQUOT_DATA, ~/.aliquot, or that of the only server that runs.

    A server that runs in ~/.aliquot comes before any other. Without one, several others raise a `UsageError`.
    """
    if given := data or os.environ.get("ALIQUOT_DATA"):
        return os.fspath(given)
    default = os.path.join(os.path.expanduser("~"), ".aliquot")
    if _is_served(default):
        return default
    servers = running.list_servers()
    if len(servers) > 1:
        listed = ", ".join(f"{server.data} ({server.url})" for server in servers)
        raise UsageError(
            f"several platforms run on this machine: {listed}; set ALIQUOT_DATA to the folder of one of them, or "
            "ALIQUOT_URL and ALIQUOT_KEY (commands also take --data FOLDER)"
        )
    return servers[0].data if servers else default


def _is_served(folder: str) -> bool:
    """Return whether the server that wrote the folder's `local.json` still runs."""
    import json

    try:
        with open(os.path.join(folder, _LOCAL), encoding="utf-8") as file:
            return running.start_of(int(json.load(file)["pid"])) is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _server_at(url: str | None, key: str | None, origin: str) -> ServerAddress:
    if not url or not key:
        missing, other = ("an address (ALIQUOT_URL)", "a key") if not url else ("a key (ALIQUOT_KEY)", "an address")
        raise UsageError(f"{origin}: {missing} is missing; {other} alone does not lead to a platform")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{origin}: {url!r} is not an address; it takes one such as http://127.0.0.1:3233")
    if ":" not in key:
        raise UsageError(f"{origin}: the key is not of the form uuid:secret, as aliquot namespace create prints it")
    return ServerAddress(url.rstrip("/"), key, os.environ.get("ALIQUOT_OPERATOR", ""), origin)


def read_server(path: str) -> ServerAddress:
    """Read the file that `aliquot up` keeps in its data folder while it runs."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return ServerAddress(found["url"].rstrip("/"), found["key"], found.get("operator", ""), path)
    except FileNotFoundError:
        elsewhere = "for one elsewhere set ALIQUOT_URL and ALIQUOT_KEY"
        raise NoServerError(f"no platform is known: there is no {path}; {START_ONE}; {elsewhere}") from None
    except OSError as error:
        raise NoServerError(
            f"{path} cannot be read: {error.strerror}; was `aliquot up` run by another user?"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoServerError(f"{path} is not what `aliquot up` writes ({error}); {START_ONE}") from error
