"""Subjects of a schema registry, translated from one cluster's names to another's.

A subject is named in one of three ways (Confluent's subject name strategies):

    TopicName        <topic>-key or <topic>-value     the topic is translated, the suffix stays
    TopicRecordName  <topic>-<record>                 as `RecordNames` says
    RecordName       <record>                         as `RecordNames` says

A record's full name holds no `-`, so the part behind the last `-` tells them apart. A qualified
subject, `:.context:subject`, keeps its context: the same schema in two contexts stays in two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keyway.clusters.core.internal import is_internal
from keyway.clusters.core.names import Misfit, Pattern, Translation, Unfit, pair

_SUFFIXES = ("-key", "-value")
CONTEXT_CHARS_MAX = 255  # a context is a short word; longer ones are hostile


class RecordNames(Enum):
    """Policy for subjects that are named after a record."""

    REFUSE = "refuse"  # reported, and not distributed
    KEEP = "keep"  # the same subject on every cluster
    TRANSLATE = "translate"  # the topic of TopicRecordName is translated; RecordName is kept


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject in its parts: `context` as written, with its colons, or empty."""

    context: str
    name: str  # topic or record, without a suffix of `_SUFFIXES`
    suffix: str


def split_subject(text: str) -> Subject:
    """The parts of a subject; `context + name + suffix` is the text again."""
    context, name = "", text
    if text.startswith(":."):
        end = text.find(":", 2)
        if 0 < end <= CONTEXT_CHARS_MAX:
            context, name = text[: end + 1], text[end + 1 :]
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return Subject(context, name.removesuffix(suffix), suffix)
    return Subject(context, name, "")


@dataclass(frozen=True, slots=True)
class SubjectTranslation:
    """Translates subjects both ways. One to one, as its `topics` is: subjects with a suffix, those
    named after a topic and a record, and those named after a record alone never meet.
    """

    topics: Translation
    record_names: RecordNames = RecordNames.REFUSE

    def there(self, subject: str) -> str | Unfit:
        """The target's subject of the source's `subject`."""
        return self._translated(subject, forward=True)

    def back(self, subject: str) -> str | Unfit:
        """The source's subject of the target's `subject`."""
        return self._translated(subject, forward=False)

    def _translated(self, text: str, *, forward: bool) -> str | Unfit:
        subject = split_subject(text)
        topic, behind = subject.name, subject.suffix
        if is_internal(topic):
            return text
        if not subject.suffix:
            if self.record_names is RecordNames.REFUSE:
                return Unfit(text, Misfit.RECORD_NAME)
            topic, dash, record = topic.rpartition("-")
            if not dash or self.record_names is RecordNames.KEEP:
                return text
            behind = f"-{record}"
        made = self.topics.there(topic) if forward else self.topics.back(topic)
        if isinstance(made, Unfit):
            return Unfit(text, made.why, made.detail)
        return f"{subject.context}{made}{behind}"


def pair_subjects(
    source: Pattern, target: Pattern, record_names: RecordNames = RecordNames.REFUSE
) -> SubjectTranslation:
    """The translation of subjects between two patterns of topics. Raises as `names.pair`."""
    return SubjectTranslation(pair(source, target), record_names)
