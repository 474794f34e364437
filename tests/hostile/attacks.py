"""The attacks by name. `python -m tests.hostile.attacks NAME SECONDS TARGET-AS-JSON` runs one and
prints its deeds.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from gateway.core.identity.exchange import Denial
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.counters import Refused
from tests.hostile.measured import NO_ANSWER, STALL_AT_A_LIMIT_MS_MAX, Bars
from tests.hostile.on_bytes import (
    answers_nobody_reads,
    at_the_door,
    byte_by_byte,
    configs_of_everything,
    half_requests,
    long_before_a_login,
    many_elements,
    more_clients_than_files,
    plain_fetches_nobody_reads,
)
from tests.hostile.on_groups import (
    comes_and_goes,
    groups_that_all_fetch,
    groups_that_never_fetch,
    late_and_gone,
    long_client_ids,
    long_member_ids,
    many_groups_are_listed,
    names_of_no_topic,
    rejects_everything,
    sessions_of_strangers,
    two_connections,
)
from tests.hostile.on_limits import LIMITS, tenant_beyond_its_limit
from tests.hostile.on_logins import (
    logins_that_stop,
    long_bearer_messages,
    malformed_logins,
    wrong_order,
    wrong_passwords,
)
from tests.hostile.on_nodes import (
    LOG_READER,
    broker_that_hangs,
    configured_just_before,
    log_nobody_takes,
    planned_stop,
)
from tests.hostile.on_operators import names_that_are_none, rules_without_end
from tests.hostile.on_records import inflating_message, large_batches, tiny_records
from tests.hostile.target import Attack, Target

BARS = Bars()


@dataclass(frozen=True, slots=True)
class Row:
    """An attack, the node it is made on, and its bars. The node has its usual limits but for those
    named here.
    """

    attack: Attack
    bars: Bars = BARS
    open_files_max: int | None = None
    stderr: str | None = None  # as of a GatewayProcess
    limits: tuple[dict[str, Any], ...] = ()  # as well
    seconds_min: float = 0.0  # of the rest before it and of the attack
    logins: bool = False  # clients come to a listener that authenticates them

    @property
    def name(self) -> str:
        return self.attack.__name__


def refused(reason: Refused) -> str:
    return f'keyway_server_refused_total{{reason="{reason.value}"}}'


def answered(api: ApiKey, error: ErrorCode) -> str:
    labels = f'api="{api.name.lower()}",error="{error.name.lower()}"'
    return f"keyway_server_requests_refused_total{{{labels}}}"


def login(mechanism: str, outcome: Denial) -> str:
    labels = f'listener="sasl",mechanism="{mechanism}",outcome="{outcome.value}"'
    return f"keyway_logins_total{{{labels}}}"


def rest(status: int) -> str:
    return f'keyway_rest_refused_total{{status="{status}"}}'


P99_BESIDE_A_TENANT_RATIO_MAX = 1.2
TENANT_S = 20.0  # 2,000 records: their p99 is not the chance of one or two of them
# A single record or batch at its limit may hold the node up for longer.
AT_A_LIMIT = Bars(stall_ms_max=STALL_AT_A_LIMIT_MS_MAX)

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row(many_groups_are_listed),
        Row(groups_that_never_fetch),
        Row(
            groups_that_all_fetch,
            Bars(
                refusals=(answered(ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.GROUP_MAX_SIZE_REACHED),)
            ),
        ),
        Row(names_of_no_topic),
        Row(
            log_nobody_takes,
            Bars(health=frozenset({"degraded"}), rest_health="degraded"),  # the reader stays away
            stderr=f"> >(exec {LOG_READER})",
        ),
        Row(
            planned_stop,
            Bars(serving=False, health=frozenset({"not ready", NO_ANSWER}), ends=1),
        ),
        Row(
            sessions_of_strangers,
            Bars(refusals=(answered(ApiKey.SHARE_FETCH, ErrorCode.UNKNOWN_MEMBER_ID),)),
        ),
        Row(tiny_records, AT_A_LIMIT),
        Row(large_batches, AT_A_LIMIT),
        Row(
            inflating_message,
            Bars(stall_ms_max=STALL_AT_A_LIMIT_MS_MAX, health=frozenset({"degraded"})),
        ),
        Row(configs_of_everything),
        Row(answers_nobody_reads),
        Row(plain_fetches_nobody_reads),
        Row(at_the_door, Bars(refusals=(refused(Refused.NOT_KAFKA),))),
        Row(half_requests, Bars(refusals=(refused(Refused.REQUESTS_HELD),))),
        Row(long_before_a_login, Bars(refusals=(refused(Refused.MALFORMED_REQUEST),))),
        Row(
            many_elements,
            Bars(refusals=(answered(ApiKey.SHARE_FETCH, ErrorCode.INVALID_REQUEST),)),
        ),
        Row(byte_by_byte, Bars(refusals=(refused(Refused.MALFORMED_REQUEST),))),
        Row(comes_and_goes),
        Row(
            long_member_ids,
            Bars(
                refusals=(answered(ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.INVALID_REQUEST),),
            ),
        ),
        Row(
            long_client_ids,
            Bars(
                refusals=(answered(ApiKey.SHARE_GROUP_HEARTBEAT, ErrorCode.INVALID_REQUEST),),
                warnings_max=20,
            ),
        ),
        Row(
            more_clients_than_files,
            Bars(
                health=frozenset({"degraded"}),
                refusals=(refused(Refused.TOO_MANY_CLIENTS),),
            ),
            open_files_max=512,
        ),
        Row(
            wrong_passwords,
            Bars(refusals=(login("PLAIN", Denial.CREDENTIALS),), warnings_max=20),
            logins=True,
        ),
        Row(
            malformed_logins,
            Bars(
                refusals=(
                    *(login(way, Denial.MALFORMED) for way in ("PLAIN", "SCRAM-SHA-512")),
                    login("OAUTHBEARER", Denial.TOKEN),
                    login("other", Denial.MECHANISM),
                ),
            ),
            logins=True,
        ),
        Row(
            long_bearer_messages,
            Bars(
                refusals=(
                    login("OAUTHBEARER", Denial.MALFORMED),
                    login("OAUTHBEARER", Denial.TOKEN),
                ),
            ),
            logins=True,
        ),
        Row(logins_that_stop, logins=True),
        Row(
            wrong_order,
            Bars(
                refusals=(
                    refused(Refused.BEFORE_AUTHENTICATION),
                    login("SCRAM-SHA-512", Denial.OUT_OF_ORDER),
                ),
            ),
            logins=True,
        ),
        Row(rules_without_end, Bars(refusals=(rest(409),))),
        Row(names_that_are_none, Bars(refusals=(rest(400), rest(404)))),
        Row(two_connections),
        Row(
            tenant_beyond_its_limit,
            Bars(
                p99_ratio_max=P99_BESIDE_A_TENANT_RATIO_MAX,
                refusals=(
                    'keyway_limits_muted_total{rule="tenant"}',
                    'keyway_limits_throttled_seconds_total{rule="tenant"}',
                ),
            ),
            limits=LIMITS,
            seconds_min=TENANT_S,
        ),
        Row(configured_just_before),
        Row(rejects_everything, Bars(warnings_max=20)),  # all of one group: a few lines
        Row(late_and_gone),
        # The last: Kafka's own share group, beside which others are judged, needs half a minute.
        Row(broker_that_hangs, Bars(serving=False, health=frozenset({"not ready"}))),
    )
}


if __name__ == "__main__":
    name, seconds, target = sys.argv[1:]
    did = ROWS[name].attack(Target(**json.loads(target)), float(seconds))
    sys.stdout.write(did + "\n")
