"""Requests that a view passes on to the primary's registry: subjects in its names there, and in
logical names in the answer. The client's own credentials go along.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from keyway.clusters.core.internal import is_internal
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.subjects import SubjectTranslation, split_subject
from schema_dist.core.shown import Json, ViewError
from schema_dist.limits import AUTHORISED_KEPT_MAX, AUTHORISED_S
from schema_dist.transport import Answer, Http, HttpError

_ONE = {"offset": "0", "limit": "1"}  # registries without pages send their whole list
_HEADERS = ("authorization", "content-type", "accept", "accept-language")


@dataclass(frozen=True, slots=True)
class Passed:
    """The primary's answer, under logical names."""

    status: int
    body: Json
    challenge: str | None = None  # its WWW-Authenticate


class Primary:
    """`names`: from the primary's subjects (there) to logical ones."""

    def __init__(self, url: str, names: SubjectTranslation, http: Http) -> None:
        self._url = url.rstrip("/")
        self._names = names
        self._http = http
        self._authorised: dict[bytes, float] = {}  # until when, by digest of the credentials

    def subject(self, logical: str) -> str:
        """The primary's name of the subject. Raises ViewError 42208 for a name that the primary
        cannot have.
        """
        made = self._names.back(logical)
        if isinstance(made, Unfit):
            raise ViewError(422, 42208, f"The specified subject '{logical}' is not valid: {made}")
        return made

    async def ask(
        self,
        method: str,
        path: str,
        *,
        subject: str | None = None,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Json = None,
    ) -> Passed:
        """`path` holds `{subject}` where the primary's name goes. Raises ViewError 50003 if the
        primary is away.
        """
        there = None if subject is None else self.subject(subject)
        if there is not None:
            path = path.replace("{subject}", quote(there, safe=":"))
        passed = {name: value for name, value in headers.items() if name.lower() in _HEADERS}
        content = None if body is None else json.dumps(self._with_references(body)).encode()
        url = f"{self._url}{path}?{urlencode(self._query(query))}" if query else self._url + path
        try:
            answer = await self._http.send(method, url, headers=passed, content=content)
            found = _json(answer)
        except (HttpError, ValueError, RecursionError) as error:
            raise _away(error) from error
        return Passed(
            answer.status,
            self._logical(found, there, subject),
            answer.headers.get("www-authenticate"),
        )

    async def names_id(self, number: int, headers: Mapping[str, str]) -> bool:
        """Whether a subject with a logical name has the id. Raises ViewError 50003."""
        passed = {name: value for name, value in headers.items() if name.lower() in _HEADERS}
        url = f"{self._url}/schemas/ids/{number}/versions"
        try:
            found = _json(await self._http.send("GET", url, headers=passed, content=None))
        except (HttpError, ValueError, RecursionError) as error:
            raise _away(error) from error
        subjects = (
            [entry.get("subject") for entry in found if isinstance(entry, dict)]
            if isinstance(found, list)
            else []
        )
        return any(
            isinstance(subject, str)
            and not is_internal(split_subject(subject).name)
            and isinstance(self._names.there(subject), str)
            for subject in subjects
        )

    async def authorise(self, headers: Mapping[str, str]) -> Passed | None:
        """None if the primary accepts the client's credentials for reading, else its answer. A yes
        is kept for AUTHORISED_S. Raises ViewError 50003 if the primary says neither yes nor no.
        """
        credentials = headers.get("authorization", "")
        digest = hashlib.sha256(credentials.encode("utf-8", "surrogatepass")).digest()
        now = time.monotonic()
        if self._authorised.get(digest, 0.0) > now:
            return None
        # Karapace answers some others to everybody, such as /schemas/types.
        passed = await self.ask("GET", "/subjects", query=_ONE, headers=headers)
        if passed.status in (401, 403):
            return passed
        if not 200 <= passed.status < 300:
            raise ViewError(503, 50003, f"the primary's registry answers HTTP {passed.status}")
        if len(self._authorised) >= AUTHORISED_KEPT_MAX:
            self._authorised.clear()
        self._authorised[digest] = now + AUTHORISED_S
        return None

    # ---------------------------------------------------------------------------------------- names

    def _query(self, query: Mapping[str, str]) -> dict[str, str]:
        return {
            name: self.subject(value) if name == "subject" else value
            for name, value in query.items()
        }

    def _with_references(self, body: Json) -> Json:
        if not isinstance(body, dict) or not isinstance(body.get("references"), list):
            return body
        references = [
            {**reference, "subject": self.subject(reference["subject"])}
            if isinstance(reference, dict) and isinstance(reference.get("subject"), str)
            else reference
            for reference in body["references"]
        ]
        return {**body, "references": references}

    def _logical(self, answer: Json, there: str | None, logical: str | None) -> Json:
        if isinstance(answer, list):
            return [self._logical(entry, there, logical) for entry in answer]
        if not isinstance(answer, dict):
            return answer
        made = dict(answer)
        if isinstance(made.get("subject"), str):
            named = self._names.there(made["subject"])
            made["subject"] = made["subject"] if isinstance(named, Unfit) else named
        if isinstance(made.get("references"), list):
            made["references"] = [
                self._logical(reference, None, None) for reference in made["references"]
            ]
        if there and logical and isinstance(made.get("message"), str):
            made["message"] = made["message"].replace(there, logical)
        return made


def _away(error: Exception) -> ViewError:
    what = type(error.__cause__ or error).__name__
    return ViewError(503, 50003, f"the primary's registry is away ({what})")


def _json(answer: Answer) -> Json:
    """The answer's body as JSON. A refusal without JSON, as a guard with a password may send it, is
    named by its status. Raises ValueError, RecursionError.
    """
    try:
        return json.loads(answer.body) if answer.body else None
    except (ValueError, RecursionError):
        if answer.status not in (401, 403):
            raise
        return {"error_code": answer.status, "message": "the primary's registry refuses the client"}
