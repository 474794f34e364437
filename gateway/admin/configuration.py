"""The configuration that runs beside the file it was read from, and its reload.

A reload takes over the tokens and the masks of REST, the limits of clients, and the settings of
groups, key filters included. All else is built once, at the start: it is named, and needs a
restart. So do settings that shape a window (SHAPE), as long as the node knows a group with another
value of one of them; then no group's settings are taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from gateway.admin.node_rows import ConfigRow, OptionDifference, ReloadRow
from gateway.admin.tokens import Tokens
from gateway.config.file import Config, ConfigError, ConfigSource
from gateway.core.client_limits.rules import Rule
from gateway.members.group_settings import GroupSettings
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters

log = structlog.get_logger("keyway.admin")

AT_ONCE = ("admin.tokens", "admin.masks", "limits")  # options that a reload always takes over
GROUPS = "groups"
SHAPE = ("reliable", "span_max", "prefetch_per_key", "bounded_load")


@dataclass(slots=True)
class Configuration:
    running: Config
    source: ConfigSource
    tokens: Tokens
    settings: GroupSettings
    filters: KeyFilters
    groups: Groups
    limit: Callable[[Sequence[Rule]], None] = lambda _: None

    def shown(self) -> ConfigRow:
        problem, differences = None, []
        try:
            differences = self._differences(self.source.read())
        except ConfigError as error:
            problem = str(error)
        return ConfigRow(
            file=None if self.source.path is None else str(self.source.path),
            config=self.running.model_dump(mode="json"),
            differences=differences,
            problem=problem,
        )

    def reload(self) -> ReloadRow:
        """Raises ConfigError; nothing has changed then."""
        new = self.source.read()
        before = self._differences(new)
        admin = self.running.admin.model_copy(
            update={"tokens": new.admin.tokens, "masks": new.admin.masks}
        )
        taken: dict[str, Any] = {"admin": admin, "limits": new.limits}
        if self._same_shape(new):
            taken["groups"] = new.groups
        self.running = self.running.model_copy(update=taken)
        self.tokens.replace(new.admin.tokens)
        self.limit([section.rule() for section in new.limits])
        rules = {name: self.filters.rules(name) for name in self.groups.names()}
        self.settings.reload(self.running)
        self.filters.reload(self.running)
        for name, was in rules.items():
            if self.filters.rules(name) != was:
                self.groups.filters_changed(name)
        left = {difference.option for difference in self._differences(new)}
        row = ReloadRow(
            reloaded=[difference.option for difference in before if difference.option not in left],
            restart=sorted(left),
        )
        log.info("config_reloaded", reloaded=row.reloaded, restart=row.restart)
        return row

    def _differences(self, file: Config) -> list[OptionDifference]:
        running, wanted = dict(options(self.running)), dict(options(file))
        names = [*running, *(name for name in wanted if name not in running)]
        same_shape = self._same_shape(file)
        return [
            OptionDifference(
                option=name,
                running=to_jsonable_python(running.get(name)),  # secrets as stars
                file=to_jsonable_python(wanted.get(name)),
                reload=name.startswith(AT_ONCE) or (name.startswith(GROUPS) and same_shape),
            )
            for name in names
            if running.get(name) != wanted.get(name)
        ]

    def _same_shape(self, file: Config) -> bool:
        """Whether the windows of all groups that the node knows keep their form."""
        return all(
            getattr(self.running.group(name), option) == getattr(file.group(name), option)
            for name in self.groups.names()
            for option in SHAPE
        )


def options(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Each option with its value, by its place in the file: `groups.0.deliveries_max`."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from options(getattr(value, name), f"{place}.{name}".lstrip("."))
    elif isinstance(value, tuple) and any(isinstance(entry, BaseModel) for entry in value):
        for at, entry in enumerate(value):
            yield from options(entry, f"{place}.{at}")
    else:
        yield place, value
