# SPDX-License-Identifier: Apache-2.0
"""Payloads, aggregates, manifests and the outer step, from docs/formats.md alone; the numbers in comments are its sections. Vectors
are numpy arrays of float32: numpy rounds each operation once and fuses none."""
import hashlib
import struct

import numpy as np

BLOCK = 256
F32 = np.float32
CODECS = ["f32", "bf16", "int8", "int4", "int2", "e3m0", "fp8_e4m3", "fp8_e5m2", "topk", "sign", "csc", "fp8_sr",
          "fixed"]
CLIP = {"int8": -4, "int4": -1, "csc": -1, "int2": 1, "sign": 0}  # c of 6.2
Q_MAX = {"int8": 127, "int4": 7, "csc": 7, "int2": 1, "fixed": 2**27 - 1}
BITS = {"int8": 8, "int4": 4, "csc": 4, "int2": 2, "sign": 1, "fixed": 28}
FP8 = {"fp8_e4m3": (3, 7, 0x7E, 68), "fp8_e5m2": (2, 15, 0x7B, 75), "fp8_sr": (2, 15, 0x7B, 75)}  # mantissa, bias, largest, scale
BLOCK_BYTES = {"f32": 1024, "bf16": 512, "int8": 256, "int4": 128, "int2": 64, "sign": 32, "e3m0": 132, "fp8_e4m3": 256,
               "fp8_e5m2": 256, "fp8_sr": 256, "csc": 128, "fixed": 896}


class Malformed(Exception):
    """Bytes that no replica could have made."""


def need(true, what):
    if not true:
        raise Malformed(what)


def sha256(*parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(p)
    return h.digest()


def crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)  # 0x1edc6f41, reflected
        table.append(n)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


# ---- 3: settings ----


def settings(text):
    """Text of the settings -> {key: text}. Values: whole(), real(), names()."""
    return dict(line.split("=", 1) for line in text.splitlines())


def leaves(values, n):
    return [sha256(values[i:i + n].tobytes()) for i in range(0, len(values), n)]


def state_digest(settings, theta, momentum, codes):
    """4; momentum: all slabs, one after the other."""
    if settings.get("outer.state_digest", "whole") == "whole":
        return sha256(theta.tobytes(), momentum.tobytes(), codes.tobytes())
    n = len(theta)
    arrays = [theta] + [momentum[i:i + n] for i in range(0, len(momentum), n)]
    return sha256(*[d for a in arrays for d in leaves(a, 65536)], *leaves(codes, 256))


def outer_digest(settings, states):
    """states: (theta, momentum, codes) of each fragment."""
    if settings.get("outer.state_digest", "whole") == "whole":
        return sha256(*[part.tobytes() for state in states for part in state])
    return sha256(*[state_digest(settings, *state) for state in states])


def settings_digest(text):
    return sha256("".join(line for line in text.splitlines(True) if not line.startswith("train.steps=")).encode())


def names(value):
    return [name.strip() for name in value.strip("[]").split(",") if name.strip()]


# ---- 5: rounds ----


def stretches(s, amendments, ends):
    """[(border, settings after it)]: the settings s at 0, then one for each border. amendments: of a manifest."""
    found = [(0, s)]
    for text, round_, _ in amendments:
        border = [step for step, p, r in rounds(found, ends) if (p, r) == (0, round_ - 1)]
        need(len(border) == 1, "an amendment at a round that the run does not have")
        there = found.pop() if found[-1][0] == border[0] else (border[0], found[-1][1])
        found.append((border[0], {**there[1], **settings(text)}))
    return found


def rounds(found, ends):
    """(step, fragment, round), in the order in which a site that does not overlap has them. found: of stretches()."""
    fragments, steps, due = int(found[0][1]["outer.fragments"]), int(found[-1][1]["train.steps"]), []
    for p in range(fragments):
        own, former = {steps} | set(ends), 0
        for i, (begin, s) in enumerate(found):
            every = int(s["outer.every"])
            if every != former:  # else an amendment of something else: the periods continue
                first = begin + p * every // fragments + (0 if i and p else every)
            until = found[i + 1][0] if i + 1 < len(found) else steps
            own |= {step for step in range(first, until + 1, every) if step > begin}
            former = every
        due += [(step, p, r) for r, step in enumerate(sorted(own))]
    return sorted(due)


