"""A key or value that is one text without fields: only the empty path leads somewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spark.transforms.core.paths import WHOLE, Path
from spark.transforms.core.values import Number, Scalar, UnreadableRecord, Value, described


class TextDocument:
    """One text in UTF-8."""

    __slots__ = ("_data", "_root", "changed", "lacking")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._root: str | None = None
        self.changed = False
        self.lacking = False

    def places(self, path: Path) -> list[TextLocation]:
        assert path == WHOLE, "refused when the pipeline was loaded"
        if self._root is None:
            try:
                self._root = self._data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UnreadableRecord(f"not UTF-8 at byte {error.start}") from None
        return [TextLocation(self)]

    def encode(self) -> bytes:
        if not self.changed or self._root is None:
            return self._data
        return self._root.encode("utf-8")

    @property
    def text(self) -> str:
        assert self._root is not None
        return self._root

    @text.setter
    def text(self, text: str) -> None:
        self._root = text
        self.changed = True


@dataclass(frozen=True, slots=True)
class TextLocation:
    document: TextDocument

    @property
    def value(self) -> Value:
        return self.document.text

    def replace(self, value: Scalar) -> None:
        if not isinstance(value, str):
            raise UnreadableRecord(f"a text cannot hold {described(value)}")
        self.document.text = value

    def retype(self, value: Scalar, kind: Literal["long", "string"]) -> None:  # noqa: ARG002
        self.document.text = value.text if isinstance(value, Number) else str(value)

    def rename(self, name: str) -> None:  # noqa: ARG002
        raise AssertionError("refused when the pipeline was loaded")

    def remove(self) -> None:
        raise AssertionError("refused when the pipeline was loaded")
