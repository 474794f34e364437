"""Settings of a group with the places they come from, their change, and the end of a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gateway.config.groups import GroupSection
from gateway.core.wire.errors import ErrorCode
from gateway.operations.errors import (
    GroupInUse,
    GroupUnknown,
    InvalidOperation,
    StateUnavailable,
    UpstreamRefused,
)
from gateway.operations.group_administration import GroupAdministration, Setting
from gateway.upstream.errors import Unreachable
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP
from tests.rig.virtual_time import run, settle

SECTION = GroupSection(auto_offset_reset="earliest", lock_duration_ms=5_000)


def story(tell: Callable[[Admin, GroupAdministration], Awaitable[None]]) -> None:
    async def work() -> None:
        admin = Admin(section=SECTION)
        async with admin.node as node:
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            await tell(admin, GroupAdministration(admin.offsets, node.settings))

    run(work())


def by_name(settings: list[Setting]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


def test_where_each_setting_comes_from() -> None:
    async def tell(admin: Admin, administration: GroupAdministration) -> None:
        found = by_name(await administration.effective(GROUP))
        lock, limit = found["lock_duration_ms"], found["deliveries_max"]
        assert (lock.value, lock.origin) == (5_000, "keyway.yaml")
        assert (limit.value, limit.origin) == (5, "default")
        assert lock.kafka_name == "share.record.lock.duration.ms"
        assert found["backoff_base_ms"].kafka_name is None
        changed = by_name(
            await administration.alter(GROUP, {"deliveries_max": "3", "lock_duration_ms": "15000"})
        )
        for name, value in (("deliveries_max", 3), ("lock_duration_ms", 15_000)):
            assert (changed[name].value, changed[name].origin) == (value, "kafka")
        assert admin.view.configs["share.delivery.count.limit"] == "3"
        back = by_name(await administration.alter(GROUP, {"lock_duration_ms": None}))
        assert (back["lock_duration_ms"].value, back["deliveries_max"].value) == (5_000, 3)
        assert back["lock_duration_ms"].origin == "keyway.yaml"

    story(tell)


def test_changes_that_are_refused() -> None:
    async def tell(admin: Admin, administration: GroupAdministration) -> None:
        with pytest.raises(InvalidOperation, match="tpoic is no setting"):
            await administration.alter(GROUP, {"tpoic": "1"})
        with pytest.raises(InvalidOperation, match=r"set in keyway\.yaml"):
            await administration.alter(GROUP, {"deliveries_max": "3", "backoff_base_ms": "1"})
        with pytest.raises(GroupUnknown):
            await administration.alter("another", {"deliveries_max": "3"})
        admin.view.refusal = ErrorCode.INVALID_CONFIG
        with pytest.raises(InvalidOperation, match="Kafka's reason"):
            await administration.alter(GROUP, {"deliveries_max": "-1"})
        admin.view.refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(UpstreamRefused, match="GROUP_AUTHORIZATION_FAILED"):
            await administration.alter(GROUP, {"deliveries_max": "3"})
        assert admin.view.configs == {}
        found = by_name(await administration.effective(GROUP))
        assert (found["deliveries_max"].value, found["deliveries_max"].origin) == (5, "default")

    story(tell)


def test_a_group_is_deleted_when_nobody_is_in_it() -> None:
    async def tell(admin: Admin, administration: GroupAdministration) -> None:
        with pytest.raises(GroupInUse):
            await administration.delete(GROUP)
        assert admin.view.deleted == [], "its offsets stay, too"
        admin.node.beat("m1", -1)
        await settle()
        admin.view.refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(UpstreamRefused):
            await administration.delete(GROUP)
        assert await admin.offsets.stored(GROUP), "nothing of it is gone"
        admin.view.refusal = ErrorCode.GROUP_ID_NOT_FOUND  # it never committed
        await administration.delete(GROUP)
        assert not await admin.offsets.stored(GROUP)
        assert admin.node.groups.get(GROUP) is None
        with pytest.raises(GroupUnknown):
            await administration.delete(GROUP)

    story(tell)


def test_an_upstream_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(admin: Admin, administration: GroupAdministration) -> None:
        async def away(*_: object, **__: object) -> None:
            raise Unreachable("broker 1 is away")

        monkeypatch.setattr(admin.view, "call", away)
        with pytest.raises(StateUnavailable, match="broker 1 is away"):
            await administration.alter(GROUP, {"deliveries_max": "3"})
        admin.node.beat("m1", -1)
        await settle()
        with pytest.raises(StateUnavailable, match="broker 1 is away"):
            await administration.delete(GROUP)
        assert await admin.offsets.stored(GROUP)

    story(tell)
