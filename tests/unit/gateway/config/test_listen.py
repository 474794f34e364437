"""The section `listen`: one listener or several; every wrong combination is named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config.file import Config
from keyway.clusters.yaml_file import first_fault

TLS = {"cert_file": "/c.pem"}
SNI = {"bootstrap": "k.example", "broker": "b-{id}.k.example"}


def config(listen: Any) -> Config:
    return Config.model_validate({"listen": listen})


def test_one_listener_as_ever() -> None:
    (only,) = config({"host": "::1", "bootstrap_port": 7}).listen.all()
    assert (only.name, only.host, only.bootstrap_port) == ("clients", "::1", 7)


@pytest.mark.parametrize("short", [True, False])
def test_several(short: bool) -> None:
    two = [{"name": "in"}, {"name": "out", "bootstrap_port": 1, "port_base": 2, "tls": TLS}]
    listen = config(two if short else {"listeners": two, "slots_per_broker": 2}).listen
    assert [listener.name for listener in listen.all()] == ["in", "out"]
    assert listen.slots_per_broker == (1 if short else 2)


def test_server_names_share_a_port_base() -> None:
    """They do not use it."""
    one = {"name": "a", "bootstrap_port": 1, "tls": TLS, "sni": SNI}
    both = config([one, {**one, "name": "b", "bootstrap_port": 2}]).listen.all()
    assert len(both) == 2


FAULTS: list[tuple[Any, str]] = [
    ([], "a list of listeners needs at least one listener"),
    ([{"host": "::1"}], "listeners.0.name is needed"),
    ([{"name": "a"}, {"name": "a"}], "two are named 'a'"),
    ([{"name": "a"}, {"name": "b"}], "have one bootstrap_port, 9192"),
    ([{"name": "a"}, {"name": "b", "bootstrap_port": 1}], "have one port_base, 9200"),
    ({"host": "::1", "listeners": [{"name": "a"}]}, "host: with listeners, each of them"),
    ([{"name": "a", "slots_per_broker": 2}], "slots_per_broker"),
    ({"sni": SNI}, "sni needs tls"),
    ({"sni": SNI, "tls": TLS, "advertised_host": "x"}, "advertised_host: with sni"),
    ({"sni": {**SNI, "broker": "b.k.example"}, "tls": TLS}, "broker needs {id} once"),
    ({"sni": {**SNI, "broker": "b_{id}.k.example"}, "tls": TLS}, "is no DNS name"),
    ({"sni": {**SNI, "bootstrap": "B-7.k.example"}, "tls": TLS}, "also the name of a broker"),
    ({"tls": {**TLS, "client_auth": "required"}}, "required needs a client_ca_file"),
    ({"tls": {**TLS, "client_ca_file": "/ca.pem"}}, "client_ca_file needs client_auth"),
    ({"tls": {**TLS, "version_min": "1.1"}}, "version_min"),
    ({"tls": {}}, "cert_file"),
]


@pytest.mark.parametrize(("listen", "told"), FAULTS)
def test_what_is_wrong_is_named(listen: Any, told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        config(listen)
    assert told in first_fault(refused.value)


def test_a_password_is_not_shown() -> None:
    shown = config({"tls": {**TLS, "key_password": "hunter2"}})
    assert "hunter2" not in repr(shown) + str(shown.model_dump(mode="json"))
