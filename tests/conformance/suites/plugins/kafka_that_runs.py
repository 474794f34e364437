"""A plugin for aiokafka's tests: they meet a Kafka that runs already, where they would start one in
a container. Runs in their process, `-p kafka_that_runs`, and knows nothing of this repository.

AIOKAFKA_KAFKA is its address, host:port.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def _given(name: str) -> object | None:
    """The value of a fixture that is in the tests' own conftest.py, and is not theirs here."""
    if name == "kafka_server":
        host, _, port = os.environ["AIOKAFKA_KAFKA"].rpartition(":")
        closed = {"ssl_port": 1, "sasl_plain_port": 1, "sasl_ssl_port": 1}
        return SimpleNamespace(
            host=host, port=int(port), hosts=[f"{host}:{port}"], container=None, **closed
        )
    if name == "ssl_folder":
        return Path()
    if name in ("docker", "acl_manager", "kerberos_utils", "kafka_config"):
        return SimpleNamespace()
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> object | None:
    value = _given(fixturedef.argname)
    if value is not None:
        fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value
