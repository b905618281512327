"""What bare TCP connections make of a link: the floor under pipeline.py.

  bare_sockets.py --serve --port=P           in the one namespace
  bare_sockets.py --connect=HOST --port=P    in the other one
      --connections=N --bytes=N [--in_turn]

The one that connects speaks to the benchmark as its workers do: {"ready": ..},
then, for each line N of stdin, N rounds with "begin" and "end" in ns. In a
round each connection carries its bytes up and down: at the same time, or, with
--in_turn, down when all have come up, as an atomic round does.
"""

import argparse
import json
import socket
import sys
import threading
import time

CALL_BYTES = 1 << 20
HEADER = 17  # in turn or not, bytes, connections


def send_all(connection, count):
    block = memoryview(bytes(CALL_BYTES))
    while count > 0:
        count -= connection.send(block[:min(count, CALL_BYTES)])


def receive_all(connection, count, block):
    while count > 0:
        got = connection.recv_into(block, min(count, len(block)))
        if got == 0:
            raise EOFError
        count -= got


class Round:
    """Lets connections go on together when all rows have come."""

    def __init__(self):
        self.lock = threading.Lock()
        self.barriers = {}

    def wait(self, parties):
        with self.lock:
            barrier = self.barriers.setdefault(
                parties, threading.Barrier(parties))
        barrier.wait()


def answer(connection, rounds):
    """The serving end of a connection, round after round."""
    block, header = bytearray(CALL_BYTES), bytearray(HEADER)
    try:
        while True:
            receive_all(connection, HEADER, header)
            in_turn = header[0] == 1
            count = int.from_bytes(header[1:9], "little")
            if in_turn:
                receive_all(connection, count, block)
                rounds.wait(int.from_bytes(header[9:17], "little"))
                send_all(connection, count)
            else:
                both(connection, count, block)
    except (EOFError, ConnectionError):
        connection.close()


def both(connection, count, block):
    sender = threading.Thread(target=send_all, args=(connection, count))
    sender.start()
    receive_all(connection, count, block)
    sender.join()


def serve(port):
    listener = socket.create_server(("", port), backlog=64)
    print(json.dumps({"ready": True}), flush=True)
    rounds = Round()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection, rounds),
                         daemon=True).start()


def ask(connection, args, block):
    connection.sendall(bytes([args.in_turn])
                       + args.bytes.to_bytes(8, "little")
                       + args.connections.to_bytes(8, "little"))
    if args.in_turn:
        send_all(connection, args.bytes)
        receive_all(connection, args.bytes, block)
    else:
        both(connection, args.bytes, block)


def connect(args):
    connections = [socket.create_connection((args.connect, args.port))
                   for _ in range(args.connections)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    blocks = [bytearray(CALL_BYTES) for _ in connections]
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            begin = time.monotonic_ns()
            threads = [threading.Thread(target=ask, args=(c, args, b))
                       for c, b in zip(connections, blocks)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(json.dumps({"begin": begin, "end": time.monotonic_ns()}),
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--connect")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=100_000_000)
    parser.add_argument("--in_turn", action="store_true")
    args = parser.parse_args()
    if args.serve:
        serve(args.port)
    connect(args)


if __name__ == "__main__":
    main()
