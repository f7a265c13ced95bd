"""Certificates for tests, generated with the openssl program."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporters.configuration.tls import Certificate
from tests.support.waiting import HANG

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl program is missing")


@dataclass(frozen=True)
class Authority:
    """A certificate authority; the files of all certificates are in `folder`."""

    folder: Path

    @property
    def ca(self) -> str:
        return str(self.folder / "authority.pem")

    def issue(self, name: str, *, days: int = 30, address: str = "127.0.0.1", algorithm: str = "ec") -> Certificate:
        files = self._files(name)
        names = ("-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE")
        signed = ("-CA", self.ca, "-CAkey", self._files("authority").key)
        self._make(files, *signed, *names, "-days", str(days), algorithm=algorithm)
        return files

    def client(self) -> ssl.SSLContext:
        """The TLS context of a client that trusts this authority."""
        return ssl.create_default_context(cafile=self.ca)

    def _files(self, name: str) -> Certificate:
        return Certificate(cert=str(self.folder / f"{name}.pem"), key=str(self.folder / f"{name}.key"))

    def _make(self, files: Certificate, *words: str, algorithm: str = "ec") -> None:
        kind = ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"] if algorithm == "ec" else [algorithm]
        subject = f"/CN={Path(files.cert).stem}"
        command = ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-subj", subject, *words]
        subprocess.run(
            [*command, "-keyout", files.key, "-out", files.cert], check=True, capture_output=True, timeout=HANG
        )


def authority(folder: Path) -> Authority:
    signer = Authority(folder)
    folder.mkdir()
    uses = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    signer._make(signer._files("authority"), *uses)
    return signer
