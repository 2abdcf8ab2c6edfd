"""A plannerd server with a bare echo beside it, in the same process and on the same event loop.

The echo is the floor: a unary method of grpc.aio that does nothing, on a port of its own, without any of
plannerd's code. Prints the two ports and serves until standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys

import grpc
import grpc.aio

from plannerd.app import build
from plannerd.settings import load
from plannerd.telemetry.logging import configure
from plannerd.transport.server import Server


async def echo(request: bytes, context: object) -> bytes:
    """The last reply that a client put into its request, after 4 bytes that say how long it is."""
    size = int.from_bytes(request[:4], "big")
    return request[4 : 4 + size]


async def main() -> None:
    """Serve both until standard input is closed."""
    settings = load(overrides={"server": {"port": 0}, "log": {"level": "info"}})
    configure(settings.log.level, settings.log.format, error_messages=False)
    app = build(settings)
    bare = grpc.aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("benchmark.Floor", handlers),))
    port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    async with Server(settings.server, app.services) as server:
        sys.stdout.write(f"{server.port} {port}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
    await bare.stop(0)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
