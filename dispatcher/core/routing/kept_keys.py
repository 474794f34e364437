"""Keys as a window keeps them: of a long one its ends and a digest, so that records wait for little
memory whatever keys they have. Kafka takes keys of 1 MB, thousands of them in some compressed KB.

No key that is kept whole is as long as a shortened one, so the two are never mistaken for each
other. Key filters say the same of both: they look at the ends only (glob.py).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from dispatcher.core.limits import KEY_BYTES_MAX
from dispatcher.core.model import Key

_HEAD: Final = 512  # what globs of 256 bytes look at: those before a star, and the search behind it
_TAIL: Final = 256
_BETWEEN: Final = b"..."


def kept(key: Key) -> Key:
    return None if key is None else kept_bytes(key)


def kept_bytes(key: bytes) -> bytes:
    """Of a key as the record has it: what is shortened would be shortened again."""
    return key if len(key) <= KEY_BYTES_MAX else shortened(key)


def shortened(key: bytes) -> bytes:
    """A key of more than KEY_BYTES_MAX bytes, as one byte more than those. Readable if it is."""
    digest = blake2b(key, digest_size=32).hexdigest().encode()
    return b"".join([key[:_HEAD], _BETWEEN, digest, _BETWEEN, key[-_TAIL:]])


def is_shortened(kept_key: bytes) -> bool:
    return len(kept_key) > KEY_BYTES_MAX
