"""keyway.yaml's sections as the settings of the parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.file import Config, ConfigError
from gateway.node.redis_state import url_of
from gateway.node.settings import server_settings, upstream_settings


def config(**sections: Any) -> Config:
    return Config.model_validate(sections)


def test_the_upstream_side() -> None:
    upstream = {
        "bootstrap_servers": "a:1, b:2,",
        "sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password": "hunter2"},
        "tls": {"verify_hostname": False},
        "request_timeout_ms": 7,
    }
    settings = upstream_settings(config(upstream=upstream))
    assert [str(address) for address in settings.bootstrap()] == ["a:1", "b:2"]
    assert settings.request_timeout_ms == 7
    assert settings.sasl is not None
    assert (settings.sasl.mechanism, settings.sasl.password) == ("SCRAM-SHA-512", "hunter2")
    assert settings.tls is not None
    assert not settings.tls.verify_hostname
    assert "hunter2" not in repr(settings)


def test_secrets_in_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("hunter2\n")
    monkeypatch.setenv("KAFKA_PASSWORD", "sesame")
    upstream: dict[str, Any] = {"sasl": {"username": "u", "password_file": path}}
    upstream["tls"] = {"cert_file": "c", "key_password_file": path}
    settings = upstream_settings(config(upstream=upstream))
    assert settings.sasl is not None
    assert settings.tls is not None
    assert (settings.sasl.password, settings.tls.key_password) == ("hunter2", "hunter2")
    upstream = {"sasl": {"username": "u", "password_env": "KAFKA_PASSWORD"}}
    of_variable = upstream_settings(config(upstream=upstream)).sasl
    assert of_variable is not None
    assert of_variable.password == "sesame"
    state = config(state={"redis_url_file": path}).state
    assert (state.embedded, url_of(state)) == (False, "hunter2")
    for content, said in (("\n", "is empty"), (None, "cannot be read")):
        path.unlink()
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigError, match=rf"^upstream\.sasl: .*{said}"):
            upstream_settings(config(upstream={"sasl": {"username": "u", "password_file": path}}))
        with pytest.raises(ConfigError, match=rf"^state\.redis_url_file: .*{said}"):
            url_of(state)


@pytest.mark.parametrize("servers", ["", " , ", "kafka", "kafka:", ":9092", "kafka:0", "k:99999"])
def test_bootstrap_servers_that_are_none(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"upstream\.bootstrap_servers: "):
        upstream_settings(config(upstream={"bootstrap_servers": servers}))


def test_the_client_side() -> None:
    listen = {"host": "0.0.0.0", "advertised_host": "keyway", "bootstrap_port": 1, "port_base": 2}
    chosen = config(listen=listen, upstream={"bootstrap_servers": "a:1,[::1]:2"})
    settings = server_settings(chosen, upstream_settings(chosen))
    assert [tuple(address) for address in settings.bootstrap_servers] == [("a", 1), ("::1", 2)]
    (listener,) = settings.listeners
    assert (listener.host, listener.advertised_host) == ("0.0.0.0", "keyway")
    assert (listener.bootstrap_port, listener.port_base) == (1, 2)
    assert settings.upstream_ssl is None


def test_tls_files_that_cannot_be_read(tmp_path: Path) -> None:
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("no certificate")
    for tls in ({"ca_file": tmp_path / "none"}, {"ca_file": no_pem}, {"cert_file": no_pem}):
        sasl = {"username": "keyway", "password": "secret"}
        chosen = config(upstream={"sasl": sasl, "tls": tls})
        with pytest.raises(ConfigError, match=r"upstream\.tls: "):
            server_settings(chosen, upstream_settings(chosen))
