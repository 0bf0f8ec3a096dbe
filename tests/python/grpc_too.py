# SPDX-License-Identifier: Apache-2.0
"""gpt.py in a process that uses gRPC itself: a server and a client of grpcio, which talk all the time. grpcio is imported before atoll, or
after it with -X after.

    python3 [-X after] grpc_too.py CONFIG TEXT OUT [section.key=value ...]
"""
import concurrent.futures
import pathlib
import runpy
import sys
import threading

AFTER = "after" in sys._xoptions
if AFTER:
    import atoll  # noqa: F401
import grpc  # noqa: E402


class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def talk(port, counts):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/echo/Echo")
        while not counts["end"]:
            assert call(b"x" * 1000) == b"x" * 1000
            counts["calls"] += 1


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    counts = {"end": False, "calls": 0}
    thread = threading.Thread(target=talk, args=(port, counts))
    thread.start()
    try:
        runpy.run_path(str(pathlib.Path(__file__).with_name("gpt.py")), run_name="__main__")
    finally:
        counts["end"] = True
        thread.join()
        server.stop(None)
    print(f"{counts['calls']} calls of grpcio, imported {'after' if AFTER else 'before'} atoll")


main()
