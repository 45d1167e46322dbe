"""Certificates of one's own making, for servers that speak TLS on loopback."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=2)


class Authority:
    """Signs servers' certificates. `file`: its own one, for those who are to trust it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = (
            _begun(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def certify(self, folder: Path, host: str, owner: int | None) -> dict[str, str]:
        """A server's settings, with a key and a certificate for a host, in its folder.

        Args:
            owner: the user who runs it, where that is another one.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _begun(_named(host), self._name, key)
            .add_extension(x509.SubjectAlternativeName([_place(host)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        (folder / "server.pem").write_bytes(_pem(certificate))
        secret = folder / "server.key"
        secret.touch(mode=0o600)
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        if owner is not None:
            os.chown(secret, owner, -1)
        return {
            "ssl": "on",
            "ssl_cert_file": f"'{folder}/server.pem'",
            "ssl_key_file": f"'{secret}'",
        }


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
