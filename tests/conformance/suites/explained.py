"""Differences that are known, and their reasons: a row of the published page each."""

from __future__ import annotations

from tests.conformance.suites.compared import Explained

EXPLAINED: tuple[Explained, ...] = ()
