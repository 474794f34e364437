"""A Confluent-compatible schema registry over HTTP: a schema by its id, and the id of a new schema.

Spark's workers ask, each once per schema. A registry that is away or refuses fails the task with
the reason, and Spark tries the task again: the record is not to blame.
"""

from __future__ import annotations

import json
import ssl
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import httpx

from keyway.clusters.core.registry_answers import says_absent
from spark.transforms.core.avro_types import Definitions, InvalidSchema, Schema, defined
from spark.transforms.core.engine import UnknownSchema
from spark.transforms.core.plan import RegistrySettings

ANSWER_S_MAX = 15.0  # a registry answers in milliseconds, or after it elected a primary
REFERENCES_MAX = 100  # of one schema, nested ones included
_TYPE = "application/vnd.schemaregistry.v1+json"

Json = Any  # as json.loads gives it


class RegistryError(Exception):
    """The registry is away or refuses: the request, and the registry's own message."""


class Registry:
    """Implements `engine.Schemas`."""

    def __init__(self, settings: RegistrySettings) -> None:
        auth = None
        if settings.username is not None:
            password = settings.password.text() if settings.password is not None else ""
            auth = httpx.BasicAuth(settings.username, password)
        verify: bool | ssl.SSLContext = (
            True if settings.ca_file is None else _trust(settings.ca_file)
        )
        self._url = settings.url.rstrip("/")
        self._http = httpx.Client(
            auth=auth,
            verify=verify,
            timeout=ANSWER_S_MAX,
            trust_env=False,
            headers={"Accept": f"{_TYPE}, */*"},
        )

    def writer(self, schema_id: int) -> Definitions:
        """Raises UnknownSchema, InvalidSchema, RegistryError."""
        answer = self._ask("GET", f"/schemas/ids/{schema_id}")
        if answer is None:
            raise UnknownSchema(schema_id)
        references: list[Schema] = []
        self._follow(answer, references, set())
        return defined(_avro(answer), references)

    def register(self, subject: str, definitions: Definitions) -> int:
        """Raises RegistryError."""
        body = {"schema": json.dumps(definitions.schema)}
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        if answer is None or not isinstance(answer.get("id"), int):
            raise RegistryError(f"the registry did not register a schema for {subject}")
        return int(answer["id"])

    def _follow(self, answer: Json, into: list[Schema], known: set[tuple[str, int]]) -> None:
        """Appends the schemas that `answer` refers to, the innermost first."""
        for reference in answer.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in known:
                continue
            known.add((subject, version))
            if len(known) > REFERENCES_MAX:
                raise InvalidSchema(f"more than {REFERENCES_MAX} references")
            found = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if found is None:
                raise InvalidSchema(f"refers to {subject} version {version}, which does not exist")
            self._follow(found, into, known)
            into.append(_avro(found))

    def _ask(self, method: str, path: str, body: Json = None) -> Json:
        """The answer, None if the registry says that it has no such thing. Raises RegistryError."""
        what = f"{method} {self._url}{path}"
        try:
            answer = self._http.request(
                method,
                self._url + path,
                content=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": _TYPE},
            )
            if answer.status_code == 404 and says_absent(_json(answer)):
                return None
            if answer.is_success:
                return answer.json()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RegistryError(f"{what}: {type(error).__name__} {error}") from error
        except ValueError as error:
            raise RegistryError(f"{what}: the answer is not JSON") from error
        raise RegistryError(f"{what}: {answer.status_code} {answer.text[:300]}")


def _json(answer: httpx.Response) -> Json:
    """None for a body that is not JSON."""
    try:
        return answer.json()
    except ValueError:
        return None


def _avro(answer: Json) -> Schema:
    kind = answer.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise InvalidSchema(f"is {kind}, not AVRO")
    try:
        schema: Schema = json.loads(answer["schema"])
    except ValueError:
        raise InvalidSchema("is not JSON") from None
    return schema


def _trust(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


@lru_cache(maxsize=8)
def registry_of(settings: RegistrySettings) -> Registry:
    """One registry client per process and registry, so that the connection stays."""
    return Registry(settings)
