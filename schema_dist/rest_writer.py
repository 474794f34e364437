"""Writes to a registry over REST, in IMPORT mode, where explicit ids count.

An answer of 200 proves nothing: some registries take an explicit id and give their own. So every
write is read back, and a version that came out under another id is taken away again.

A subject that is not in IMPORT mode is switched to it before its first version. Distribution's next
plan sets the mode back: the ledger says that it is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from schema_dist.core.compare import difference
from schema_dist.core.contents import Contents
from schema_dist.core.model import (
    GLOBAL,
    HardDelete,
    Reason,
    Refusal,
    Register,
    SchemaId,
    SchemaVersion,
    SetCompatibility,
    SetMode,
    SoftDelete,
    Version,
    Write,
)
from schema_dist.errors import RefusedError
from schema_dist.limits import PROBE_SUBJECT, PROBE_VERSION
from schema_dist.rest_client import RestClient
from schema_dist.rest_reader import RestReader
from schema_dist.tasks import together

IMPORT = "IMPORT"
_CLOSED = frozenset({"READONLY", "READONLY_OVERRIDE"})


class RestTarget:
    """A registry that is written over REST. `contents` is what it was last known to hold."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._reader = RestReader(client)
        self.contexts = False
        self.contents = Contents()

    async def read(self, settings_of: Iterable[str]) -> Contents:
        """Reads everything anew. Raises AwayError, RefusedError."""
        self.contexts = await self._client.has_contexts()
        self.contents = await self._reader.read(settings_of)
        return self.contents

    def switched_by(self, batch: Sequence[Write]) -> list[str]:
        """The subjects whose mode the batch must switch, to be noted before it is written."""
        found: dict[str, None] = {}
        for write in batch:
            if isinstance(write, Register | SoftDelete | HardDelete):
                subject = write.wanted.subject
                mode = self.contents.modes.get(subject, self.contents.modes.get(GLOBAL))
                if mode != IMPORT if isinstance(write, Register) else mode in _CLOSED:
                    found[subject] = None
        return list(found)

    async def apply(self, batch: Sequence[Write]) -> list[Refusal | None]:
        """Writes and reads back, all at once; a refusal for each write that failed.

        Raises AwayError: some of the batch may be written, and `contents` may be out of date.
        """
        switched = self.switched_by(batch)
        refused = dict(zip(switched, await together(map(self._switch, switched)), strict=True))
        return await together(self._write(it, refused) for it in batch)

    async def _switch(self, subject: str) -> str | None:
        """None if the subject is in IMPORT mode now, else why not."""
        try:
            await self._client.set_mode(subject, IMPORT)
            mode = await self._client.mode(subject)
        except RefusedError as error:
            return f"it cannot be switched to IMPORT mode: {error}"
        if mode != IMPORT:
            return f"it answers the switch to IMPORT mode with success and stays in {mode}"
        self.contents.modes[subject] = IMPORT
        return None

    async def _write(self, write: Write, unswitched: dict[str, str | None]) -> Refusal | None:
        match write:
            case Register(wanted) | SoftDelete(wanted) | HardDelete(wanted):
                problem = unswitched.get(wanted.subject)
                if problem is not None:
                    return _refusal(wanted, Reason.ID_IGNORED, problem)
                try:
                    refusal = await self._version(write)
                except RefusedError as error:
                    return _refusal(wanted, Reason.REGISTRY, str(error))
                if refusal is None:
                    self._note(write)
                return refusal
            case SetCompatibility() | SetMode():
                return await self._setting(write)
            case _:
                assert_never(write)

    def _note(self, write: Register | SoftDelete | HardDelete) -> None:
        wanted = write.wanted
        at = len(self.contents)
        match write:
            case Register():
                self.contents.put(replace(wanted, deleted=False), at)
            case SoftDelete():
                self.contents.put(replace(wanted, deleted=True), at)
            case HardDelete():
                self.contents.remove(wanted.place)
            case _:
                assert_never(write)

    async def _version(self, write: Register | SoftDelete | HardDelete) -> Refusal | None:
        wanted = write.wanted
        match write:
            case Register():
                return await self._register(wanted)
            case SoftDelete():
                await self._client.delete(*wanted.place, permanent=False)
                left = await self._client.version(*wanted.place)
            case HardDelete():
                await self._client.delete(*wanted.place, permanent=True)
                left = await self._client.version(*wanted.place, deleted=True)
            case _:
                assert_never(write)
        if left is not None:
            return _refusal(wanted, Reason.READ_BACK, "it is there after its deletion")
        return None

    # -------------------------------------------------------------------------------- registering

    async def _register(self, wanted: SchemaVersion) -> Refusal | None:
        answered = await self._client.register(wanted)
        problem = await self._difference(wanted, answered)
        if problem is None:
            return None
        left = await self._undo(wanted)
        reason = Reason.ID_IGNORED if answered != wanted.id else Reason.READ_BACK
        return _refusal(wanted, reason, f"{problem}; {left}")

    async def _difference(self, wanted: SchemaVersion, answered: int | None) -> str | None:
        """The fault of a version that was just registered."""
        if answered is not None and answered != wanted.id:
            return f"the registry gave it id {answered}"
        return difference(wanted, await self._client.version(*wanted.place))

    async def _undo(self, wanted: SchemaVersion) -> str:
        """Takes away what a registration that went wrong has made; says what happened."""
        before = {it.version for it in self.contents.of(wanted.subject)}
        now = await self._client.versions(wanted.subject, deleted=True)
        made = [version for version in now if version not in before]
        for version in made:
            await self._remove(wanted.subject, version)
        if not made:
            return "nothing was made"
        left = set(await self._client.versions(wanted.subject, deleted=True)) & set(made)
        numbers = ", ".join(map(str, left or made))
        return f"version {numbers} of it {'could not be' if left else 'was'} removed again"

    async def _remove(self, subject: str, version: Version) -> None:
        for permanent in (False, True):
            try:
                await self._client.delete(subject, version, permanent=permanent)
            except RefusedError:
                continue  # what is left is seen by reading again

    async def _setting(self, write: SetCompatibility | SetMode) -> Refusal | None:
        client = self._client
        try:
            if isinstance(write, SetCompatibility):
                value, known = write.level, self.contents.compatibility
                await client.set_compatibility(write.subject, value)
                found = await client.compatibility(write.subject)
            else:
                value, known = write.mode, self.contents.modes
                await client.set_mode(write.subject, value)
                found = await client.mode(write.subject)
        except RefusedError as error:
            return _setting_refusal(write, Reason.REGISTRY, str(error))
        if found != value and (write.subject, value) != (GLOBAL, None):  # a default stays there
            return _setting_refusal(write, Reason.READ_BACK, f"it is {found} after the change")
        if value is None:
            known.pop(write.subject, None)
        else:
            known[write.subject] = value
        return None

    # -------------------------------------------------------------------------------------- probe

    async def probe(self, sample: SchemaVersion) -> str | None:
        """Whether explicit ids and versions count, tried in a subject that is removed again: None
        if so, else what the registry does instead. `sample`: a schema that is to be registered, so
        that no other id is used up. Raises AwayError.
        """
        await self.clean_up_probe()
        problem = await self._switch(PROBE_SUBJECT)
        if problem is None:
            version = Version(PROBE_VERSION)
            wanted = replace(sample, subject=PROBE_SUBJECT, version=version, deleted=False)
            try:
                answered = await self._client.register(wanted)
                problem = await self._difference(wanted, answered)
            except RefusedError as error:
                problem = f"it refuses an explicit id in IMPORT mode: {error}"
        await self.clean_up_probe()
        return problem

    async def clean_up_probe(self) -> None:
        """Removes what a probe, or one that was killed, has left."""
        for version in await self._client.versions(PROBE_SUBJECT, deleted=True):
            await self._remove(PROBE_SUBJECT, version)
        if await self._client.mode(PROBE_SUBJECT) is not None:
            try:
                await self._client.set_mode(PROBE_SUBJECT, None)
            except RefusedError:
                return  # the registry has no subject modes; then there is nothing left
        self.contents.modes.pop(PROBE_SUBJECT, None)


def _refusal(it: SchemaVersion, reason: Reason, detail: str) -> Refusal:
    return Refusal(reason=reason, subject=it.subject, version=it.version, id=it.id, detail=detail)


def _setting_refusal(write: SetCompatibility | SetMode, reason: Reason, detail: str) -> Refusal:
    return Refusal(
        reason=reason, subject=write.subject, version=Version(0), id=SchemaId(0), detail=detail
    )
