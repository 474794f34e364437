"""Certificates for tests of TLS: an authority and what it signs, by openssl."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")  # made in a moment


@dataclass(frozen=True, slots=True)
class Issued:
    """PEM files."""

    cert_file: Path
    key_file: Path

    def as_options(self) -> dict[str, str]:
        """As keyway.yaml has them."""
        return {"cert_file": str(self.cert_file), "key_file": str(self.key_file)}


class Authority:
    """Its certificate is `ca_file`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        made = Issued(directory / f"{name}.pem", directory / f"{name}.key")
        _openssl(made, f"/CN={name}", "-nodes", "-days", "30")
        self.ca_file = made.cert_file
        self._key_file = made.key_file

    def issue(
        self,
        name: str,
        *,
        subject: str | None = None,
        alternatives: str = "DNS:localhost,IP:127.0.0.1",
        days: int = 20,
        password: str | None = None,
        key: tuple[str, ...] = EC,
    ) -> Issued:
        """`alternatives` in openssl's form; `password`: the key is encrypted with it."""
        made = Issued(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        secret = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        _openssl(
            made,
            subject or f"/CN={name}",
            *secret,
            *("-CA", str(self.ca_file), "-CAkey", str(self._key_file), "-days", str(days)),
            *("-addext", f"subjectAltName={alternatives}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            key=key,
        )
        return made

    def trusting(self, client: Issued | None = None) -> ssl.SSLContext:
        """Of a client that trusts this authority; `client`: its own certificate."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        if client is not None:
            context.load_cert_chain(client.cert_file, client.key_file)
        return context


def _openssl(made: Issued, subject: str, *options: str, key: tuple[str, ...] = EC) -> None:
    command = ["openssl", "req", "-x509", *key, "-utf8", "-subj", subject, *options]
    command += ["-keyout", str(made.key_file), "-out", str(made.cert_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
