"""A Key-Shared group moves between two gateways, with the records settled behind its cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keyway.commit_metadata.core.metadata import decode
from offsets.core.plan import Refusal
from tests.integration.offsets.conftest import Addresses
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.gateway_process import GatewayProcess
from tests.rig.offset_clusters import PlainLink, Services, produce_at, write_config
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration
RECORDS = 40
BASE = 1_700_000_000_000


@pytest.fixture(scope="module")
def gateways(
    pair: Addresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, GatewayProcess]]:
    groups = [{"match": "*", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 1_000}]
    quick = {"commit_interval_ms": 300}
    made = {
        name: GatewayProcess(
            tmp_path_factory.mktemp(name), address, groups=groups, state=quick
        ).start()
        for name, address in pair.items()
    }
    yield made
    for gateway in made.values():
        gateway.stop()


def settle_all_but(member: ShareMember, count: int, held: set[bytes]) -> set[bytes | None]:
    """Takes so many records and accepts those that are not held; the values of the accepted."""
    seen, settled = 0, set[bytes | None]()
    while seen < count:
        got = member.poll_some()
        assert got, f"{seen} of {count} records"
        seen += len(got)
        done = [record for record in got if record.value not in held]
        member.settle("ACCEPT", done)
        settled |= {record.value for record in done}
    return settled


def test_settled_records_do_not_come_again(
    pair: Addresses,
    gateways: dict[str, GatewayProcess],
    both: Callable[..., str],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """On A the records of one key are held, all others are settled; B has records of its own before
    and between the copies, so that every offset is another one.
    """
    topic, group = both(), fresh_name("shared")
    link = PlainLink(("A", pair["A"]), pair["B"])
    produce_at(pair["B"], topic, [(BASE, b"b%d" % at) for at in range(5)])
    produce_at(pair["A"], topic, [(BASE + at, b"a%d" % at) for at in range(RECORDS // 2)])
    link.copy(topic)
    produce_at(pair["B"], topic, [(BASE, b"b%d" % at) for at in range(5, 8)])
    produce_at(pair["A"], topic, [(BASE + at, b"a%d" % at) for at in range(RECORDS // 2, RECORDS)])
    link.copy(topic)
    fronts = {name: gateway.bootstrap for name, gateway in gateways.items()}
    with (
        ShareHost.librdkafka() as host,
        Services.of(write_config(tmp_path, fronts)) as services,
    ):
        member = host.member(fronts["A"], group, [topic], explicit=True)
        settled = settle_all_but(member, RECORDS, {b"a3", b"a30"})
        member.close()
        source = services.by_name["A"].distributor.source

        def told_on_a() -> bool:
            latest = source.latest((group, topic, 0))
            ranges = None if latest is None else decode(latest.offset, latest.metadata)
            return bool(ranges) and latest is not None and latest.offset == 3

        services.until(told_on_a, what="the gateway on A has committed")
        services.until(
            lambda: (
                (row := services.row("B", group, topic)) is not None
                and row.changes
                and row.source_offset == 3
                # All that was settled: a31 to a39 are the last of B's log.
                and (decode(row.new, row.metadata) or [])[-1:] == [(39, 47)]
            ),
            what="committed on B",
        )
        row = services.row("B", group, topic)
        assert (row.new, row.replay) == (0, 0), "b0 is new to the group"

        on_b = host.member(fronts["B"], group, [topic], explicit=True)
        wanted = {b"b%d" % at for at in range(8)} | {b"a3", b"a30"}
        again: list[bytes | None] = []
        while len(again) < len(wanted):
            got = on_b.poll_some()
            assert got, f"only {again} of {wanted}"
            again += [record.value for record in got]
            on_b.settle("ACCEPT", got)
        assert sorted(map(str, again)) == sorted(map(str, wanted))
        assert not on_b.poll_empty(1.0), "nothing that was settled comes again"
        assert not settled & set(again)

        services.until(
            lambda: Refusal.GROUP_ACTIVE in services.row("B", group, topic).refusals,
            what="the gateway tells that the group is at work",
        )
        on_b.close()
    link.close()


@pytest.mark.deep
def test_by_timestamp_it_repeats_no_more_than_planned(
    pair: Addresses,
    gateways: dict[str, GatewayProcess],
    both: Callable[..., str],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """A timestamp tells nothing of the records settled behind the cursor: they come again. Flags in
    metadata are for plain groups: those of a Key-Shared one stay as its gateway reads them.
    """
    topic, group = both(), fresh_name("shared")
    link = PlainLink(("A", pair["A"]), pair["B"])
    produce_at(pair["A"], topic, [(BASE + at, b"a%d" % at) for at in range(10)])
    link.copy(topic)
    fronts = {name: gateway.bootstrap for name, gateway in gateways.items()}
    path = write_config(tmp_path, fronts, mode="timestamp", margin_ms=0, flags_in_metadata=True)
    with ShareHost.librdkafka() as host, Services.of(path) as services:
        member = host.member(fronts["A"], group, [topic], explicit=True)
        settle_all_but(member, 10, {b"a3"})
        member.close()

        def decided() -> bool:
            row = services.row("B", group, topic)
            return row is not None and row.changes and row.source_offset == 3

        services.until(decided, what="committed on B")
        row = services.row("B", group, topic)
        assert (row.new, row.replay) == (3, 7), "a3 counts, too: a timestamp cannot tell"
        commits = services.by_name["B"].distributor.source
        services.until(
            lambda: (
                (there := commits.latest((group, topic, 0))) is not None
                and (there.offset, decode(there.offset, there.metadata)) == (3, [])
            ),
            what="its commit on B, as a gateway reads it",
        )
        on_b = host.member(fronts["B"], group, [topic], explicit=True)
        again: list[bytes | None] = []
        while len(again) < 7:
            got = on_b.poll_some()
            assert got, f"only {again}"
            again += [record.value for record in got]
            on_b.settle("ACCEPT", got)
        assert again == [b"a%d" % at for at in range(3, 10)], "all that was not done, in order"
        on_b.close()
    link.close()


@pytest.mark.deep
def test_the_gateway_believes_it_over_its_own_store(
    pair: Addresses,
    gateways: dict[str, GatewayProcess],
    both: Callable[..., str],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The group was on B before: its window there is in the store of B's gateway."""
    topic, group = both(), fresh_name("shared")
    link = PlainLink(("A", pair["A"]), pair["B"])
    produce_at(pair["A"], topic, [(BASE + at, b"a%d" % at) for at in range(10)])
    link.copy(topic)
    fronts = {name: gateway.bootstrap for name, gateway in gateways.items()}
    with ShareHost.librdkafka() as host:
        member = host.member(fronts["B"], group, [topic], explicit=True)
        first = member.poll_some()
        member.settle("ACCEPT", [record for record in first if record.offset == 0])
        member.close()
        gateways["B"].restart()  # no window is left in its memory
        member = host.member(fronts["A"], group, [topic], explicit=True)
        settle_all_but(member, 10, {b"a7"})
        member.close()
        with Services.of(write_config(tmp_path, fronts)) as services:
            services.until(
                lambda: (
                    (row := services.row("B", group, topic)) is not None
                    and row.changes
                    and row.new == 7
                ),
                what="committed on B",
            )
        member = host.member(fronts["B"], group, [topic], explicit=True)
        got = member.poll_some()
        assert [record.value for record in got] == [b"a7"]
        member.settle("ACCEPT", got)
        assert not member.poll_empty(1.0)
        member.close()
    wait_until(lambda: gateways["B"].running, what="it runs", deadline_s=1)
    link.close()
