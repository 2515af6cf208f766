"""The operator's settings for pip, divided: what an installation may see, and what only the index proxy needs.

An installation runs code of packages, which must not learn the operator's credentials. So it sees neither pip's
configuration files nor addresses with passwords, and reaches every index through the proxy (`index_proxy.py`).
"""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

DEFAULT_INDEX = "https://pypi.org/simple"
DEFAULT_TIMEOUT_S = 15.0
_EXTRA_TIMEOUT_S = 10  # that an installation waits longer for the proxy than the proxy for the index
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
_INHERITED_PREFIXES = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "NO_PROXY", *_PROXY_VARIABLES)
# Settings of pip that say what is installed and how, and contain no secrets.
_HARMLESS = (
    "PIP_CERT", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "PIP_IGNORE_REQUIRES_PYTHON", "PIP_NO_BINARY",
    "PIP_NO_BUILD_ISOLATION", "PIP_NO_COMPILE", "PIP_NO_DEPS", "PIP_NO_INDEX", "PIP_ONLY_BINARY", "PIP_PREFER_BINARY",
    "PIP_PRE", "PIP_REQUIRE_HASHES", "PIP_RETRIES", "PIP_UPGRADE_STRATEGY", "PIP_USE_DEPRECATED", "PIP_USE_FEATURE",
    "PIP_USE_PEP517",
)  # fmt: skip


class IndexSettings(Struct, frozen=True):
    """The settings of the index proxy. They contain credentials."""

    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()  # pages with links to files
    cert: str = ""
    client_cert: str = ""
    proxy: str = ""
    trusted: tuple[str, ...] = ()  # hosts whose certificates are not verified
    timeout_s: float = DEFAULT_TIMEOUT_S


class InstallerSettings(Struct, frozen=True):
    """The settings of one installation. `env` and `visible` contain no credentials."""

    env: dict[str, str]
    visible: tuple[str, ...]  # paths that `env` names
    indexes: IndexSettings
    proxy_env: dict[str, str]  # variables of the index proxy, which may contain credentials

    @property
    def needs_proxy(self) -> bool:
        return bool(self.indexes.indexes or self.indexes.links)

    def through(self, url: str) -> dict[str, str]:
        """Return the variables of an installation that reaches the indexes through the proxy at this address."""
        names = [f"{url}/index/{number}" for number in range(len(self.indexes.indexes))]
        links = [f"{url}/links/{number}/" for number in range(len(self.indexes.links))]
        env = dict(self.env)
        if names:
            env["PIP_INDEX_URL"] = names[0]
            env["PIP_EXTRA_INDEX_URL"] = " ".join([*names[1:], *env.get("PIP_EXTRA_INDEX_URL", "").split()])
        env["PIP_FIND_LINKS"] = " ".join([*links, *env.get("PIP_FIND_LINKS", "").split()])
        return {key: value for key, value in env.items() if value}


async def read_settings() -> InstallerSettings:
    """Read the operator's settings: pip's configuration and the server's environment, which wins."""
    found = {key.upper(): value for key, value in os.environ.items() if key.upper().startswith(_INHERITED_PREFIXES)}
    if has_pip():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pip", "config", "list", stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        found = pip_variables(said.decode(errors="replace")) | found
    return divide_settings(found)


def divide_settings(found: Mapping[str, str]) -> InstallerSettings:
    """Divide settings into those that an installation may see and those of the index proxy."""
    indexes = [found.get("PIP_INDEX_URL", DEFAULT_INDEX), *found.get("PIP_EXTRA_INDEX_URL", "").split()]
    links = found.get("PIP_FIND_LINKS", "").split()
    if found.get("PIP_NO_INDEX", "").lower() in ("1", "true", "yes", "on"):
        indexes = []
    timeout_s = _number(found.get("PIP_DEFAULT_TIMEOUT") or found.get("PIP_TIMEOUT"), DEFAULT_TIMEOUT_S)
    local = [url for url in indexes if not _is_remote(url)]
    remote = tuple(url for url in indexes if _is_remote(url))
    env = {key: found[key] for key in _HARMLESS if key in found and not _has_secret(found[key])}
    env |= {key: found[key] for key in _CERTIFICATE_VARIABLES if key in found}
    for key in _PROXY_VARIABLES:  # for requirements that are addresses themselves
        if key in found and not _has_secret(found[key]):
            env[key] = found[key]
    env["NO_PROXY"] = ",".join(filter(None, [found.get("NO_PROXY", ""), "127.0.0.1"]))
    if local and not remote:
        env["PIP_INDEX_URL"], *local = local
    env["PIP_EXTRA_INDEX_URL"] = " ".join(local)
    env["PIP_FIND_LINKS"] = " ".join(link for link in links if not _is_remote(link))
    env = {key: value for key, value in env.items() if value}
    visible = paths_in(env)
    env |= {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DEFAULT_TIMEOUT": f"{timeout_s + _EXTRA_TIMEOUT_S:g}",
    }
    proxy_env = {key: found[key] for key in (*_PROXY_VARIABLES, *_CERTIFICATE_VARIABLES, "NO_PROXY") if key in found}
    return InstallerSettings(
        env,
        visible,
        IndexSettings(
            remote,
            tuple(filter(_is_remote, links)),
            cert=found.get("PIP_CERT", "") or found.get("REQUESTS_CA_BUNDLE", ""),
            client_cert=found.get("PIP_CLIENT_CERT", ""),
            proxy=found.get("PIP_PROXY", ""),
            trusted=tuple(host.partition(":")[0] for host in found.get("PIP_TRUSTED_HOST", "").split()),
            timeout_s=timeout_s,
        ),
        proxy_env,
    )


def _is_remote(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


def _has_secret(text: str) -> bool:
    return any("@" in urlsplit(word).netloc for word in text.split())


def _number(text: str | None, otherwise: float) -> float:
    try:
        return float(text) if text else otherwise
    except ValueError:
        return otherwise


def pip_variables(listed: str) -> dict[str, str]:
    """Convert lines such as `global.extra-index-url='…'` to PIP_EXTRA_INDEX_URL. Section `install` wins."""
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for line in listed.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section + "."):
                # A list is written on several lines, which `pip config` shows as \n.
                text = value.strip("'\"").replace("\\n", " ").strip()
                found["PIP_" + key.partition(".")[2].upper().replace("-", "_")] = text
    return found


def paths_in(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories and files on this machine that the installer's settings name."""
    words = [word for key, value in env.items() if key != "PATH" for word in value.split()]
    # An index in a file refers to files in the same directory.
    paths = [str(Path(urlsplit(word).path).parent) if word.startswith("file:") else word for word in words]
    return tuple(sorted({path for path in paths if path.startswith("/") and path != "/" and Path(path).exists()}))


def configuration_files() -> tuple[str, ...]:
    """Return the files with pip's settings that lie in directories which sandboxes may read."""
    names = {"/etc/pip.conf", "/etc/xdg/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")}
    names |= {str(Path(prefix, "pip.conf")) for prefix in (sys.prefix, sys.base_prefix)}
    found = {each for name in names if name and Path(name).is_file() for each in (name, os.path.realpath(name))}
    return tuple(sorted(found))


def has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None