def in_force(found, step):
    """The settings of a round that ends after this step."""
    return [s for border, s in found if border < step][-1]


def momentum_of_round(s, round_, step, last):
    """8: mu, f32. s: the settings in force for the round; step: the one that ends it; last: the run's last step, as the round has it."""
    mu, start, end = (float(F32(float(s.get(key, "0")))) for key in ("outer.momentum", "outer.momentum_start", "outer.momentum_end"))
    warmup, cooldown = (int(s.get(key, "0")) for key in ("outer.momentum_warmup", "outer.momentum_cooldown"))
    if round_ < warmup:
        mu = start + (mu - start) * (round_ / warmup)
    if last - step < cooldown * int(s["outer.every"]):
        mu = end + (mu - end) * ((last - step) / (cooldown * int(s["outer.every"])))
    return F32(mu)


def codec_of_round(s, round_, last, ratio):
    reset = float(s["outer.residual_reset"])
    full = round_ < int(s["outer.full_precision_rounds"]) or (last and ratio < 130)
    full = full or (reset > 0 and ratio >= ratio_byte(reset * reset, 1.0))
    own = s["outer.codec"]
    return s.get("outer.full_precision", "bf16") if full and own not in ("f32", "bf16", "fixed") else own


# ---- 6: payloads ----


def exponent(x):
    """e with 2^e <= x < 2^(e + 1)."""
    return int(np.frexp(np.float64(x))[1]) - 1


