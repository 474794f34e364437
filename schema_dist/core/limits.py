"""Bounds of schema distribution, each with its reason."""

from __future__ import annotations

REMOVALS_SHARE_MAX = 0.1  # of all that was written: a large registry may lose a subject of many
# Than versions may go at once, as many fewer may be replaced by others, and settings taken back.
FEWER = 10
ABSENT_LOOKS_MIN = 4  # answers in a row; one alone may be a proxy's, or of a registry that starts
ABSENT_MS_MIN = 60_000  # from the first of them to the last: a restart or a fail-over is shorter
LOOK_MS_MAX = 120_000  # an answer that is older says nothing about now
JOURNAL_MAX = 10_000  # latest changes of contents that are remembered; more are read as a whole
ANSWER_TEXT_CHARS_MAX = 16 * 1024 * 1024  # of the texts in one list of a view
SCHEMAS_LISTED_MAX = 1_000  # of a view in one answer, as Confluent's registry; more by offset
# Of schemas that two registries hold; 200 bytes each beside the text. With fewer than there are
# schemas, each round would parse all of them.
FINGERPRINTS_KEPT = 500_000
# Worked through at a time, then the event loop has its turn. 20 ms for each target, and 60 ms where
# texts are parsed for the first time.
SLICE_PLACES = 200
WORDS_AT_ONCE = 1_000  # of a Protobuf text made JSON in one call, which lets no other thread run
