"""The topics of one cluster, remembered from look to look.

One question lists all topics with the number of their partitions. So a look asks by name only for
the topics of which the list says something new, and for a share of the others in turn: a topic that
was deleted and made anew with as many partitions looks the same in the list. (A link reads nothing
of such a topic meanwhile: it asks for the ids of what a batch reads before it writes.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from spark.streaming.core.survey import Topic
from spark.streaming.kafka import KafkaSide, chosen
from spark.streaming.limits import CONFIGS_AT_ONCE, CONFIGS_S, IDENTITIES_AT_ONCE


@dataclass(frozen=True, slots=True)
class _Identity:
    topic_id: str
    partitions: int
    asked_s: float


@dataclass(frozen=True, slots=True)
class _Configs:
    topic_id: str
    values: Mapping[str, str]
    asked_s: float


class KnownTopics:
    """Methods raise KafkaException if the cluster does not answer."""

    def __init__(
        self,
        side: KafkaSide,
        configs: Collection[str] = (),
        needed: AclOperation | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`configs`: names of configs that are wanted besides those that are compared. `needed`: a
        topic without this right is `denied`, as one that may not be described.
        """
        self.side = side
        self.denied: dict[str, str] = {}  # of the last look: Kafka's words
        self._wanted = configs
        self._needed = needed
        self._clock = clock
        self._listed: dict[str, int] = {}
        self._known: dict[str, _Identity] = {}
        self._configs: dict[str, _Configs] = {}

    def listed(self) -> Collection[str]:
        """The names that the cluster lists now. A topic that is not listed may exist."""
        self._listed = self.side.listed()
        return self._listed.keys()

    def look(self, names: Sequence[str], at_work: Collection[str] = ()) -> dict[str, Topic]:
        """Those of `names` that exist; call `listed` before. The configs of topics `at_work` are
        asked for each time, others once a minute, because a broker's answer is long. If there are
        many, they take turns.
        """
        self._ask_identities(names)
        self._ask_configs(at_work)
        return {
            name: Topic(name, identity.topic_id, identity.partitions, configs.values)
            for name, identity in self._known.items()
            if (configs := self._configs.get(name)) is not None
        }

    def _ask_identities(self, names: Sequence[str]) -> None:
        news = [name for name in names if self._is_news(name)]
        rest = set(names).difference(news)
        turn = sorted(rest, key=lambda name: self._known[name].asked_s)[:IDENTITIES_AT_ONCE]
        asked = {*news, *turn}
        now_s = self._clock()
        known = {name: self._known[name] for name in rest - asked}
        self.denied = {}  # they are never known, and asked for at each look
        for name, answer in self.side.described(sorted(asked), self._needed).items():
            if not isinstance(answer, KafkaError):
                known[name] = _Identity(*answer, asked_s=now_s)
            elif answer.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.denied[name] = answer.str()
        self._known = {name: known[name] for name in names if name in known}

    def _is_news(self, name: str) -> bool:
        known = self._known.get(name)
        return known is None or self._listed.get(name) != known.partitions

    def _ask_configs(self, at_work: Collection[str]) -> None:
        self._configs = {
            name: configs
            for name, configs in self._configs.items()
            if name in self._known and configs.topic_id == self._known[name].topic_id
        }
        unknown = self._known.keys() - self._configs.keys()
        old_s = self._clock() - CONFIGS_S
        turns = [name for name, configs in self._configs.items() if configs.asked_s < old_s]
        asked = sorted({*unknown, *self._share(at_work), *self._share(turns)})
        for name, values in self.side.configs(asked).items():
            topic_id = self._known[name].topic_id
            self._configs[name] = _Configs(topic_id, chosen(values, self._wanted), self._clock())

    def _share(self, names: Iterable[str]) -> list[str]:
        """The topics whose configs were asked for longest ago."""
        known = self._configs.keys() & set(names)
        return sorted(known, key=lambda name: self._configs[name].asked_s)[:CONFIGS_AT_ONCE]
