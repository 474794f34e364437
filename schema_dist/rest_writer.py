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
    IMPORT,
    HardDelete,
    Reason,
    Refusal,
    Register,
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

_CLOSED = frozenset({"READONLY", "READONLY_OVERRIDE"})


class RestTarget:
    """A registry that is written over REST. `contents` are the last that are known."""

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
        """Writes and reads back, all at once. Returns a refusal for each write that failed.

        Raises AwayError: some of the batch may be written then, and `contents` may be out of date.
        """
        chains: dict[str, list[Write]] = {}
        for write in batch:
            chains.setdefault(_subject_of(write), []).append(write)
        switched = set(self.switched_by(batch))
        done = await together(
            self._chain(subject, writes, switch=subject in switched)
            for subject, writes in chains.items()
        )
        refusals = {write: refusal for found in done for write, refusal in found.items()}
        return [refusals[write] for write in batch]

    async def _switch(self, subject: str) -> str | None:
        """None if the subject is in IMPORT mode now, else the reason."""
        try:
            mode = await self._client.set_mode(subject, IMPORT)
            if mode is None:
                mode = await self._client.mode(subject)
        except RefusedError as error:
            return f"it cannot be switched to IMPORT mode: {error}"
        if mode != IMPORT:
            stays = f"stays in {mode}" if mode else "has no mode"
            return f"it answers the switch to IMPORT mode with success and {stays}"
        self.contents.modes[subject] = IMPORT
        return None

    async def _chain(
        self, subject: str, writes: Sequence[Write], *, switch: bool
    ) -> dict[Write, Refusal | None]:
        """Makes the writes of one subject, one after the other."""
        problem = await self._switch(subject) if switch else None
        done: dict[Write, Refusal | None] = {}
        registers: list[Register] = []
        for write in writes:
            match write:
                case SetCompatibility() | SetMode():
                    done[write] = await self._setting(write)
                case Register(wanted) | SoftDelete(wanted) | HardDelete(wanted) if problem:
                    done[write] = Refusal.of(wanted, Reason.ID_IGNORED, problem)
                case SoftDelete() | HardDelete():
                    done[write] = await self._delete(write)
                case Register():
                    registers.append(write)
                case _:
                    assert_never(write)
        return done | await self._register(subject, registers)

    async def _register(
        self, subject: str, writes: Sequence[Register]
    ) -> dict[Write, Refusal | None]:
        """Registers, reads back, and takes away the registrations that went wrong. After an id that
        was ignored nothing more is tried.
        """
        done: dict[Write, Refusal | None] = {}
        accepted: list[Register] = []
        wrong: list[tuple[Register, Reason, str]] = []
        ids: dict[Register, int] = {}  # as the registry answered
        for write in writes:
            wanted = write.wanted
            if any(reason is Reason.ID_IGNORED for _, reason, _ in wrong):
                detail = "the registry gave an earlier version another id"
                done[write] = Refusal.of(wanted, Reason.ID_IGNORED, detail)
                continue
            try:
                answered = await self._client.register(wanted)
            except RefusedError as error:
                done[write] = Refusal.of(wanted, Reason.REGISTRY, str(error))
                continue
            ids[write] = wanted.id if answered is None else answered
            if ids[write] == wanted.id:
                accepted.append(write)
            else:
                wrong.append((write, Reason.ID_IGNORED, f"the registry gave it id {answered}"))
        for write, found in await self._read_back(subject, accepted):
            what = difference(write.wanted, found)
            if what is None:
                done[write] = None
                self._note(write)
            else:
                wrong.append((write, Reason.READ_BACK, what))
        for write, reason, what in wrong:
            left = await self._undo(write.wanted, ids[write])
            done[write] = Refusal.of(write.wanted, reason, f"{what}; {left}")
        return done

    async def _read_back(
        self, subject: str, registered: Sequence[Register]
    ) -> list[tuple[Register, SchemaVersion | None]]:
        """The state of the versions in the registry now: several with one request, if the registry
        has such a list.
        """
        live = await self._client.live_of(subject) if len(registered) > 1 else None
        if live is None:
            return [(version, await self._client.version(*version.place)) for version in registered]
        by_place = {version.place: version for version in live}
        return [(version, by_place.get(version.place)) for version in registered]

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

    async def _delete(self, write: SoftDelete | HardDelete) -> Refusal | None:
        wanted, hard = write.wanted, isinstance(write, HardDelete)
        try:
            await self._client.delete(*wanted.place, permanent=hard)
            left = await self._client.version(*wanted.place, deleted=hard)
        except RefusedError as error:
            return Refusal.of(wanted, Reason.REGISTRY, str(error))
        if left is not None:
            return Refusal.of(wanted, Reason.READ_BACK, "it is there after its deletion")
        self._note(write)
        return None

    async def _undo(self, wanted: SchemaVersion, answered: int) -> str:
        """Takes away the remains of a failed registration. Returns the outcome as text. A version
        that another client registered meanwhile has another id, or another number and schema.
        """
        before = {version.version for version in self.contents.of(wanted.subject)}
        now = await self._client.versions(wanted.subject, deleted=True)
        made: list[Version] = []
        for version in now:
            found = (
                await self._client.version(wanted.subject, version)
                if version not in before
                else None
            )
            if found is None or found.id != answered:
                continue
            expected = replace(wanted, version=version, id=found.id)
            if version == wanted.version or difference(expected, found) is None:
                made.append(version)
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
                continue  # reading again shows the remains

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
            return Refusal.of_setting(write.subject, Reason.REGISTRY, str(error))
        if found != value and (write.subject, value) != (GLOBAL, None):  # a default stays there
            return Refusal.of_setting(
                write.subject, Reason.READ_BACK, f"it is {found} after the change"
            )
        if value is None:
            known.pop(write.subject, None)
        else:
            known[write.subject] = value
        return None

    # -------------------------------------------------------------------------------------- probe

    async def probe(self, sample: SchemaVersion) -> str | None:
        """None if explicit ids and versions count, else the registry's own behaviour. Tried in a
        subject that is removed again. `sample`: a schema that is to be registered anyway, so
        that no other id is used up. Raises AwayError.
        """
        await self.clean_up_probe()
        problem = await self._switch(PROBE_SUBJECT)
        if problem is None:
            version = Version(PROBE_VERSION)
            wanted = replace(sample, subject=PROBE_SUBJECT, version=version, deleted=False)
            try:
                answered = await self._client.register(wanted)
                problem = difference(wanted, await self._client.version(*wanted.place))
                if answered is not None and answered != wanted.id:
                    problem = f"the registry gave it id {answered}"
            except RefusedError as error:
                problem = f"it refuses an explicit id in IMPORT mode: {error}"
        await self.clean_up_probe()
        return problem

    async def clean_up_probe(self) -> None:
        """Removes the remains of a probe, also of one that was killed."""
        for version in await self._client.versions(PROBE_SUBJECT, deleted=True):
            await self._remove(PROBE_SUBJECT, version)
        if await self._client.mode(PROBE_SUBJECT) is not None:
            try:
                await self._client.set_mode(PROBE_SUBJECT, None)
            except RefusedError:
                return  # the registry has no subject modes; then there is nothing left
        self.contents.modes.pop(PROBE_SUBJECT, None)


def _subject_of(write: Write) -> str:
    if isinstance(write, SetCompatibility | SetMode):
        return write.subject
    return write.wanted.subject
