"""The files of users and identities: read whole or not at all, and no secret in an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.identities import read_identities, read_users
from gateway.core.identity.credentials import derived
from gateway.core.identity.identities import Secret
from keyway.clusters.yaml_file import ConfigError

KEY = b"k" * 32
SECRET = "swordfish-7"
HASHED = derived("sha256", SECRET.encode(), b"salt", 4096).text()
SHOP = {"password": SECRET}


def written(directory: Path, content: Any) -> Path:
    path = directory / "file.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_users(tmp_path: Path) -> None:
    path = written(tmp_path, {"key": "x" * 16, "users": {"anna": {"SCRAM-SHA-256": HASHED}}})
    users = read_users(path, KEY, passwords=False)
    assert users.key == b"x" * 16
    credential, known = users.credential("anna", "SCRAM-SHA-256")
    assert known
    assert credential.fits(SECRET.encode())
    assert SECRET not in repr(users)


def test_plain_passwords_only_where_they_are_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, {"users": {"anna": {"password": SECRET}}})
    with pytest.raises(ConfigError, match="plain_passwords") as refused:
        read_users(path, KEY, passwords=False)
    assert SECRET not in str(refused.value)
    users = read_users(path, KEY, passwords=True)
    assert users.credential("anna", "SCRAM-SHA-512")[0].fits(SECRET.encode())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "users: is missing"),
        ("users:\n", "users: is missing"),
        ("users: {anna: [", "not valid YAML"),
        ({"users": {"anna": {}}}, "is needed"),
        ({"users": {"anna": {"SCRAM-SHA-256": HASHED, "password": SECRET}}}, "is needed"),
        ({"users": {"anna": {"SCRAM-SHA-1": HASHED}}}, "unknown field"),
        ({"users": {"anna": {"SCRAM-SHA-512": HASHED}}}, "keys of 64 bytes"),
        ({"users": {"": {"password": SECRET}}}, "empty"),
        ({"key": "short", "users": {}}, "key"),
        ({"user": {}, "users": {}}, "unknown field"),
    ],
)
def test_users_that_are_none(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_users(written(tmp_path, content), KEY, passwords=True)
    assert SECRET not in str(refused.value)
    assert HASHED not in str(refused.value)


def test_identities(tmp_path: Path) -> None:
    content = {
        "rules": [
            {"principal": "mallory", "refuse": True},
            {"pattern": "(.*)@SHOP", "identity": "$1", "case": "lower"},
        ],
        "identities": {"anna": {**SHOP, "mechanism": "PLAIN"}, "bert": {"password_env": "B"}},
    }
    identities = read_identities(written(tmp_path, content))
    anna = identities.of("Anna@SHOP")
    assert anna is not None
    assert (anna.username, anna.mechanism, anna.kind) == ("anna", "PLAIN", Secret.HERE)
    bert = identities.of("BERT@SHOP")
    assert bert is not None
    assert (bert.kind, bert.secret, bert.mechanism) == (Secret.ENVIRONMENT, "B", "SCRAM-SHA-512")
    assert identities.of("mallory") is None
    assert identities.of("carl@SHOP") is None, "a rule, and no such identity"
    assert SECRET not in repr(identities)


@pytest.mark.parametrize(
    ("rules", "entries", "reason"),
    [
        ([], {"shop": SHOP}, "rules"),
        ([{"principal": "a", "identity": "shop"}], {}, "identities"),
        ([{"principal": "a", "identity": "other"}], {"shop": SHOP}, "no identity 'other'"),
        ([{"principal": "a"}], {"shop": SHOP}, "either identity or refuse"),
        ([{"principal": "a", "identity": "shop", "refuse": True}], {"shop": SHOP}, "either"),
        ([{"identity": "shop"}], {"shop": SHOP}, "either principal or pattern"),
        ([{"principal": "a", "pattern": "b", "identity": "shop"}], {"shop": SHOP}, "either"),
        ([{"pattern": "(", "identity": "shop"}], {"shop": SHOP}, "pattern"),
        ([{"pattern": "(a)", "identity": "$2"}], {"shop": SHOP}, "no group 2"),
        ([{"principal": "a", "identity": "shop", "case": "lower"}], {"shop": SHOP}, "case"),
        ([{"principal": "a", "identity": "shop"}], {"shop": {}}, "one of password"),
        (
            [{"principal": "a", "identity": "shop"}],
            {"shop": {**SHOP, "password_env": "X"}},
            "one of password",
        ),
        (
            [{"principal": "a", "identity": "shop"}],
            {"shop": {**SHOP, "mechanism": "GSSAPI"}},
            "mechanism",
        ),
    ],
)
def test_identities_that_are_none(tmp_path: Path, rules: Any, entries: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_identities(written(tmp_path, {"rules": rules, "identities": entries}))
    assert SECRET not in str(refused.value)