def squares(x):
    """Sum of squares of each block, f64, in the order of 6.2. x: a multiple of 256 values."""
    lanes = np.zeros((len(x) // BLOCK, 16))
    for row in np.moveaxis(x.astype(np.float64).reshape(-1, 16, 16), 1, 0):
        lanes += row * row
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def squares_all(x):
    """6.4: 64 blocks in order, then these sums in order."""
    blocks, total = squares(x), 0.0
    for at in range(0, len(blocks), 64):
        run = 0.0
        for b in blocks[at:at + 64]:
            run += float(b)
        total += run
    return total


def ratio_byte(left, delta):
    if left == 0:
        return 0
    return 254 if delta == 0 else min(max(exponent(left / delta) + 128, 1), 254)


def block_codes(z):
    sums = squares(z)
    need(np.isfinite(sums).all(), "a value that is not finite")
    code = np.clip(np.frexp(sums)[1] - 1 - 8 + 128, 1, 254)
    return np.where(sums == 0, 0, code).astype(np.uint8)


def power(e):
    """2^e as f32, for each of an array of exponents."""
    return np.ldexp(np.ones(len(e)), e).astype(F32)


def steps_of(codec, grid):
    """Step of each block; 0 where the grid has none."""
    return np.where(grid == 0, F32(0), power((grid.astype(int) + 1) // 2 - 64 + CLIP[codec])).astype(F32)


def bits_pack(values, bits):
    """(blocks, n) integers -> (blocks, n * bits / 8) bytes, low bits first."""
    each = (values[:, :, None] >> np.arange(bits) & 1).astype(np.uint8)
    return np.packbits(each.reshape(len(values), -1), axis=1, bitorder="little")


def bits_unpack(data, bits):
    """(blocks, bytes) -> (blocks, n) integers."""
    each = np.unpackbits(data, axis=1, bitorder="little").reshape(len(data), -1, bits)
    return (each.astype(np.int64) << np.arange(bits)).sum(axis=2)


def bf16_round(z):
    """Bits of the nearest bf16, halves to even; the largest finite one in place of infinity."""
    u = z.view(np.uint32).astype(np.uint64)
    h = (u + 0x7FFF + (u >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(h & 0x7FFF == 0x7F80, h - 1, h).astype(np.uint16)


def encode(codec, z, grid, residual):
    """-> payload, residual'. residual: what z has of earlier rounds."""
    if codec == "topk":
        return encode_topk(z)
    if codec == "csc":
        return encode_csc(z, grid, residual)
    count, blocks = len(z), len(z) // BLOCK
    codes = block_codes(z)
    if codec == "f32":
        body, sent = z.view(np.uint8).reshape(blocks, -1), z.copy()
        present = (z.view(np.uint32).reshape(blocks, -1) != 0).any(axis=1)
    elif codec == "bf16":
        half = bf16_round(z)
        body, sent = half.view(np.uint8).reshape(blocks, -1), (half.astype(np.uint32) << 16).view(F32)
        present = (half.reshape(blocks, -1) != 0).any(axis=1)
    elif codec == "sign":
        step = np.where(fits_sign(codes, grid), steps_of(codec, grid), F32(0))
        plus, present = ~np.signbit(z), step > 0
        body, step = bits_pack(plus.reshape(blocks, -1).astype(np.int64), 1), np.repeat(step, BLOCK)
        sent = np.where(plus, step, -step)
    elif codec == "e3m0":
        body, sent, present = encode_e3m0(z)
    elif codec == "fixed":
        steps, most = np.rint(z.astype(np.float64) * 2.0**24), 2.0**27 - 8
        q = np.where(np.abs(steps) > most, np.where(np.abs(steps) > 2 * most, 0, np.copysign(most, steps)), steps).astype(np.int64)
        body, sent = bits_pack(q.reshape(blocks, -1) + Q_MAX[codec], BITS[codec]), (q * 2.0**-24).astype(F32)
        present = (q.reshape(blocks, -1) != 0).any(axis=1)
    elif codec in FP8:
        body, sent = encode_fp8(codec, z, codes)
        present = body.any(axis=1)
    else:
        q_max, step = Q_MAX[codec], np.repeat(steps_of(codec, grid), BLOCK)
        with np.errstate(over="ignore"):
            x = z * np.divide(F32(1), step, out=np.zeros(count, F32), where=step > 0)
        q = np.rint(np.clip(np.where(np.abs(x) >= 2.0**24, F32(0), x), -q_max, q_max)).astype(np.int64)
        body, sent = bits_pack(q.reshape(blocks, -1) + q_max, BITS[codec]), q.astype(F32) * step
        present = (q.reshape(blocks, -1) != 0).any(axis=1)
    payload = b"".join([np.where(codes == 0, grid, codes).astype(np.uint8).tobytes(),
                        np.packbits(present, bitorder="little").tobytes(), body[present].tobytes()])
    return payload, z - sent


def fits_sign(codes, grid):
    """No value of 2^23 steps or more: a value is at most 16 times the root of a mean square below 2^(code - 127)."""
    return (grid > 0) & (codes > 0) & ((codes.astype(int) + 2) // 2 - 64 + 4 <= (grid.astype(int) + 1) // 2 - 64 + 23)


def encode_e3m0(z):
    """-> blocks, values, present."""
    z = z.reshape(-1, BLOCK)
    s = np.abs(z).max(axis=1, keepdims=True)
    present = s[:, 0] >= 2.0**-100
    s = np.where(present[:, None], s, F32(1))
    bounds = [0.5 * 2.0**-6] + [0.75 * 2.0**(level - 7) for level in range(2, 8)]  # halfway between levels, halves towards zero
    level = sum((np.abs(z).astype(np.float64) > b * s.astype(np.float64)).astype(np.int64) for b in bounds)
    nibble = np.where(level > 0, level | np.where(np.signbit(z), 8, 0), 0)
    body = np.concatenate([s.view(np.uint8), bits_pack(nibble, 4)], axis=1)
    sent = np.zeros_like(z)
    sent[present] = values_e3m0(body[present])
    return body, sent.ravel(), present


def values_e3m0(body):
    scale = np.ascontiguousarray(body[:, :4]).view(F32)
    need(((scale >= 2.0**-100) & np.isfinite(scale)).all(), "a scale out of range")
    nibble = bits_unpack(body[:, 4:], 4)
    need((nibble != 8).all() and ((nibble & 7) == 7).any(axis=1).all(), "levels that no encoder makes")
    size = np.where(nibble & 7, np.ldexp(scale, (nibble & 7) - 7), F32(0)).astype(F32)
    return np.where(nibble & 8, -size, size)


def table_fp8(codec):
    """Value of each of the bytes 0 .. largest magnitude."""
    mantissa, bias, largest, _ = FP8[codec]
    u = np.arange(largest + 1)
    e, part = u >> mantissa, u & (1 << mantissa) - 1
    return np.where(e == 0, np.ldexp(part.astype(float), 1 - bias - mantissa),
                    np.ldexp(1.0 + part / (1 << mantissa), e - bias))


def scales_fp8(codec, codes):
    return power((codes.astype(int) + 2) // 2 - FP8[codec][3])[:, None]


def encode_fp8(codec, z, codes):
    """-> blocks, values. Nearest, halves to the even byte."""
    z, table, scale = z.reshape(-1, BLOCK), table_fp8(codec), scales_fp8(codec, codes)
    x = np.abs(z.astype(np.float64)) / scale
    up = np.clip(np.searchsorted(table, x), 1, len(table) - 1)
    low, high = x - table[up - 1], table[up] - x
    u = np.where((low < high) | ((low == high) & (up % 2 == 1)), up - 1, up)
    u = np.where(codes[:, None] > 0, u, 0)
    body = np.where((u > 0) & np.signbit(z), u | 0x80, u).astype(np.uint8)
    return body, values_fp8(codec, body, codes).ravel()


def values_fp8(codec, body, codes):
    u = body.astype(int)
    need(((u & 0x7F) <= FP8[codec][2]).all() and (u != 0x80).all(), "a value that is not finite, or -0")
    size = table_fp8(codec)[u & 0x7F].astype(F32) * scales_fp8(codec, codes)
    return np.where(u & 0x80, -size, size)


# ---- 6.5: topk ----


def level_topk(code):
    return F32((8 + code % 8) * 2.0**(code // 8 - 47)) if code else F32(0)


def encode_topk(z):
    """One magnitude for each chunk: the mean of what is sent, cut to 3 bits, at most twice the smallest."""
    bits, sent = [], np.zeros_like(z)
    number = lambda value, n: [value >> i & 1 for i in range(n)]
    for at in range(0, len(z), 4096):
        chunk = z[at:at + 4096]
        index = np.sort(np.argsort(-np.abs(chunk), kind="stable")[:len(chunk) // 64])
        size = np.abs(chunk[index]).astype(np.float64)
        aim = min(size.mean(), 2 * size.min())
        code = 8 * (exponent(aim) + 44) + int(aim / 2.0**exponent(aim) * 8) - 8 if aim > 0 else 0
        if not 0 < code < 512:
            bits += number(0, 9)
            continue
        bits += number(code, 9) + number(15, 4)
        minus = np.signbit(chunk[index])
        for m in minus:
            bits += number(1 | 2 * int(m), 2)
        for gap in np.diff(index, prepend=-1) - 1:
            bits += [1] * int(gap // 32) + [0] + number(int(gap % 32), 5)
        sent[at + index] = np.where(minus, -level_topk(code), level_topk(code))
    return np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes(), z - sent


def decode_topk(data, count):
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").tolist()
    at, z = 0, np.zeros(count, F32)

    def number(n):
        nonlocal at
        at += n
        need(at <= len(bits), "the stream ends")
        return sum(bit << i for i, bit in enumerate(bits[at - n:at]))

    for start in range(0, count, 4096):
        n = min(4096, count - start)
        upper = number(9)
        if not upper:
            continue
        less = number(4)
        need(less == 15 or 2 * less < upper, "a magnitude out of range")
        lower = 0 if less == 15 else upper - 2 * less
        kinds, index = [number(2) for _ in range(n // 64)], -1
        for kind in kinds:
            gap = 0
            while number(1):
                gap += 32
            index += 1 + gap + number(5)
            need(index < n and not (kind == 2 and not lower), "an index beyond the end, or -0")
            size = level_topk(upper if kind & 1 else lower)
            z[start + index] = -size if kind & 2 else size
    need(len(data) == (at + 7) // 8 and not any(bits[at:]), "bits after the last index")
    return z


# ---- 6.6: csc ----


def set_csc(grid):
    """The grid, 0 in blocks that are not of the round's set."""
    norms = []
    for chunk, at in enumerate(range(0, len(grid), 16)):
        norm = 0.0
        for g in grid[at:at + 16].tolist():
            norm += np.sqrt(2.0**(g - 128)) if g else 0.0
        norms.append((-norm, chunk))
    sent = np.zeros_like(grid)
    for _, chunk in sorted(norms)[:-(-len(norms) // 10)]:
        sent[16 * chunk:16 * chunk + 16] = grid[16 * chunk:16 * chunk + 16]
    return sent


def encode_csc(z, grid, residual):
    sent = set_csc(grid)
    payload, left = encode("int4", z, sent, residual)
    own = np.frombuffer(payload, np.uint8, len(grid))
    own = np.where(own == 0, grid, own)
    p = z - residual
    p = np.where(np.repeat(sent, BLOCK) > 0, p, p + z)
    codes = block_codes(p)
    return np.where(codes == 0, own, codes).astype(np.uint8).tobytes() + payload[len(grid):], left


def blocks_read(data, head, count, block_bytes):
    """After `head` bytes: present, then blocks -> present, (present blocks, bytes)."""
    blocks = count // BLOCK
    flags = (blocks + 7) // 8
    need(len(data) >= head + flags, "too short")
    bits = np.unpackbits(np.frombuffer(data, np.uint8, flags, head), bitorder="little").astype(bool)
    need(not bits[blocks:].any(), "a bit after the last block")
    here = bits[:blocks]
    need(len(data) == head + flags + int(here.sum()) * block_bytes, "other length than its content")
    return here, np.frombuffer(data, np.uint8, -1, head + flags).reshape(int(here.sum()), block_bytes)


def integers(codec, data, count):
    """q of a summable payload, 0 where a block is absent: (blocks, 256)."""
    here, body = blocks_read(data, count // BLOCK, count, BLOCK_BYTES[codec])
    q = np.zeros((count // BLOCK, BLOCK), np.int64)
    q[here] = bits_unpack(body, BITS[codec]) - Q_MAX[codec]
    need((np.abs(q) <= Q_MAX[codec]).all(), "an integer beyond Q")
    need((q.astype(F32) == q).all(), "an integer of more than 24 bits")
    return q


def decode(codec, data, count, grid):
    """Values of a payload."""
    if codec == "topk":
        return decode_topk(data, count)
    need(len(data) >= count // BLOCK and 255 not in data[:count // BLOCK], "a block code of 255")
    z = np.zeros((count // BLOCK, BLOCK), F32)
    if codec in Q_MAX:
        step = F32(2.0**-24) if codec == "fixed" else steps_of(codec, grid)[:, None]
        return (integers(codec, data, count).astype(F32) * step).ravel()
    here, body = blocks_read(data, count // BLOCK, count, BLOCK_BYTES[codec])
    if codec == "f32":
        z[here] = np.ascontiguousarray(body).view(F32)
    elif codec == "bf16":
        z[here] = (np.ascontiguousarray(body).view(np.uint16).astype(np.uint32) << 16).view(F32)
    elif codec == "sign":
        steps = steps_of(codec, grid)[here][:, None]
        z[here] = np.where(bits_unpack(body, 1) == 1, steps, -steps)
    elif codec == "e3m0":
        z[here] = values_e3m0(body)
    else:
        z[here] = values_fp8(codec, body, np.frombuffer(data, np.uint8, count // BLOCK)[here])
    need(np.isfinite(z).all(), "a value that is not finite")
    return z.ravel()


# ---- 7: aggregates ----


def payloads_of(data, n):
    """Payloads of a gathered aggregate."""
    need(len(data) >= 8 * n, "too short")
    sizes, at, found = struct.unpack_from(f"<{n}Q", data), 8 * n, []
    for size in sizes:
        need(size <= len(data) - at, "a payload beyond the end")
        found.append(data[at:at + size])
        at += size
    need(at == len(data), "bytes after the last payload")
    return found


def sums_of(codec, data, count, n):
    """Of a summable aggregate: sums of codes, sums of q (blocks, 256)."""
    wide = 2 if n <= 256 else 4
    blocks, bits = count // BLOCK, (2 * n * Q_MAX[codec]).bit_length()
    need(len(data) >= wide * blocks, "too short")
    codes = np.frombuffer(data, f"<u{wide}", blocks).astype(np.int64)
    here, body = blocks_read(data, wide * blocks, count, 32 * bits)
    sums = np.zeros((blocks, BLOCK), np.int64)
    sums[here] = bits_unpack(body, bits) - n * Q_MAX[codec]
    need((np.abs(sums) <= n * Q_MAX[codec]).all(), "a sum beyond what n payloads can have")
    return codes, sums


def signs_of(_, data, count, n):
    """Of an aggregate of sign: sums of codes, sums of signs (blocks, 256)."""
    wide, blocks, bits = 2 if n <= 256 else 4, count // BLOCK, n.bit_length()
    need(len(data) >= 2 * wide * blocks, "too short")
    codes, payloads = np.frombuffer(data, f"<u{wide}", 2 * blocks).astype(np.int64).reshape(2, -1)
    here, body = blocks_read(data, 2 * wide * blocks, count, 32 * bits)
    need(((payloads > 0) == here).all() and (payloads <= n).all(), "another number of payloads than blocks")
    sums = np.zeros((blocks, BLOCK), np.int64)
    sums[here] = 2 * bits_unpack(body, bits) - payloads[here][:, None]
    need((np.abs(sums) <= payloads[:, None]).all(), "more pluses than signs")
    return codes, sums


def weight_sum(weights):
    total = F32(0)
    for w in weights:
        total = F32(total + F32(w))
    return total


def mean_of(codec, data, count, grid, weights, factors=None):
    """-> mean, next grid. weights: of the included sites, in site order; factors: theirs, if the manifest has any."""
    n, total = len(weights), weight_sum(weights)
    if codec in CLIP or codec == "fixed":
        need(not factors, "factors for contributions of which only the sum is there")
        codes, sums = (signs_of if codec == "sign" else sums_of)(codec, data, count, n)
        if codec == "fixed":  # f64 has the sum; the quotient is never in the middle of two f32 (formats.md 7)
            mean = ((sums * 2.0**-24).ravel() / np.float64(total)).astype(F32)
        else:
            mean = (sums.astype(F32) * steps_of(codec, grid)[:, None]).ravel() / total
    else:
        payloads = payloads_of(data, n)
        values = [decode(codec, p, count, grid) for p in payloads]
        if factors:
            values = [np.zeros(count, F32)] + [F32(f) * v for f, v in zip(factors, values, strict=True)]
        mean = values[0]
        for v in values[1:]:
            mean = mean + v
        mean = mean / total
        if codec == "topk":
            return mean, grid
        codes = sum(np.frombuffer(p, np.uint8, count // BLOCK).astype(np.int64) for p in payloads)
    need((codes <= 254 * n).all(), "a sum of codes beyond what n payloads can have")
    return mean.astype(F32), ((codes + n // 2) // n).astype(np.uint8)


# ---- 8: outer step ----


SLABS = {"nesterov": 1, "adam": 2}  # arrays in addition to theta


def outer_step(settings, theta, momentum, mean, lr, mu):
    """-> theta', momentum'. momentum: the slabs, one after the other. lr, mu: f32."""
    optimizer = settings["outer.optimizer"]
    if optimizer == "average":
        return theta - mean, None
    if optimizer == "sgd":
        return theta - lr * mean, None
    if optimizer == "adam":
        b, eps, one = F32(float(settings.get("outer.beta2", "0.99"))), F32(float(settings.get("outer.eps", "0.001"))), F32(1)
        m, v = momentum[:len(theta)], momentum[len(theta):]
        m = mu * m + (one - mu) * mean
        v = b * v + (one - b) * (mean * mean)
        return theta - lr * (m / (np.sqrt(v) + eps)), np.concatenate([m, v])
    need(optimizer == "nesterov", f"outer.optimizer {optimizer} is not in this client")
    momentum = mu * momentum + mean
    return theta - lr * (mean + mu * momentum), momentum


# ---- 9: manifest ----

ENTRY = struct.Struct("<IBB32sQffQB")
ENVELOPE = struct.Struct("<QQQ64s")
ZERO = bytes(32)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        form = struct.Struct("<" + form)
        need(len(self.data) - self.at >= form.size, "a manifest that ends early")
        found = form.unpack_from(self.data, self.at)
        self.at += form.size
        return found[0] if len(found) == 1 else found


def amendments_of(r):
    """[(text, round, author)]"""
    found = []
    for _ in range(r.take("I")):
        text = r.take(f"{r.take('H')}s").decode("ascii")
        need(len(text) < 224 and text.isprintable() and 0 < text.find("=") < len(text) - 1, "no amendment")
        found.append((text, *r.take("Q32s")))
    at = [round_ for _, round_, _ in found]
    need(0 < len(found) <= 64 and at == sorted(at), "amendments in another order than that of their rounds")
    return found


class Manifest:
    """Fields of the table of 9; `digest` of the body; `entries`: dictionaries."""

    def __init__(self, data):
        r = Reader(data)
        magic = r.take("8s")
        need(magic in (b"atollM4\0", b"atollM5\0"), "not a manifest")
        self.run = r.take(f"{r.take('H')}s").decode()
        self.config = r.take("32s")
        self.roster_version, self.fragment, self.round = r.take("IIQ")
        self.parent, self.state_before, self.state_after = r.take("32s32s32s")
        self.codec, self.grid, self.aggregate = r.take("I32s32s")
        self.aggregate_bytes, self.residual_ratio, count = r.take("QBI")
        need(count <= 1024, "more sites than a run may have")
        fields = ("site", "included", "reason", "payload", "payload_bytes", "weight", "norm", "data_cursor", "residual_ratio")
        self.entries = [dict(zip(fields, r.take(ENTRY.format[1:]))) for _ in range(count)]
        self.factors, self.rolled_to, self.amendments = None, None, []
        if magic == b"atollM5\0":
            self.read_parts(r, count)
        self.digest, self.proof = sha256(data[:r.at]), data[r.at:]  # proof: the envelope, as hello shows it
        self.term, self.instance, self.unix_ms, self.signature = r.take(ENVELOPE.format[1:])
        need(r.at == len(data), "bytes after the manifest")

    def read_parts(self, r, count):
        flags = r.take("B")
        need(0 < flags < 128 and not flags & 16, "unknown parts of a manifest")
        if flags & 1:
            self.factors = [r.take("f") for _ in range(count)]
        if flags & 2:
            self.tracks = [r.take("ffI") for _ in range(count)]
        if flags & 4:
            self.ordered_by = r.take("32s")
        if flags & 8:
            self.rolled_to = r.take("Q")
        if flags & 32:
            self.charges = [r.take("Q") for _ in range(count)]
            need(any(self.charges), "a part that says nothing")
        if flags & 64:
            begin = r.at
            self.amendments = amendments_of(r)
            self.amended = r.data[begin:r.at]

    def included(self):
        return [e for e in self.entries if e["included"]]

    def ratio(self):
        return max([self.residual_ratio] + [e["residual_ratio"] for e in self.included()])
