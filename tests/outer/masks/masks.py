#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation once more, from docs/privacy-methods.md and the RFCs alone, without a library: X25519, HKDF, ChaCha20, pair
keys, masks, seals, what is revealed, the sum. One scripted round; its bytes are tests/golden/masks/values.txt, which test_golden_masks reads in C.

    tests/outer/masks/masks.py VALUES            ends with 1 if these are other bytes
    tests/outer/masks/masks.py VALUES --write    writes them
"""
import hashlib
import hmac
import struct
import sys

P = 2**255 - 19


def x25519(k, u):
    """RFC 7748, 5: the Montgomery ladder."""
    k = bytearray(k)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    x1 = int.from_bytes(u, "little") % 2**255 % P
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if swap != bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    out = (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")
    if out == bytes(32):
        raise ValueError("a point of low order")
    return out


def extract(salt, ikm):
    return hmac.digest(salt or bytes(32), ikm, "sha256")


def expand(prk, info, n=32):
    out, block = b"", b""
    while len(out) < n:
        block = hmac.digest(prk, block + info + bytes([len(out) // 32 + 1]), "sha256")
        out += block
    return out[:n]


def chacha20(key, n):
    """RFC 8439, 2.4: the key stream, nonce 0, counter from 0."""
    def rotate(v, by):
        return (v << by | v >> 32 - by) & 0xFFFFFFFF

    out = b""
    for counter in range((n + 63) // 64):
        start = list(struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key)) + [counter, 0, 0, 0]
        s = start[:]
        for i in range(80):
            a, b, c, d = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                          (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))[i % 8]
            for by, (p, q, r) in zip((16, 12, 8, 7), ((a, b, d), (c, d, b), (a, b, d), (c, d, b))):
                s[p] = s[p] + s[q] & 0xFFFFFFFF
                s[r] = rotate(s[r] ^ s[p], by)
        out += struct.pack("<16I", *(v + w & 0xFFFFFFFF for v, w in zip(s, start)))
    return out[:n]


# ---- words ----

def part_bytes(bits, count):
    return (bits * count + 511) // 512 * 64


def pack(layout, parts):
    out = b""
    for (bits, count), words in zip(layout, parts):
        total = sum((w % 2**bits) << i * bits for i, w in enumerate(words))
        out += total.to_bytes(part_bytes(bits, count), "little")
    return out


def unpack(layout, data):
    """Unsigned words."""
    parts, at = [], 0
    for bits, count in layout:
        size = part_bytes(bits, count)
        total = int.from_bytes(data[at:at + size], "little")
        parts.append([total >> i * bits & 2**bits - 1 for i in range(count)])
        at += size
    return parts


def prg(layout, seed):
    return unpack(layout, chacha20(seed, sum(part_bytes(*p) for p in layout)))


def add(layout, words, mask, sign):
    return [[(w + sign * m) % 2**bits for w, m in zip(ws, ms)] for (bits, _), ws, ms in zip(layout, words, mask)]


# ---- messages ----

def text(s):
    return struct.pack("<H", len(s)) + s


def members(sites, count):
    return sum(1 << i for i in sites).to_bytes((count + 7) // 8, "little")


def sha(data):
    return hashlib.sha256(data).digest()


def scripted():
    run, config, sites, fragment, round_, attempt, term, roster = b"golden", sha(b"configuration"), 4, 1, 5, 2, 7, 1
    u, s = [0, 1, 2, 3], [0, 1, 3]
    layout = [(((2 * sites * 255 + 1) - 1).bit_length(), 3), (((2 * sites * 127 + 1) - 1).bit_length(), 70)]
    out = {}
    own = [sha(b"own %d" % i) for i in u]
    public = [x25519(k, (9).to_bytes(32, "little")) for k in own]
    b = [sha(b"b %d" % i) for i in u]
    for i in u:
        out[f"statement.{i}"] = b"atollSK1" + text(run) + struct.pack("<II", 1, i) + public[i]
    seed = {}
    for i in u:
        for j in u:
            if i == j:
                continue
            key = expand(extract(run, x25519(own[i], public[j])), b"atoll/pair" + struct.pack("<III", fragment, min(i, j), max(i, j)))
            for t in range(round_):
                key = expand(key, b"ratchet" + struct.pack("<Q", t))
            seed[i, j] = expand(key, b"mask" + struct.pack("<QI", round_, attempt) + config)
            assert (j, i) not in seed or seed[j, i] == seed[i, j]
            if i < j:
                out[f"seed.{i}.{j}"] = seed[i, j]
    y, q = [], []
    for i in u:
        q.append([[(i * 37 + k * 11) % 256 for k in range(3)], [(i * 7919 + k * 104729) % 255 - 127 for k in range(70)]])
        words = add(layout, unpack(layout, pack(layout, q[i])), prg(layout, b[i]), 1)
        for j in u:
            if j != i:
                words = add(layout, words, prg(layout, seed[i, j]), 1 if j > i else -1)
        y.append(pack(layout, words))
        out[f"y.{i}"] = y[i]
    seal = (b"atollSQ1" + text(run) + config + struct.pack("<IIQIQI", roster, sites, term, fragment, round_, attempt)
            + members(u, sites) + members(s, sites) + b"".join(sha(y[i]) for i in s))
    out["seal"] = seal
    absent = [j for j in u if j not in s]
    total = [[0] * count for _, count in layout]
    for i in s:
        out[f"signed.{i}"] = b"atollSX1" + struct.pack("<I", i) + sha(seal)
        out[f"reveal.{i}"] = (b"atollSR1" + struct.pack("<I", i) + sha(seal) + b[i] + struct.pack("<I", len(absent))
                              + b"".join(struct.pack("<I", j) + seed[i, j] for j in absent))
        total = add(layout, total, unpack(layout, y[i]), 1)
        total = add(layout, total, prg(layout, b[i]), -1)
        for j in absent:
            total = add(layout, total, prg(layout, seed[i, j]), -1 if j > i else 1)
    out["sum"] = pack(layout, total)
    for (bits, _), words, plain in zip(layout, total, zip(*(q[i] for i in s))):
        signed = [w - 2**bits if w >> bits - 1 else w for w in words]
        assert signed == [sum(v) for v in zip(*plain)], "the masked sum is not the plain one"
    return "".join(f"{name} {data.hex()}\n" for name, data in out.items())


def published():
    """RFC 7748, 5.2; RFC 5869, A.1; RFC 8439, A.1."""
    k = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    u = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert x25519(k, u).hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    prk = extract(bytes(range(13)), b"\x0b" * 22)
    assert expand(prk, bytes(range(0xF0, 0xFA)), 42).hex() == ("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
                                                                "34007208d5b887185865")
    assert chacha20(bytes(32), 64).hex() == ("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
                                             "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586")


def main():
    published()
    values = scripted()
    if "--write" in sys.argv:
        with open(sys.argv[1], "w") as f:
            f.write(values)
        return 0
    with open(sys.argv[1]) as f:
        same = f.read() == values
    print(f"{values.count(chr(10))} values, {'equal' if same else 'DIFFERENT'}")
    return 0 if same else 1


sys.exit(main())
