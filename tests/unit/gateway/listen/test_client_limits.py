"""Connections whose account is not known yet count by their address."""

from __future__ import annotations

from structlog.testing import capture_logs

from gateway.core.client_limits.rules import Per, Rule, Who
from gateway.listen.client_limits import ClientLimits
from gateway.listen.limits import UNDECIDED_MIN

MANY = 2 * UNDECIDED_MIN
TENANTS = Rule(name="tenants", principal="t-*", per=Per.PRINCIPAL, connections=MANY)


def others(connections: int) -> tuple[Rule, ...]:
    return (TENANTS, Rule(name="others", per=Per.ADDRESS, connections=connections))


def comes(limits: ClientLimits, connection: int, who: Who) -> bool:
    account = limits.account(connection, who)
    admitted = limits.admits(connection, account, who)
    if account is not None and admitted:
        account.connections.add(connection)
    if not admitted:
        limits.left(connection, who.address)
    return admitted


def of(address: str, principal: str | None = None) -> Who:
    return Who(address=address, client_id="c", principal=principal)


def test_strangers_of_one_address_are_few() -> None:
    limits = ClientLimits.of(others(MANY))
    with capture_logs() as logs:
        admitted = [comes(limits, number, of("a")) for number in range(3 * MANY)]
    assert admitted == [True] * MANY + [False] * 2 * MANY
    assert [line["event"] for line in logs] == ["connections_refused"]
    account = limits.accounts.of_address(of("a"), 0)
    assert account is not None
    assert account.refused == 2 * MANY
    assert comes(limits, 1_000, of("b")), "another address has its own"


def test_who_is_known_makes_room_and_is_not_kept_out_by_those_who_are() -> None:
    limits = ClientLimits.of(others(MANY))
    for number in range(MANY):
        assert comes(limits, number, of("a", "else"))
    for number in range(MANY, 2 * MANY):
        assert comes(limits, number, of("a"))
        assert comes(limits, number, of("a", "t-1"))
    assert not comes(limits, 2 * MANY, of("a", "t-1")), "its own limit"
    assert comes(limits, 3 * MANY, of("a")), "all are known"
    limits.left(3 * MANY, "a")


def test_a_rule_of_few_leaves_room_for_logins() -> None:
    limits = ClientLimits.of(others(0))
    admitted = [comes(limits, number, of("a")) for number in range(MANY)]
    assert admitted == [True] * UNDECIDED_MIN + [False] * (MANY - UNDECIDED_MIN)
    assert not comes(limits, MANY, of("a", "else"))


def test_without_a_rule_for_any_client_of_an_address_there_is_no_limit() -> None:
    limits = ClientLimits.of([TENANTS])
    assert all(comes(limits, number, of("a")) for number in range(3 * MANY))
    limits = ClientLimits.of([TENANTS, Rule(name="slow", requests_per_s=1)])
    assert all(comes(limits, number, of("a")) for number in range(3 * MANY))
