"""A certificate that its own key has signed, for this machine."""

import shutil
import subprocess

import pytest

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed: no certificate for TLS")


def tls_options(folder):
    """Return the TLS options of `aliquot up`."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert, *subject]
    subprocess.run([OPENSSL, *map(str, made)], check=True, capture_output=True)
    return "--tls-cert", str(cert), "--tls-key", str(key)
