"""Which files of a node hold secrets; who can read them, tests/shell has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.file import Config
from gateway.node.secret_files import secret_files

CLUSTERS = """
clusters:
  - name: c1
    bootstrap_servers: a:1
    sasl: {username: u, %s}
  - {name: c2, bootstrap_servers: "b:1"}
tree: {level: 1, children: [c1, c2]}
"""
HASH = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"


def named(**sections: Any) -> list[str]:
    found = secret_files(Config.model_validate(sections), Path("keyway.yaml"))
    return [option for option, _ in found]


@pytest.mark.parametrize(
    ("sections", "options"),
    [
        ({}, []),
        ({"admin": {"tokens": [{"name": "a", "role": "viewer", "sha256": HASH}]}}, []),
        ({"state": {"redis_url": "redis://:secret@h"}}, ["keyway.yaml"]),
        ({"state": {"redis_url": "redis://h:6379"}}, []),
        ({"state": {"redis_url_file": "f"}}, ["state.redis_url_file"]),
        (
            {
                "upstream": {
                    "sasl": {"username": "u", "password_file": "f"},
                    "tls": {"ca_file": "c"},
                }
            },
            ["upstream.sasl.password_file"],
        ),
        ({"admin": {"tls": {"cert_file": "both"}}}, ["admin.tls.cert_file"]),
        (
            {"listen": {"tls": {"cert_file": "c", "key_file": "k", "key_password_file": "f"}}},
            ["listen.tls.key_file", "listen.tls.key_password_file"],
        ),
    ],
)
def test_files_with_secrets(sections: dict[str, Any], options: list[str]) -> None:
    assert named(**sections) == options


@pytest.mark.parametrize(
    ("password", "counts"), [("password: p", True), ("password_env: P", False)]
)
def test_a_clusters_file_counts_with_a_password_in_it(
    tmp_path: Path, password: str, *, counts: bool
) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(CLUSTERS % password)
    assert named(admin={"clusters_file": str(path)}) == ["admin.clusters_file"] * counts
    assert named(admin={"clusters_file": str(tmp_path / "none")}) == []
