"""A registry's contents read over REST, where its log cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from schema_dist.core.contents import Contents
from schema_dist.core.limits import ABSENT_MS_MIN
from schema_dist.core.model import GLOBAL, SchemaVersion, SubjectVersion
from schema_dist.errors import AwayError
from schema_dist.rest_client import RestClient
from schema_dist.tasks import together


class RestReader:
    """Each call reads everything into the same contents, and only differences count as changes. The
    schema of a version never changes, so versions are fetched once if the registry has no list of
    all.
    """

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._known: dict[SubjectVersion, SchemaVersion] = {}
        self._contents = Contents(recorded=False)
        self._set_s: dict[str, float] = {}  # subjects: when a setting of theirs was seen last

    async def read(self, settings_of: Iterable[str] | None = None) -> Contents:
        """`settings_of`: the subjects whose compatibility and mode are asked for; None: all
        subjects. A level or mode that belongs to the whole registry is then not taken for the
        subject's own, which is how Apicurio answers. Raises AwayError, RefusedError.
        """
        everything = await self._client.schemas(deleted=True)
        if everything is None:
            everything = await self._one_by_one()
            live = {version.place for version in everything if not version.deleted}
        else:
            shown = await self._client.schemas(deleted=False)
            if shown is None:
                raise AwayError("the registry has a list of all schemas, and none of the live ones")
            live = {version.place for version in shown}
        contents = Contents(recorded=False)
        # The order of a log is unknown here; ids grow with time.
        for version in sorted(everything, key=lambda version: (version.id, version.place)):
            contents.put(replace(version, deleted=version.place not in live), version.id)
        wanted = list(contents.subjects) if settings_of is None else list(settings_of)
        if settings_of is None:
            wanted += self._lately_set()
        await self._settings(contents, [GLOBAL, *dict.fromkeys(wanted)])
        if settings_of is None:
            contents.compatibility = _own(contents.compatibility)
            contents.modes = _own(contents.modes)
        self._set_s |= dict.fromkeys([*contents.compatibility, *contents.modes], _now_s())
        self._contents.become(contents)
        self._contents.reads += 1
        return self._contents

    def _lately_set(self) -> list[str]:
        """Subjects that had settings. They are asked for by name, also if a list lacks the subject:
        that proves nothing.
        """
        since_s = _now_s() - 2 * ABSENT_MS_MIN / 1_000
        self._set_s = {subject: at_s for subject, at_s in self._set_s.items() if at_s > since_s}
        return [subject for subject in self._set_s if subject != GLOBAL]

    async def _one_by_one(self) -> list[SchemaVersion]:
        client = self._client
        subjects = await client.subjects(deleted=True)
        every = await together(client.versions(subject, deleted=True) for subject in subjects)
        live = await together(client.versions(subject, deleted=False) for subject in subjects)
        places = [
            (subject, version)
            for subject, versions in zip(subjects, every, strict=True)
            for version in versions
        ]
        there = set(places)
        self._known = {place: version for place, version in self._known.items() if place in there}
        new = [place for place in places if place not in self._known]
        for version in await together(client.version(*place, deleted=True) for place in new):
            if version is not None:
                self._known[version.place] = version
        shown = {
            (subject, version)
            for subject, versions in zip(subjects, live, strict=True)
            for version in versions
        }
        return [
            replace(version, deleted=version.place not in shown) for version in self._known.values()
        ]

    async def _settings(self, contents: Contents, subjects: list[str]) -> None:
        levels = await together(map(self._client.compatibility, subjects))
        modes = await together(map(self._client.mode, subjects))
        for subject, level, mode in zip(subjects, levels, modes, strict=True):
            if level is not None:
                contents.compatibility[subject] = level
            if mode is not None:
                contents.modes[subject] = mode


def _own(settings: dict[str, str]) -> dict[str, str]:
    everywhere = settings.get(GLOBAL)
    return {
        subject: value
        for subject, value in settings.items()
        if subject == GLOBAL or value != everywhere
    }


def _now_s() -> float:
    return asyncio.get_running_loop().time()
