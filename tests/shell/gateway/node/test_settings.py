"""A client key that openssl made, as the server's settings open it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gateway.config.file import Config, ConfigError
from gateway.listen.server import ServerSettings
from gateway.node.settings import server_settings, upstream_settings


def test_an_encrypted_key_opens_with_its_password_alone(tmp_path: Path) -> None:
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2"]
    command += [
        "-subj",
        "/CN=keyway",
        "-passout",
        "pass:hunter2",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)

    def opened(**password: str) -> ServerSettings:
        tls = {"cert_file": cert, "key_file": key, **password}
        sasl = {"username": "keyway", "password": "secret"}
        chosen = Config.model_validate({"upstream": {"sasl": sasl, "tls": tls}})
        return server_settings(chosen, upstream_settings(chosen))

    assert opened(key_password="hunter2").upstream_ssl is not None
    for wrong in ({}, {"key_password": "swordfish"}):
        with pytest.raises(ConfigError, match=r"upstream\.tls: ") as refused:
            opened(**wrong)
        assert "swordfish" not in str(refused.value)
