"""Certificates for TLS, each signed by an authority that is made for one tracker.

Keys are of the curve P-256, which OpenSSL, BoringSSL (gRPC) and Java all take. Nothing here is kept: the
caller owns what is made.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
BACKDATED = timedelta(minutes=5)
"""By how much a certificate is older than it is, for clocks that are behind."""
MAX_COMMON_NAME = 64
"""Characters, by X.509. What a certificate is valid for stands in its alternative names."""
RENEWED_AT = 1 / 3
"""Of a certificate's life: what is left of it when a new one takes its place."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    cert: bytes
    key: bytes


class Authority:
    """What signs certificates."""

    def __init__(self, pair: Pair) -> None:
        """Raises ValueError for what is no pair of a certificate and its key."""
        self.pair = pair
        self._cert = x509.load_pem_x509_certificate(pair.cert)
        self._key = _private_key(pair.key)
        if self._key.public_key() != self._cert.public_key():
            raise ValueError("the authority's key is not that of its certificate")

    @classmethod
    def made(cls, name: str, now: datetime) -> Authority:
        """A new one. now: with a time zone."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named(name)
        builder = _builder(subject, subject, key, now, now + timedelta(days=AUTHORITY_DAYS))
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(_signed(builder, key, key))

    @property
    def ends(self) -> datetime:
        return self._cert.not_valid_after_utc

    def issue(
        self, name: str, hosts: Sequence[str], now: datetime, days: int, *, serves: bool
    ) -> Pair:
        """A new certificate, no longer valid than the authority. hosts: names, `*.` before one, and
        addresses. serves: it is for a process that is dialled; else for a client alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now + timedelta(days=days), self.ends)
        builder = _builder(_named(name), self._cert.subject, key, now, until)
        for extension, critical in (
            (x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (_purposes(serves), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return _signed(builder, key, self._key)

    def why_anew(self, pair: Pair, hosts: Sequence[str], now: datetime, *, serves: bool) -> str:
        """Why another certificate must take the place of one; empty where it does."""
        try:
            cert, key = x509.load_pem_x509_certificate(pair.cert), _private_key(pair.key)
            cert.verify_directly_issued_by(self._cert)
            names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            purposes = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return "it is none of this authority"
        if key.public_key() != cert.public_key():
            return "its key is another one's"
        if set(names) != {_general_name(host) for host in hosts} or purposes != _purposes(serves):
            return "it is for other hosts"
        life = cert.not_valid_after_utc - cert.not_valid_before_utc
        if cert.not_valid_after_utc - now < life * RENEWED_AT:
            return f"it ends at {cert.not_valid_after_utc:%Y-%m-%d}"
        return ""


def check_host(host: str) -> None:
    """Raises ValueError for what a certificate cannot be valid for."""
    name = host.removeprefix("*.")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.split(".")
        if len(name) > 253 or not all(_is_label(label) for label in labels):
            raise ValueError(
                f"{host!r} is no host: give a name in DNS, perhaps with *. before it, or an address"
            ) from None
    else:
        if name != host:
            raise ValueError(f"{host!r}: an address has nothing before it")


def _is_label(label: str) -> bool:
    return (
        0 < len(label) <= 63 and label.isascii() and label.replace("-", "a").isalnum()
        and not label.startswith("-") and not label.endswith("-")
    )  # fmt: skip


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not one that was made here")
    return key


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:MAX_COMMON_NAME])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    builder = x509.CertificateBuilder(
        issuer_name=issuer, subject_name=subject, public_key=key.public_key(),
        serial_number=x509.random_serial_number(), not_valid_before=now - BACKDATED,
        not_valid_after=until,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False)


def _signed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
) -> Pair:
    cert = builder.sign(by, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return Pair(
        cert.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates,
        crl_sign=signs_certificates, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _purposes(serves: bool) -> x509.ExtendedKeyUsage:
    # A process that serves asks others, too, and shows them the same certificate.
    serving = [ExtendedKeyUsageOID.SERVER_AUTH] if serves else []
    return x509.ExtendedKeyUsage([*serving, ExtendedKeyUsageOID.CLIENT_AUTH])
