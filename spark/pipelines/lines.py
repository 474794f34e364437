"""YAML that remembers its lines, so that an error can name the line of a value deep inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

Location = Sequence[str | int]


class YamlFault(Exception):
    """The text is no YAML, or a key occurs twice: the line, and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True, slots=True)
class LinedYaml:
    """`value`: the document as Python values."""

    value: Any
    _root: yaml.Node | None

    def line(self, location: Location) -> int:
        """The line of the value there, counted from 1; if it is not in the text, that of the
        nearest value around it.
        """
        node = self._root
        line = 1 if node is None else node.start_mark.line + 1
        for step in location:
            found = _entry(node, step)
            if found is None:
                break
            line, node = found
        return line


def _entry(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None


def read_yaml(text: str) -> LinedYaml:
    """Raises YamlFault. Its reason never quotes the text, which may hold a password."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return LinedYaml(None, None)
        _no_key_twice(root, set())
        return LinedYaml(loader.construct_document(root), root)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise YamlFault(line, f"not valid YAML: {error.problem or 'broken'}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlFault(1, f"not valid YAML ({type(error).__name__})") from None
    except RecursionError:
        raise YamlFault(1, "nested too deeply") from None


def _no_key_twice(node: yaml.Node, done: set[int]) -> None:
    """PyYAML takes the last of two equal keys and drops the first without a word."""
    if id(node) in done:  # an alias
        return
    done.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise YamlFault(key.start_mark.line + 1, f"{key.value} is given twice")
                keys.add(key.value)
            _no_key_twice(value, done)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _no_key_twice(item, done)
