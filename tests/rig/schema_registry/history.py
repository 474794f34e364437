"""Random histories of a primary's schemas: versions come, are soft-deleted and hard-deleted."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from schema_dist.core.model import Schema, SchemaVersion
from schema_dist.core.records import schema_key
from tests.rig.schema_registry.site import Site, version

Held = dict[tuple[str, int], SchemaVersion]  # by subject and version, as the source has them
STEPS = 6


def record(name: str, *fields: str) -> Schema:
    """An Avro record of texts."""
    listed = [{"name": field, "type": "string", "default": ""} for field in fields]
    return Schema("AVRO", json.dumps({"type": "record", "name": name, "fields": listed}))


def go_on(
    site: Site, draw: random.Random, source: Held, subjects: Sequence[str], *, first_id: int
) -> None:
    """STEPS more records of the primary's log; new ids grow from `first_id`."""
    for at in range(STEPS):
        subject = draw.choice(subjects)
        versions = [stored for stored in source.values() if stored.subject == subject]
        live = [stored for stored in versions if not stored.deleted]
        if live and draw.random() < 0.3:
            gone = replace(draw.choice(live), deleted=True)
            source[gone.place] = gone
            site.register([gone])
        elif len(versions) > len(live) and draw.random() < 0.5:
            gone = next(stored for stored in versions if stored.deleted)
            del source[gone.place]
            site.write([(schema_key(gone), None)])
        else:
            new = max((stored.version for stored in versions), default=0) + 1
            made = version(subject, new, first_id + at, record(f"R{first_id + at}", "f"))
            source[made.place] = made
            site.register([made])
