"""Bounds of connections to a REST server. Units are in the names."""

from __future__ import annotations

REST_WAIT_S_MAX = 30.0  # of a connection, for a whole request, or for its answer to be taken
REST_HANDSHAKE_S_MAX = 10  # of TLS
REST_ACCEPT_AGAIN_S = 0.1  # after a connection that could not be accepted
