"""`keyway filter list`, `set` and `remove`: the key filters of a group."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.admin.rows import FilterPreview, KeyFilterRules
from gateway.cli.node_client import Answer, ask, end_if_unanswered, path_with
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    ExecuteOption,
    Output,
    Watching,
    WatchOption,
)
from gateway.cli.tables import View, counted, print_data, print_table, show
from gateway.core.share.declared_filters import MARK, InvalidKeyFilters, client_name, inline_filters

app = typer.Typer(
    help="Key filters: the keys that the members of a group take.", no_args_is_help=True
)


@app.command("list", cls=Watching)
def filter_list(
    group: str,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show a group's rules. The first one whose client id matches a member decides its keys."""

    def look() -> View:
        answer = _rules_of(group, admin)
        return View(answer.raw, lambda: _print_rules(answer, "table"))

    show(look, output, watch)


@app.command("set")
def filter_set(
    group: str,
    rule: Annotated[
        list[str],
        typer.Option(help="CLIENT-ID;keys=GLOB|GLOB, as in a client.id; may be repeated."),
    ],
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Replace all rules of a group, those of keyway.yaml included, in the order given.

    Without --execute it only shows the change.
    """
    rules = [_rule(text) for text in rule]
    if execute:
        _print_rules(_changed(group, admin, "PUT", {"rules": rules}), output)
        return
    _print_change(_rules_of(group, admin), _effect(group, admin, rules), rules, output)


@app.command("remove")
def filter_remove(
    group: str,
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Remove the rules that were set for a group: those of keyway.yaml count again.

    Without --execute it only shows the change.
    """
    if execute:
        _print_rules(_changed(group, admin, "DELETE", None), output)
        return
    _print_change(_rules_of(group, admin), _effect(group, admin, None), None, output)


def _rules_of(group: str, admin: str) -> Answer[KeyFilterRules]:
    return ask(admin, path_with("/v1/filters", group=group), KeyFilterRules)


def _changed(
    group: str, admin: str, method: str, body: dict[str, Any] | None
) -> Answer[KeyFilterRules]:
    path = path_with("/v1/filters", group=group)
    return ask(admin, path, KeyFilterRules, method=method, body=body)


def _effect(group: str, admin: str, rules: list[dict[str, Any]] | None) -> Answer[FilterPreview]:
    path = path_with("/v1/filters/preview", group=group)
    return ask(admin, path, FilterPreview, method="POST", body={"rules": rules})


def _rule(text: str) -> dict[str, Any]:
    """One rule in the form in which a client declares its own filters (docs/key-filters.md)."""
    name = client_name(text)
    if not name or MARK not in text:
        raise typer.BadParameter(f"{text!r}: CLIENT-ID{MARK}GLOB|GLOB is expected")
    try:
        return {"client_id": name, "keys": [glob.decode() for glob in inline_filters(text)]}
    except (InvalidKeyFilters, UnicodeDecodeError) as invalid:
        raise typer.BadParameter(f"{text!r}: {invalid}") from invalid


def _print_rules(answer: Answer[KeyFilterRules], output: str) -> None:
    if output != "table":
        print_data(answer.raw, output)
        return
    source = "keyway.yaml" if answer.row.source == "config" else "set"
    rules = answer.row.rules
    print_table(
        ("CLIENT-ID", "KEYS", "FROM"),
        [(rule.client_id, " | ".join(rule.keys), source) for rule in rules],
    )
    if not rules:
        typer.echo("no rules: members take every key, or those their client.id declares")


def _print_change(
    now: Answer[KeyFilterRules],
    effect: Answer[FilterPreview],
    rules: list[dict[str, Any]] | None,
    output: str,
) -> None:
    """`rules`: the rules to be set. None: the rules of keyway.yaml, which only the node knows."""
    if output != "table":
        change = {"dry_run": True, "now": now.raw, "rules": rules, "effect": effect.raw}
        print_data(change, output)
        end_if_unanswered(effect.raw)
        return
    _print_rules(now, output)
    every = "every key"
    members = [
        (
            member.member_id,
            member.client_id,
            " | ".join(member.before) or every,
            " | ".join(member.after) or every,
        )
        for member in effect.row.members
    ]
    if members:
        print_table(("CONSUMER-ID", "CLIENT-ID", "KEYS-NOW", "KEYS-THEN"), members)
    keys = effect.row.keys
    if keys.known:
        typer.echo(
            f"of {counted(keys.known, 'key')} with unsettled records {keys.moved} would change"
            f" hands, {keys.dropped} would have no owner: their records count as settled"
        )
    else:
        typer.echo(
            "no unsettled record is in memory: if the group has some, it cannot be told which of"
            " them would have no owner and count as settled"
        )
    instead = "the rules of keyway.yaml" if rules is None else counted(len(rules), "rule")
    typer.echo(f"would be replaced by {instead}; nothing is done without --execute")
    end_if_unanswered(effect.raw)
