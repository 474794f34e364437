"""Certificates that are read again: by a change of the files, by an order, and not if they are
damaged.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.core.wire.apis import ApiKey
from keyway.tls.certificates import (
    AllCertificates,
    Certificates,
    TlsFiles,
    UnusableFiles,
    plain_context,
)
from tests.rig.certificates import Authority, Issued
from tests.rig.loopback import answers, rig, run
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
DAY_S = 24 * 3600


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def first(authority: Authority) -> Issued:
    return authority.issue("first", days=20)


@pytest.fixture(scope="module")
def second(authority: Authority) -> Issued:
    return authority.issue("second", days=5)


def put(made: Issued, directory: Path) -> TlsFiles:
    """Its files at the place where the node looks, replaced as tools do."""
    files = TlsFiles(cert_file=directory / "own.pem", key_file=directory / "own.key")
    assert files.key_file is not None
    for source, place in ((made.cert_file, files.cert_file), (made.key_file, files.key_file)):
        new = place.with_suffix(".new")
        shutil.copy(source, new)
        new.replace(place)
    return files


async def name_shown(port: int, authority: Authority) -> str:
    """The common name of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.trusting())
    subject = dict(pair[0] for pair in writer.get_extra_info("peercert")["subject"])
    writer.close()
    return str(subject["commonName"])


def test_changed_files_are_taken_and_connections_stay(
    authority: Authority, first: Issued, second: Issued, tmp_path: Path
) -> None:
    async def main() -> None:
        async with rig(tls=put(first, tmp_path)) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            port = gateway.server.addresses[1].port
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=authority.trusting()
            )
            assert await name_shown(port, authority) == "first"
            gateway.server.certificates.look()
            assert gateway.server.certificates.reloads == 0, "nothing has changed"
            put(second, tmp_path)
            gateway.server.certificates.look()
            assert await name_shown(port, authority) == "second"
            assert gateway.server.certificates.reloads == 1
            writer.write(request(HEARTBEAT))
            assert await reader.readexactly(len(response(HEARTBEAT))) == response(HEARTBEAT)
            writer.close()

    run(main())


def test_damaged_files_leave_the_old_certificate(
    authority: Authority, first: Issued, second: Issued, tmp_path: Path
) -> None:
    """Half of a change is damage, too: the key of another certificate."""
    files = put(first, tmp_path)

    async def main() -> None:
        async with rig(tls=files) as gateway:
            port = gateway.server.addresses[1].port
            all_ = gateway.server.certificates
            assert files.key_file is not None
            shutil.copy(second.key_file, files.key_file)
            for _ in range(3):
                all_.look()
            assert (all_.reloads, all_.reloads_failed) == (0, 1)
            (warning,) = [line for line in all_.warnings() if "stays in use" in line]
            assert "the key is not that of the certificate" in warning
            assert str(files.cert_file) in warning
            assert await name_shown(port, authority) == "first"
            shutil.copy(second.cert_file, files.cert_file)
            all_.look()
            assert await name_shown(port, authority) == "second"
            assert not [line for line in all_.warnings() if "stays in use" in line]

    with capture_logs() as logs:
        run(main())
    events = [line["event"] for line in logs if line["event"].startswith("certificates_")]
    assert events == ["certificates_not_reloaded", "certificates_reloaded"]


def test_files_that_cannot_be_used_say_so(first: Issued, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for wrong, told in (
        (TlsFiles(cert_file=nothing), "No such file"),
        (TlsFiles(cert_file=text), "no PEM certificate and key"),
        (TlsFiles(cert_file=first.cert_file), "no PEM certificate and key"),
        (
            TlsFiles(
                cert_file=first.cert_file,
                key_file=first.key_file,
                client_ca_file=text,
                client_auth=ssl.CERT_REQUIRED,
            ),
            "client_ca_file",
        ),
    ):
        with pytest.raises(UnusableFiles, match=told) as refused:
            Certificates("clients", wrong, plain_context)
        assert "\n" not in str(refused.value)


def test_an_encrypted_key(authority: Authority) -> None:
    made = authority.issue("locked", password="hunter2")
    files = TlsFiles(cert_file=made.cert_file, key_file=made.key_file, key_password="hunter2")
    assert "hunter2" not in repr(files)
    assert Certificates("clients", files, plain_context).expiring
    for password in (None, "swordfish"):
        wrong = TlsFiles(cert_file=made.cert_file, key_file=made.key_file, key_password=password)
        with pytest.raises(UnusableFiles, match="another key_password") as refused:
            Certificates("clients", wrong, plain_context)
        assert "swordfish" not in str(refused.value)


def test_the_end_of_each_certificate(
    authority: Authority, first: Issued, second: Issued, tmp_path: Path
) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_text(second.cert_file.read_text() + first.cert_file.read_text())
    files = TlsFiles(
        cert_file=chain,
        key_file=second.key_file,
        client_ca_file=authority.ca_file,
        client_auth=ssl.CERT_REQUIRED,
    )
    port = Certificates("outside", files, plain_context)
    now_s = datetime.now(UTC).timestamp()
    days = [round((certificate.expires_s - now_s) / DAY_S) for certificate in port.expiring]
    places = [(certificate.file, certificate.position) for certificate in port.expiring]
    assert days == [5, 20, 30]
    assert places == [("cert_file", 0), ("cert_file", 1), ("client_ca_file", 0)]

    def told(in_days: int) -> tuple[list[str], list[str]]:
        later = AllCertificates(lambda: now_s + in_days * DAY_S)
        later.add(port)
        return later.troubles(), later.warnings()

    troubles, warnings = told(0)
    assert not troubles
    (warning,) = warnings
    assert warning.startswith("listener outside: certificate of cert_file expires on 20")
    troubles, warnings = told(6)
    (trouble,) = troubles
    assert trouble.startswith("listener outside: certificate of cert_file expired on 20")
    assert len(warnings) == 1, "of the second in the chain"
