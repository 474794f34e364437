"""A long JSON text, read value by value: to read it at once would hold the interpreter, and with it
all clients of the node, for as long as that takes.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from json import JSONDecoder
from typing import Any, Final

from gateway.admin.limits import STATUS_PORTION_BYTES

_DECODER: Final = JSONDecoder()
_BLANKS: Final = " \t\n\r"
_ENDS: Final = f"{_BLANKS},:]}}"  # behind a value that is whole: `1` may be the beginning of `1.5`


class JsonReader:
    """Each method raises ValueError where the text is another one. `pause` is called after every
    portion.
    """

    def __init__(
        self, text: bytes, pause: Callable[[], None], portion: int = STATUS_PORTION_BYTES
    ) -> None:
        self._rest = memoryview(text)
        self._pause = pause
        self._portion = portion
        self._decoder = getincrementaldecoder("utf-8")()
        self._window = ""  # characters, read up to `_at`
        self._at = 0

    def items(self) -> Iterator[None]:
        """Yields once before each value of a list; the caller reads the value."""
        self._take("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield
            if self._take(",]") == "]":
                return

    def names(self) -> Iterator[str]:
        """Yields each name of an object before its value; the caller reads the value."""
        self._take("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            name, _ = self.value()
            if not isinstance(name, str):
                raise ValueError(f"{name!r} is no name")
            self._take(":")
            yield name
            if self._take(",}") == "}":
                return

    def value(self) -> tuple[Any, str]:
        """The next value, and its text."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._window, self._at)
            except ValueError:
                self._more()
                continue
            if self._window[end : end + 1] in _ENDS and (end < len(self._window) or not self._rest):
                text = self._window[self._at : end]
                self._at = end
                return value, text
            self._more()

    def _take(self, expected: str) -> str:
        found = self._next()
        if found not in expected:
            raise ValueError(f"{found!r} in place of {' or '.join(expected)}")
        self._at += 1
        return found

    def _next(self) -> str:
        """The next character that is no blank; it is not read yet."""
        while True:
            while self._at < len(self._window):
                found = self._window[self._at]
                if found not in _BLANKS:
                    return found
                self._at += 1
            self._more()

    def _more(self) -> None:
        """Twice as much each time for a value that is longer than a portion."""
        if not self._rest:
            raise ValueError("the text is cut off")
        self._pause()
        size = max(self._portion, len(self._window) - self._at)
        self._window = self._window[self._at :] + self._decoder.decode(self._rest[:size])
        self._rest = self._rest[size:]
        self._at = 0
