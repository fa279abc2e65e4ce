#!/usr/bin/python3
"""Passes TCP connections of this machine on to a Unix socket: relay.py SOCKET. Prints the port, and ends with its input."""

import asyncio
import sys


async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def main(path):
    async def serve(reader, writer):
        try:
            up, down = await asyncio.open_unix_connection(path)
            await asyncio.gather(copy(reader, down), copy(up, writer))
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main(sys.argv[1]))
