"""`keyway listener list`: its columns and its forms."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.rig.rest_stand_in import keyway, rows, stand_in

PLAIN: dict[str, Any] = {
    "listener": "inside",
    "bootstrap": "127.0.0.1:9192",
    "connections": 7,
    "tls": False,
    "expires_ms": None,
    "handshakes": 0,
    "handshakes_failed": 0,
    "authenticated_by": "upstream",
    "mechanisms": [],
    "logins": [],
    "sessions_ended": {},
    "problems": [],
}
OWN = PLAIN | {
    "listener": "partners",
    "tls": True,
    "expires_ms": 1_790_000_000_000,
    "handshakes": 9,
    "handshakes_failed": 2,
    "authenticated_by": "gateway",
    "mechanisms": ["PLAIN", "SCRAM-SHA-512"],
    "logins": [
        {"mechanism": "PLAIN", "outcome": "accepted", "count": 3},
        {"mechanism": "PLAIN", "outcome": "wrong_credentials", "count": 5},
        {"mechanism": "SCRAM-SHA-512", "outcome": "accepted", "count": 4},
    ],
    "sessions_ended": {"revoked": 1},
}


def test_listeners() -> None:
    answer = {"listeners": [PLAIN, OWN]}
    with stand_in({"/v1/listeners": answer}) as rest:
        code, out, err = keyway("listener", "list", "--admin", rest.address)
        assert (code, err) == (0, "")
        heads, plain, own = rows(out)
        assert heads[0] == "LISTENER"
        address = "127.0.0.1:9192"
        assert plain == ["inside", address, "7", "-", "0", "0", "upstream", "-", "0", "-", "-", "-"]
        assert own[:4] == ["partners", address, "7", "2026-09-21T14:13:20Z"]
        assert own[4:] == [
            *("9", "2", "gateway", "PLAIN,SCRAM-SHA-512", "7"),
            *("wrong_credentials:5", "revoked:1", "-"),
        ]
        for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            code, out, _ = keyway("listener", "list", "--admin", rest.address, "-o", form)
            assert (code, read(out)) == (0, answer)
