# SPDX-License-Identifier: Apache-2.0
"""Identity keys: what a site signs, and what it checks of the aggregator (docs/protocol.md 6.1). Ed25519, next to the certificate of TLS."""
import datetime
import struct

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtensionOID

from formats import need

USAGE = "2.25.103663696423702430817410141174864858794"  # the one extended usage of an identity certificate


def text(value):
    return struct.pack("<H", len(value)) + value


def digest(value):
    return value or bytes(32)


def header(offer):
    """The bytes of a header that are signed."""
    h = offer.head
    return b"".join([
        b"atollSH2" if offer.charged else b"atollSH1", text(h.run), text(h.site), digest(h.config),
        struct.pack("<IQQQI", h.roster_version, h.term, h.incarnation, h.instance, h.aggregator),
        struct.pack("<IQIQ", offer.fragment, offer.round, offer.codec, offer.payload_bytes),
        digest(offer.payload), digest(offer.parent), digest(offer.grid),
        struct.pack("<fQQB", offer.weight, offer.data_cursor, offer.max_local_steps_offline, offer.residual_ratio),
        struct.pack("<Q", offer.charged) if offer.charged else b""])


def manifest(m):
    """The same of a manifest (formats.Manifest)."""
    return b"".join([b"atollSM1", text(m.run.encode()), struct.pack("<IQ", m.fragment, m.round), m.digest,
                     struct.pack("<QQQ", m.term, m.instance, m.unix_ms)])


def term(run, index, number, instance):
    """The same of the announcement of a term."""
    return b"".join([b"atollSE1", text(run), struct.pack("<IQQ", index, number, instance)])


def certificates(der):
    """Of several, one after the other: DER says how long each is."""
    found = []
    while der:
        need(len(der) > 4 and der[0] == 0x30, "not a certificate")
        width = der[1] & 0x7F if der[1] & 0x80 else 0
        size = 2 + width + (int.from_bytes(der[2:2 + width], "big") if width else der[1])
        found.append(x509.load_der_x509_certificate(der[:size]))
        der = der[size:]
    return found


class Identity:
    """This site's key, and the aggregator's as its announcement names it."""

    def __init__(self, tls, site, run):
        self.run = run
        with open(f"{tls}/{site}.identity.key", "rb") as f:
            self.key = serialization.load_pem_private_key(f.read(), None)
        with open(f"{tls}/{site}.identity.pem", "rb") as f:
            self.certificate = b"".join(c.public_bytes(serialization.Encoding.DER) for c in x509.load_pem_x509_certificates(f.read()))
        with open(f"{tls}/ca.pem", "rb") as f:
            self.roots = x509.load_pem_x509_certificates(f.read())
        self.announcement, self.aggregator = b"", None

    def sign(self, offer):
        """The last thing that is done to an offer."""
        offer.signature = self.key.sign(header(offer))

    def heard(self, answer, index):
        """Of a hello: the announcement of term and instance."""
        data = answer.announcement
        at = 8 + 2 + len(self.run) + 4 + 8 + 8
        signed = term(self.run, index, answer.term, answer.instance)
        need(data[:at] == signed, "an announcement of something else than the answer says")
        size, = struct.unpack_from("<H", data, at)
        chain, signature = certificates(data[at + 2:at + 2 + size]), data[at + 2 + size:]
        key = self.verified(chain, f"atoll://{self.run.decode()}/aggregator/aggregator")
        need(holds(key, signature, signed), "the signature of the announcement does not hold")
        self.announcement, self.aggregator = data, key

    def announce(self, index, number, instance):
        """What only an aggregator's key can make."""
        signed = term(self.run, index, number, instance)
        return b"".join([signed, struct.pack("<H", len(self.certificate)), self.certificate, self.key.sign(signed)])

    def check(self, m):
        need(self.aggregator is not None and holds(self.aggregator, m.signature, manifest(m)), "a manifest that is not signed")

    def verified(self, chain, uri):
        """The key of the identity certificate of that URI, up to a root of the run."""
        names = chain[0].extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        usages = chain[0].extensions.get_extension_for_oid(ExtensionOID.EXTENDED_KEY_USAGE).value
        need(names.get_values_for_type(x509.UniformResourceIdentifier) == [uri], "the identity of another process")
        need([u.dotted_string for u in usages] == [USAGE], "a certificate that is not for identities")
        now = datetime.datetime.now(datetime.timezone.utc)
        for i, c in enumerate(chain):
            need(c.not_valid_before_utc <= now <= c.not_valid_after_utc, "a certificate that is not valid now")
            if any(issued(c, root) for root in self.roots):
                return chain[0].public_key()
            need(i + 1 < len(chain) and issued(c, chain[i + 1]), "a certificate of another authority")
        raise AssertionError("unreachable")


def issued(certificate, by):
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return by.extensions.get_extension_for_oid(ExtensionOID.BASIC_CONSTRAINTS).value.ca


def holds(key, signature, data):
    try:
        key.verify(signature, data)
    except exceptions.InvalidSignature:
        return False
    return True
