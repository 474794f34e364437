"""The files with secrets of a node, for `keyway doctor`: those that everybody can read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, SecretStr

from gateway.admin.configuration import options
from gateway.config.file import Config, ConfigError
from gateway.config.identities import read_identities
from gateway.core.identity.identities import Secret
from keyway.clusters.config import load as load_clusters

_ALWAYS = {
    "key_file",
    "key_password_file",
    "password_file",
    "redis_url_file",
    "users_file",
    "identities_file",
}
_HASH = ".sha256"  # of a token, which is too long to be guessed


def secret_files(config: Config, path: Path | None) -> Iterator[tuple[str, Path]]:
    """Each with the option that names it. `path`: of keyway.yaml."""
    if path is not None and _holds_secrets(config):
        yield "keyway.yaml", path
    found = dict(options(config))
    for option, value in found.items():
        place, _, name = option.rpartition(".")
        if not isinstance(value, Path):
            continue
        with_key = name == "cert_file" and found[f"{place}.key_file"] is None
        if name in _ALWAYS or with_key or (name == "clusters_file" and _has_passwords(value)):
            yield option, value
        if name == "identities_file":
            yield from _password_files(option, value)


def readable_by_all(path: Path) -> bool:
    """False also for one that cannot be looked at: whoever reads it says so."""
    try:
        whole = path.resolve(strict=True)
        way = all(parent.stat().st_mode & stat.S_IXOTH for parent in whole.parents)
        return way and bool(whole.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _holds_secrets(config: BaseModel) -> bool:
    return any(_is_secret(option, value) for option, value in options(config))


def _is_secret(option: str, value: object) -> bool:
    if not isinstance(value, SecretStr) or option.endswith(_HASH):
        return False
    return not option.endswith("redis_url") or "@" in value.get_secret_value()


def _has_passwords(clusters_file: Path) -> bool:
    try:
        return _holds_secrets(load_clusters(clusters_file))
    except ConfigError:
        return False


def _password_files(option: str, identities_file: Path) -> Iterator[tuple[str, Path]]:
    try:
        known = read_identities(identities_file).known
    except ConfigError:
        return
    for identity in known.values():
        if identity.kind is Secret.FILE:
            yield f"{option}: {identity.name}.{Secret.FILE.value}", Path(identity.secret)
