"""Limits of the transforms, each with its reason."""

from __future__ import annotations

PATH_SEGMENTS_MAX = 32  # deeper documents exist; paths written by people do not get there
PATH_CHARACTERS_MAX = 1_000  # a whole schema name fits; a pasted document does not
STEPS_MAX = 100  # each step visits each record
PATHS_MAX = 200  # of one step: the fields of a wide table
RULES_MAX = 1_000  # of one route: tried one by one for each record
AVRO_ITEMS_MAX = 1_000_000  # of one array: items of no bytes would otherwise repeat for ever
HMAC_KEY_BYTES_MIN = 16  # a shorter key can be guessed: 128 bits
HMAC_DIGITS_MIN = 16  # 64 bits: two of a million values collide with a chance of 3e-8
HMAC_DIGITS_MAX = 64  # the whole SHA-256
SCHEMAS_MAX = 1_000  # kept per worker; a topic has a few
FRACTION_DIGITS_MAX = 9  # of a second: nanoseconds, the finest unit there is
NUMBER_CHARACTERS_MAX = 400  # of a number that is calculated with; more than a double can say
