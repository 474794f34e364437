"""Confluent's registry REST interface, as far as distribution needs it.

Registries differ (see docs/schemas.md); this client hides only different forms of one answer:
an empty list as `null`, a missing subject as an error or an empty list. Every answer
is read whole, bounded, and must be the JSON that is expected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from schema_dist.core.absences import Presence
from schema_dist.core.model import GLOBAL, Schema, SchemaVersion, SubjectVersion, Version
from schema_dist.core.records import fields_of, schema_version
from schema_dist.errors import AwayError, RefusedError
from schema_dist.limits import PAGE_SCHEMAS, PAGES_MAX, REQUESTS_AT_ONCE
from schema_dist.transport import Http, HttpError

_JSON = "application/vnd.schemaregistry.v1+json"
_HEADERS = {"Content-Type": _JSON, "Accept": f"{_JSON}, application/json"}
_NO_ROUTE = frozenset({404, 405})
# A registry's codes for: no such subject or version, or a soft-deleted one. A 404 without such a
# code is somebody else's: a proxy's, or of a registry that starts.
_NO_VERSION = frozenset({40401, 40402, 40404, 40406})
_NO_SETTING = frozenset({*_NO_VERSION, 40408, 40409})
# All fields of a subject's config and mode.
_SETTINGS = frozenset(
    {
        *("compatibilityLevel", "compatibility", "compatibilityGroup", "compatibilityPolicy"),
        *("mode", "alias", "normalize", "validateFields", "validateNames", "validateRules"),
        *("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet"),
    }
)


async def nothing_to_ask() -> None:
    """The check before a write where no lease is needed."""


class RestClient:
    """One registry. All methods raise AwayError if it is away and RefusedError if it says no."""

    def __init__(
        self, url: str, http: Http, before_write: Callable[[], Awaitable[None]] = nothing_to_ask
    ) -> None:
        """`before_write`: awaited right before each request that may change something."""
        self._before_write = before_write
        self.url = url.rstrip("/")
        self._http = http
        self._at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._has_modes = False  # seen once

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> object:
        """The JSON of an answer."""
        content = None if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
        url = f"{self.url}{path}?{urlencode(query)}" if query else self.url + path
        async with self._at_once:
            if method != "GET":
                await self._before_write()
            try:
                answer = await self._http.send(method, url, headers=_HEADERS, content=content)
            except HttpError as error:
                raise AwayError(f"registry {self.url}: {method} {path}: {error}") from error
        return self._answer(answer.status, answer.body, f"{method} {path}")

    def _answer(self, status: int, data: bytes, asked: str) -> object:
        try:
            parsed = json.loads(data) if data else None
        except (ValueError, RecursionError):
            if status in _NO_ROUTE:
                raise RefusedError(status, status, "no such route") from None
            raise AwayError(f"registry {self.url}: {status} without JSON for {asked}") from None
        if 200 <= status < 300:
            return parsed
        fields = parsed if isinstance(parsed, dict) else {}
        message = str(fields.get("message", ""))[:500]
        if status >= 500 or status in (401, 403, 408, 429):
            raise AwayError(f"registry {self.url}: {status} {message} for {asked}")
        code = fields.get("error_code")
        raise RefusedError(status, code if isinstance(code, int) else status, message)

    # ---------------------------------------------------------------------------------------- lists

    async def subjects(self, *, deleted: bool) -> list[str]:
        found = await self.ask("GET", "/subjects", query={"deleted": "true"} if deleted else None)
        return [str(subject) for subject in self._list(found)]

    async def versions(self, subject: str, *, deleted: bool) -> list[Version]:
        """Empty for a subject that does not exist."""
        query = {"deleted": "true"} if deleted else None
        try:
            found = await self.ask("GET", f"/subjects/{_quoted(subject)}/versions", query=query)
        except RefusedError as error:
            self._must_be_absent(error, _NO_VERSION)
            return []
        return [Version(version) for version in self._list(found) if isinstance(version, int)]

    async def version(
        self, subject: str, version: Version, *, deleted: bool = False
    ) -> SchemaVersion | None:
        """None if there is no such version (or, unless asked for, a soft-deleted one)."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        try:
            found = await self.ask("GET", path, query={"deleted": "true"} if deleted else None)
        except RefusedError as error:
            self._must_be_absent(error, _NO_VERSION)
            return None
        return self._version(found)

    async def presence(self, place: SubjectVersion) -> Presence:
        """The registry's own word about a version. A 404 that does not come from the registry is an
        AwayError.
        """
        if await self.version(*place) is not None:
            return Presence.LIVE
        subject, version = place
        # Apicurio lists a subject's last version after its soft delete, and shows it no more.
        there = await self.version(
            subject, version, deleted=True
        ) is not None or version in await self.versions(subject, deleted=True)
        return Presence.DELETED if there else Presence.GONE

    def _must_be_absent(self, error: RefusedError, codes: frozenset[int]) -> None:
        """Raises AwayError for a 404 that is not the registry's, and other refusals as they are."""
        if error.status == 404 and error.code not in codes:
            raise AwayError(
                f"registry {self.url}: a 404 without the registry's code ({error})"
            ) from error
        if error.status != 404:
            raise error

    async def schemas(self, *, deleted: bool) -> list[SchemaVersion] | None:
        """All versions of all subjects; None if the registry has no such list."""
        made: dict[tuple[str, Version], SchemaVersion] = {}
        for page in range(PAGES_MAX):
            query = {"offset": str(page * PAGE_SCHEMAS), "limit": str(PAGE_SCHEMAS)}
            query |= {"deleted": "true"} if deleted else {}
            try:
                found = self._list(await self.ask("GET", "/schemas", query=query))
            except RefusedError as error:
                if error.status in _NO_ROUTE:
                    return None
                raise
            before = len(made)
            made |= {version.place: version for version in map(self._version, found)}
            # Shorter than asked for: the last. Nothing new: this registry knows no pages.
            if len(found) < PAGE_SCHEMAS or len(made) == before or len(found) > PAGE_SCHEMAS:
                return list(made.values())
        raise AwayError(f"registry {self.url}: a list of schemas without an end")

    async def live_of(self, subject: str) -> list[SchemaVersion] | None:
        """The live versions of a subject in one answer; None if the registry has no such list."""
        query = {"subjectPrefix": subject, "limit": str(PAGE_SCHEMAS)}
        if subject.startswith(":"):
            return None  # registries differ in the meaning of a prefix with a context
        try:
            found = self._list(await self.ask("GET", "/schemas", query=query))
        except RefusedError:
            return None
        if len(found) >= PAGE_SCHEMAS:
            return None  # others begin alike
        return [version for version in map(self._version, found) if version.subject == subject]

    def _list(self, found: object) -> list[Any]:
        if found is None:
            return []
        if not isinstance(found, list):
            raise AwayError(f"registry {self.url}: a list was expected, not {type(found).__name__}")
        return found

    def _version(self, found: object) -> SchemaVersion:
        if not isinstance(found, dict):
            raise AwayError(f"registry {self.url}: a schema was expected")
        try:
            return schema_version(found)
        except ValueError as error:
            raise AwayError(f"registry {self.url}: of a schema, {error}") from None

    # ------------------------------------------------------------------------------------- settings

    async def compatibility(self, subject: str) -> str | None:
        """The subject's own level (or GLOBAL's); None if it has none."""
        return await self._setting("/config", subject, "compatibilityLevel")

    async def mode(self, subject: str) -> str | None:
        """The subject's own mode (or GLOBAL's); None if it has none, or the registry no modes."""
        try:
            found = await self._setting("/mode", subject, "mode")
        except RefusedError as error:
            if self._has_modes or error.status not in _NO_ROUTE:
                raise
            return None
        self._has_modes = self._has_modes or found is not None
        return found

    async def _setting(self, route: str, subject: str, name: str) -> str | None:
        path = route if subject == GLOBAL else f"{route}/{_quoted(subject)}"
        try:
            found = await self.ask("GET", path)
        except RefusedError as error:
            if error.status == 404 and error.code in _NO_SETTING:
                return None
            raise
        value = found.get(name) if isinstance(found, dict) else None
        if isinstance(value, str):
            return value
        # None of its own, but another setting, is what Confluent's registry may answer, and nothing
        # at all Apicurio about a mode. All else is somebody else's, and no word about the setting.
        if isinstance(found, dict) and found.keys() <= _SETTINGS and value is None:
            return None
        if found is None and route == "/mode":
            return None
        said = json.dumps(found)[:100]
        raise AwayError(f"registry {self.url}: GET {path}: no answer of a registry: {said}")

    async def set_compatibility(self, subject: str, level: str | None) -> None:
        await self._set("/config", subject, None if level is None else {"compatibility": level})

    async def set_mode(self, subject: str, mode: str | None) -> str | None:
        """Returns the mode that the registry says it has now; None if it says nothing."""
        body = None if mode is None else {"mode": mode}
        answer = await self._set("/mode", subject, body, force=True)
        value = answer.get("mode") if isinstance(answer, dict) else None
        return value if isinstance(value, str) else None

    async def _set(
        self, route: str, subject: str, body: Mapping[str, str] | None, *, force: bool = False
    ) -> object:
        path = route if subject == GLOBAL else f"{route}/{_quoted(subject)}"
        if body is not None:
            query = {"force": "true"} if force else None
            return await self.ask("PUT", path, body=body, query=query)
        try:
            return await self.ask("DELETE", path)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    # -------------------------------------------------------------------------------------- writing

    async def register(self, wanted: SchemaVersion) -> int | None:
        """Registers with an explicit id and version. Returns the id that the registry answers."""
        body = fields_of(wanted.schema) | {"id": wanted.id, "version": wanted.version}
        path = f"/subjects/{_quoted(wanted.subject)}/versions"
        found = await self.ask("POST", path, body=body)
        value = found.get("id") if isinstance(found, dict) else None
        return value if isinstance(value, int) else None

    async def look_up(self, subject: str, schema: Schema) -> Version | None:
        """The version under which the subject has this schema."""
        try:
            found = await self.ask("POST", f"/subjects/{_quoted(subject)}", body=fields_of(schema))
        except RefusedError:
            return None
        value = found.get("version") if isinstance(found, dict) else None
        return Version(value) if isinstance(value, int) else None

    async def delete(self, subject: str, version: Version, *, permanent: bool) -> None:
        """A version that does not exist is no error."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        try:
            await self.ask("DELETE", path, query={"permanent": "true"} if permanent else None)
        except RefusedError as error:
            if error.status != 404:
                raise

    async def has_contexts(self) -> bool:
        """Whether ids are kept apart by context: a registry without the route shares them."""
        try:
            return isinstance(await self.ask("GET", "/contexts"), list)
        except RefusedError:
            return False


def _quoted(subject: str) -> str:
    return quote(subject, safe=":")  # some registries do not decode %3A
