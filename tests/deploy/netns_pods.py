"""Pods as network namespaces: each with an address of its own on a bridge that
lives in a namespace, too, and with the resolv.conf that a kubelet writes. No
packet can leave them, and nothing of the machine's own network is touched.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

from tests import netns_leftovers

_SUBNET = "10.231.7"
_DNS = f"{_SUBNET}.2"
_USER = "65532"
_NAMESPACE = "agg-server"
# Where ip and hostname may be, and a service's PATH may not lead.
os.environ["PATH"] = ":".join(
    [os.environ.get("PATH", "/usr/bin:/bin"), "/usr/sbin", "/sbin"])
_ETC = pathlib.Path("/etc/netns")  # `ip netns exec` mounts its files on /etc

# As the container: a host name, a root that cannot be written to, and the
# StatefulSet's user without any right. Dies with the test.
_CONTAINER = f"""
hostname "$0" && mount -o remount,bind,ro / &&
exec setpriv --reuid={_USER} --regid={_USER} --clear-groups --inh-caps=-all \\
  --bounding-set=-all --no-new-privs --pdeathsig KILL -- "$@"
"""

# In a process of the namespace: GET, then "status\nbody".
_GET = """
import sys, urllib.request, urllib.error
try:
    reply = urllib.request.urlopen(sys.argv[1], timeout=10)
except urllib.error.HTTPError as error:
    reply = error
print(reply.status)
sys.stdout.write(reply.read().decode())
"""


def run(*command):
    subprocess.run([str(word) for word in command], check=True,
                   stdin=subprocess.DEVNULL, capture_output=True)


def why_not():
    """Why namespaces cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("ip", "unshare", "hostname", "mount", "setpriv"):
        if shutil.which(tool) is None:
            return f"needs the program {tool}"
    netns_leftovers.remove()
    name = f"agg{os.getpid()}try"
    try:
        run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"cannot make network namespaces: {error.stderr.decode()!r}"
    try:
        run("ip", "-n", name, "link", "add", "name", "try0",
            "type", "veth", "peer", "name", "try1")
        run("ip", "-n", name, "link", "add", "name", "try2",
            "type", "bridge")
        run("ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c",
            _CONTAINER, "host", "true")
    except subprocess.CalledProcessError as error:
        return f"cannot make a pod: {error.stderr.decode()!r}"
    finally:
        run("ip", "netns", "del", name)
    return None


def wait_for(what, condition, seconds=120):
    """The condition's first true value; AssertionError after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class Pod:
    """One namespace and at most one process in it."""

    def __init__(self, cluster, host, address):
        self.cluster = cluster
        self.host = host
        self.address = address
        self.netns = f"{cluster.prefix}{address.rsplit('.', 1)[1]}"
        self.log = cluster.folder / f"{self.netns}_{host}.log"
        self.out = self.log.with_suffix(".out")
        self.process = None

    def start(self, *command, confined=True):
        """As the container's process 1; `host` is the pod's host name."""
        words = ["ip", "netns", "exec", self.netns]
        if confined:
            words += ["unshare", "--uts", "sh", "-c", _CONTAINER, self.host]
        words += command
        with open(self.log, "wb") as log, open(self.out, "wb") as out:
            self.process = subprocess.Popen(
                [str(word) for word in words], stdin=subprocess.DEVNULL,
                stdout=out, stderr=log)
        return self

    def text(self):
        return self.log.read_text(errors="replace")

    def unplug(self):
        """Its packets go nowhere any more: nobody hears it die."""
        run("ip", "-n", self.netns, "link", "set", "eth0", "down")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def get(self, path, port=9464, host="127.0.0.1"):
        """(status, body) of a GET from within the pod; None: no answer."""
        result = subprocess.run(
            ["ip", "netns", "exec", self.netns, sys.executable, "-c", _GET,
             f"http://{host}:{port}{path}"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True)
        if result.returncode != 0:
            return None
        status, _, body = result.stdout.partition("\n")
        return int(status), body


class Cluster:
    """Pods, a bridge and a DNS server; everything ends with `close`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.prefix = f"agg{os.getpid()}n"
        self.pods = []
        self.netns = []
        self.records_file = self.folder / "records"
        self.records = {}
        self.write_records()
        self.bridge = f"{self.prefix}br"
        try:
            self._make_netns(self.bridge)
            run("ip", "-n", self.bridge, "link", "add", "name", "br0",
                "type", "bridge")
            run("ip", "-n", self.bridge, "link", "set", "br0", "up")
            self._start_dns()
        except BaseException:
            self.close()
            raise

    def _make_netns(self, name):
        run("ip", "netns", "add", name)
        self.netns.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def _start_dns(self):
        dns = self.add("dns", 2)
        script = pathlib.Path(__file__).with_name("netns_dns.py")
        dns.start(sys.executable, script, _DNS, self.records_file,
                  confined=False)  # port 53
        wait_for("DNS", lambda: "listening" in dns.out.read_text())

    def write_records(self):
        temporary = self.records_file.with_suffix(".tmp")
        temporary.write_text("".join(
            f"{name} {address}\n" for name, address in self.records.items()))
        temporary.replace(self.records_file)

    def add(self, host, number, service=None):
        """A pod at address `number`; with a headless service also its name
        there, which moves if the host had it at another address."""
        pod = Pod(self, host, f"{_SUBNET}.{number}")
        self._make_netns(pod.netns)
        port = f"v{number}"
        run("ip", "-n", self.bridge, "link", "add", "name", port, "type",
            "veth", "peer", "name", "eth0", "netns", pod.netns)
        run("ip", "-n", self.bridge, "link", "set", port, "master", "br0",
            "up")
        run("ip", "-n", pod.netns, "address", "add", f"{pod.address}/24",
            "dev", "eth0")
        run("ip", "-n", pod.netns, "link", "set", "eth0", "up")
        etc = _ETC / pod.netns
        etc.mkdir(parents=True)
        domain = "svc.cluster.local"
        (etc / "resolv.conf").write_text(
            f"nameserver {_DNS}\nsearch {_NAMESPACE}.{domain} {domain} "
            "cluster.local\noptions ndots:5\n")
        (etc / "hosts").write_text(
            f"127.0.0.1 localhost\n{pod.address} {host}\n")
        if service:
            self.records[f"{host}.{service}.{_NAMESPACE}.{domain}"] = (
                pod.address)
            self.write_records()
        self.pods.append(pod)
        return pod

    def close(self):
        for pod in self.pods:
            if pod.process and pod.process.poll() is None:
                pod.kill()
        for name in self.netns:
            subprocess.run(["ip", "netns", "del", name], check=False,
                           stdin=subprocess.DEVNULL, capture_output=True)
            shutil.rmtree(_ETC / name, ignore_errors=True)
        try:
            _ETC.rmdir()  # if nobody else has something there
        except OSError:
            pass
