#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small proxy for tests: HTTP CONNECT or SOCKS5, and how proxies fail.

    proxy.py [--socks] [--user USER:PASSWORD] [--answer STATUS] [--garbage] [--delay S] [--cut BYTES] PORT

Prints a line for each tunnel: "tunnel HOST:PORT as USER". --answer: this status (or SOCKS5 reply) for every request; --garbage: an
answer that is none; --delay: before the answer; --cut: the first tunnel that carries this number of bytes upwards is cut.
"""
import argparse
import asyncio
import base64
import socket

args = None
cut = None


async def pump(reader, writer, up=False):
    global cut
    moved = 0
    try:
        while data := await reader.read(65536):
            moved += len(data)
            if up and cut and moved > cut:
                cut = None
                print(f"cut after {moved}", flush=True)
                writer.transport.abort()
                break
            writer.write(data)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def http(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    target = head.split()[1]
    assert head.startswith("CONNECT ") and f"Host: {target}\r\n" in head, head
    user = "-"
    if args.user:
        want = "Proxy-Authorization: Basic " + base64.b64encode(args.user.encode()).decode() + "\r\n"
        if want not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n")
            return None
        user = args.user.split(":")[0]
    if args.answer:
        writer.write(f"HTTP/1.1 {args.answer} Not today\x1b[31m\r\nContent-Length: 0\r\n\r\n".encode())
        return None
    return target, user, b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n"


async def socks(reader, writer):
    version, count = await reader.readexactly(2)
    methods = await reader.readexactly(count)
    assert version == 5
    user = "-"
    if args.user:
        if 2 not in methods:
            writer.write(b"\5\xff")
            return None
        writer.write(b"\5\2")
        (_, n) = await reader.readexactly(2)
        name = await reader.readexactly(n)
        (n,) = await reader.readexactly(1)
        secret = await reader.readexactly(n)
        good = (name + b":" + secret).decode() == args.user
        writer.write(b"\1\0" if good else b"\1\1")
        user = name.decode()
        if not good:
            return None
    else:
        writer.write(b"\5\0")
    version, command, _, kind = await reader.readexactly(4)
    assert (version, command) == (5, 1)
    if kind == 1:
        host = socket.inet_ntoa(await reader.readexactly(4))
    elif kind == 4:
        host = "[" + socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16)) + "]"
    else:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
    port = int.from_bytes(await reader.readexactly(2), "big")
    if args.answer:
        writer.write(bytes([5, args.answer, 0, 1, 0, 0, 0, 0, 0, 0]))
        return None
    return f"{host}:{port}", user, b"\5\0\0\3\4name\0\1"


async def client(reader, writer):
    try:
        if args.garbage:
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            return
        what = await (socks if args.socks else http)(reader, writer)
        if not what:
            return
        target, user, answer = what
        await asyncio.sleep(args.delay)
        host, port = target.rsplit(":", 1)
        up_reader, up_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        print(f"tunnel {target} as {user}", flush=True)
        writer.write(answer)
        await asyncio.gather(pump(reader, up_writer, True), pump(up_reader, writer))
    except (OSError, asyncio.IncompleteReadError) as e:
        print(f"failed {e}", flush=True)
    finally:
        try:
            await writer.drain()
        except OSError:
            pass
        writer.close()


async def main():
    global args, cut
    p = argparse.ArgumentParser()
    p.add_argument("--socks", action="store_true")
    p.add_argument("--user")
    p.add_argument("--answer", type=int)
    p.add_argument("--garbage", action="store_true")
    p.add_argument("--delay", type=float, default=0)
    p.add_argument("--cut", type=int)
    p.add_argument("port", type=int)
    args = p.parse_args()
    cut = args.cut
    server = await asyncio.start_server(client, "127.0.0.1", args.port)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
