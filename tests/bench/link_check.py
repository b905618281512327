"""Measures an emulated link itself, so that its numbers can be trusted:
pipeline.py --check.

  link_check.py --echo=PORT             answers datagrams, in the one namespace
  link_check.py --ask=HOST:PORT         asks from the other one
"""

import json
import socket
import statistics
import subprocess
import sys
import time

from links import ADDRESS, Link, describe
from trips import Team

PROBES = 100
DATAGRAMS = 100_000


def echo(port):
    """Answers each datagram with how many have come so far."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    server.bind(("", port))
    print(json.dumps({"ready": True}), flush=True)
    count = 0
    while True:
        datagram, sender = server.recvfrom(2048)
        count += 1
        if datagram.startswith(b"?"):
            server.sendto(str(count).encode(), sender)


def probe(client):
    """Milliseconds of a round trip, and what the server has counted; None:
    lost."""
    begin = time.monotonic()
    client.send(b"?")
    try:
        count = int(client.recv(64))
    except socket.timeout:
        return None
    return 1e3 * (time.monotonic() - begin), count


def ask(host, port):
    """Prints round trips, and how many of many datagrams got lost."""
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(1)
    client.connect((host, port))
    trips = [p for p in (probe(client) for _ in range(PROBES)) if p]
    if not trips:
        sys.exit("no datagram came back")
    before = trips[-1][1]
    # 250 at once fit into every queue; then wait for them.
    sent = 0
    last = None
    while sent < DATAGRAMS or last is None:
        for _ in range(250):
            client.send(b"!" * 372)
        last = probe(client)
        sent += 251
    print(json.dumps({"trips": [t for t, _ in trips], "sent": sent,
                      "arrived": last[1] - before}))


def goodput(link, connections, count):
    """Mbit/s of bare connections, one way and both ways at once."""
    here = __file__.replace("link_check.py", "bare_sockets.py")
    server = subprocess.Popen(
        link.inside(link.servers, sys.executable, here, "--serve",
                    "--port=50040"), stdout=subprocess.PIPE, text=True)
    try:
        server.stdout.readline()
        speeds = []
        for more, ways in (["--in_turn"], 2), ([], 1):
            team = Team([link.inside(
                link.workers, sys.executable, here, f"--connect={ADDRESS}",
                "--port=50040", f"--connections={connections}",
                f"--bytes={count}", *more)])
            team.run(1)
            speeds.append(statistics.median(
                8 * ways * connections * count / us for us in team.run(3)))
            team.stop()
        return speeds
    finally:
        server.kill()
        server.wait()


def check(shape, bin_folder, congestion):
    print(f"The link: {shape}")
    with Link(shape, bin_folder, congestion) as link:
        server = subprocess.Popen(
            link.inside(link.servers, sys.executable, __file__,
                        "--echo=50041"), stdout=subprocess.PIPE, text=True)
        try:
            server.stdout.readline()
            result = json.loads(subprocess.run(
                link.inside(link.workers, sys.executable, __file__,
                            f"--ask={ADDRESS}:50041"), check=True,
                capture_output=True, text=True, timeout=300).stdout)
        finally:
            server.kill()
            server.wait()
        trips = result["trips"]
        print(f"Round trip of a datagram: {statistics.median(trips):.2f} ms,"
              f" {min(trips):.2f} to {max(trips):.2f}")
        print(f"Lost of {result['sent']} datagrams one way:"
              f" {1 - result['arrived'] / result['sent']:.4%}")
        describe(link.counts())
    count = max(shape.mbit * 1_000_000 // 8, 1_000_000)  # a second
    for each in shape.without_loss(), shape:
        if each is not shape and not shape.loss:
            continue
        with Link(each, bin_folder, congestion) as link:
            for connections in (1, 2):
                one, two = goodput(link, connections,
                                   count // connections)
                print(f"Bare sockets, loss {each.loss:g}%, {connections}"
                      f" connections: in turn {one:.0f} Mbit/s"
                      f" ({one / each.mbit:.0%}), both ways at once"
                      f" {two:.0f} ({two / each.mbit:.0%})")
            describe(link.counts())


def main():
    name, _, value = sys.argv[1].partition("=")
    if name == "--echo":
        echo(int(value))
    host, _, port = value.rpartition(":")
    ask(host, int(port))


if __name__ == "__main__":
    main()
