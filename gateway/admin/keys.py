"""Keys of records as REST shows them: a hash for everybody, the key itself for those who may see
keys.
"""

from __future__ import annotations

import base64
from typing import TypedDict

from dispatcher.core.model import Key
from dispatcher.core.routing.hashes import key_hash32


class ShownKey(TypedDict, total=False):
    """The fields of KeyNames."""

    key_hash: str | None
    key: str | None
    key_base64: str | None


def hash_text(key: Key) -> str | None:
    return None if key is None else f"{key_hash32(key):08x}"


def shown_key(key: Key, *, keys: bool) -> ShownKey:
    """`keys`: the caller may see keys."""
    shown = ShownKey(key_hash=hash_text(key))
    if keys and key is not None:
        shown["key"] = _text(key)
        shown["key_base64"] = base64.b64encode(key).decode()
    return shown


def _text(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
