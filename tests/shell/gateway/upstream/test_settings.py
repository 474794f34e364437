"""The context of TLS towards the upstream while its files are replaced."""

from __future__ import annotations

import os
from pathlib import Path

from structlog.testing import capture_logs

from gateway.upstream.settings import FreshContext, TlsSettings
from tests.rig.certificates import Authority


def test_new_files_count_and_unusable_ones_do_not(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("gateway")
    context = FreshContext(
        TlsSettings(ca_file=issued.cert_file, cert_file=issued.cert_file, key_file=issued.key_file)
    )
    first = context()
    assert context() is first
    os.utime(issued.cert_file, ns=(1, 1))
    second = context()
    assert second is not first
    key = issued.key_file.read_bytes()
    issued.key_file.unlink()
    with capture_logs() as logs:
        assert context() is context() is second
    assert [line["event"] for line in logs] == ["upstream_tls_files_unusable"]
    issued.key_file.write_bytes(key)
    assert context() is not second
