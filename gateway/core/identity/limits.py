"""Bounds of logins. Units are in the names."""

from __future__ import annotations

# A message of PLAIN or SCRAM: a name, a password or nonces. A token of OAUTHBEARER may be longer:
# SASL_TOKEN_BYTES_MAX.
CREDENTIAL_MESSAGE_BYTES_MAX = 4 * 1024
BEARER_TOKEN_BYTES_MAX = 64 * 1024  # tokens with hundreds of groups in them are some 20 KB
BEARER_PAIRS_MAX = 100  # of a message: host, port, the token, and extensions (KIP-342)
PRINCIPAL_CHARS_MAX = 4 * 1024  # each pattern of a rule is matched with it
RULES_MAX = 1_000  # each login is matched with all of them
USERS_MAX = 10_000  # a file of this many users is read in seconds, beside the event loop
IDENTITIES_MAX = 10_000

# Of SCRAM. RFC 7677 and Kafka ask for 4,096 at least; a million take 0.5 s of a core for PLAIN.
ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 1_000_000
SALT_BYTES = 16  # of a new credential
