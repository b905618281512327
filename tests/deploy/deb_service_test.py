"""The service of the Debian packages, under a systemd of its own.

For the cell `sdk` of tests/run.sh: installs the packages and Debian's systemd in
a chroot, boots it in namespaces, and does there what deploy/docs/debian.md says.
So the unit's own settings hold, and none is imitated; what this machine's kernel
does not give to such a systemd (cgroup controllers, say) the unit does not use.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from tests.deploy import debian
from tests.deploy.debian import BIN, ROOT, fenced
from tests.deploy.sdk_job import WAIT

UNIT = (ROOT / "deploy/deb/agg_server@.service").read_text()
GUIDE = (ROOT / "deploy/docs/debian.md").read_text()
JOB = 'shards: "127.0.0.1:50051"\nworkers: 1\nlearning_rate { rate: 0.5 }\n'

# Own mounts, processes, host name and network, and a cgroup below this one.
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts",
              "--ipc", "--net"]
CGROUP = """
set -eu
mount --make-rprivate /
cgroups=$(mktemp -d)
mount -t cgroup2 cgroup2 "$cgroups"
own=$cgroups$(sed -n 's/^0:://p' /proc/self/cgroup)/agg_deb_$1
"""
# Makes what systemd takes for a container, and becomes it. /proc/sys is this
# machine's, and so is not to be written to.
BOOT = CGROUP + """
mkdir -p "$own"
echo 0 >"$own/cgroup.procs"
umount "$cgroups"
rmdir "$cgroups"
ip link set lo up
mount --bind "$2" "$2"
cd "$2"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
  touch dev/$name
  mount --bind /dev/$name dev/$name
done
mkdir dev/shm dev/pts old
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 tmpfs run
exec unshare --cgroup sh -euc '
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
pivot_root . old
umount -l old
rmdir old
mount --make-rshared /
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
  /lib/systemd/systemd --log-target=journal --show-status=no \\
  --unit=basic.target'
"""
REMOVE = CGROUP + """
# What was killed there may still be on its way out.
for i in $(seq 600); do
  [ -d "$own" ] || break
  find "$own" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
done
[ ! -d "$own" ]
umount "$cgroups"
rmdir "$cgroups"
"""


def setting(name):
    """Its values in the unit."""
    return re.findall(rf"(?m)^{name}=(.*)$", UNIT)


def why_no_systemd():
    reason = debian.why_no_debian()
    if reason:
        return reason
    # The mount goes with its namespace, and so leaves its folder empty.
    with tempfile.TemporaryDirectory(prefix="agg_service_") as scratch:
        tried = subprocess.run(
            [*NAMESPACES, "sh", "-c", CGROUP + 'mkdir "$own"; rmdir "$own"; '
             "ip link set lo up; mount -t sysfs -o ro sysfs /sys", "sh", "try"],
            env={**os.environ, "TMPDIR": scratch},
            capture_output=True, text=True, check=False)
    return f"no systemd can be booted here: {tried.stderr}" \
        if tried.returncode else None


def block(language, text):
    """The one block of the guide that has this text."""
    (found,) = [body for body in fenced(GUIDE, language) if text in body]
    return found


class StartLimitTest(unittest.TestCase):

    def test_it_ends_what_is_without_hope_and_no_recovery(self):
        (interval,), (burst,), (pause,) = (
            map(float, setting(name)) for name in
            ("StartLimitIntervalSec", "StartLimitBurst", "RestartSec"))
        # A start that fails takes a second or less: a limit that these starts do
        # not reach would be none.
        self.assertLess(burst * (pause + 1), interval)
        # What waiting helps against (a port that is in use, a disk that is not
        # mounted) has minutes.
        self.assertGreater(burst * pause, 180)
        # A shard that lives for a few seconds is started for ever.
        self.assertLessEqual(interval / burst - pause, 3)

    def test_exit_codes_that_no_start_mends(self):
        self.assertEqual(setting("RestartPreventExitStatus"), ["2 3"])
        table = (ROOT / "deploy/docs/exit_codes.md").read_text()
        self.assertIn("| 2 | a bad flag, a bad configuration,", table)
        self.assertIn("| 3 | superseded:", table)


REASON = why_no_systemd()


@unittest.skipIf(REASON, REASON)
class ServiceTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="agg_service_")
        cls.addClassCleanup(scratch.cleanup)
        _, packages = debian.made_packages()
        cls.root = pathlib.Path(scratch.name) / "debian"
        fresh = debian.Debian(cls(), cls.root)
        fresh.install("systemd", "dbus", "openssl", *[
            path for path in packages
            if path.name.startswith(("agg-server_", "agg-tools_"))])
        for program in (BIN / "worker_client/examples/minimal_worker",
                        ROOT / "deploy/test_ca.sh"):
            shutil.copy(program, cls.root / "usr/local/bin")
        cls.boot()

    @classmethod
    def boot(cls):
        name = str(os.getpid())
        cls.addClassCleanup(subprocess.run, [
            "unshare", "--mount", "sh", "-c", REMOVE, "sh", name], check=True)
        with open(cls.root / "tmp/boot", "wb") as log:
            outer = subprocess.Popen(
                [*NAMESPACES, "sh", "-c", BOOT, "sh", name, str(cls.root)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        cls.addClassCleanup(outer.wait)
        cls.addClassCleanup(outer.kill)
        children = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        deadline = time.monotonic() + WAIT
        while True:
            said = ""
            if children.read_text().strip():
                cls.systemd = children.read_text().strip()
                # Not before systemd is what runs there.
                cls.inside = ["nsenter", "--all", f"--target={cls.systemd}"]
                if pathlib.Path(f"/proc/{cls.systemd}/comm").read_text() == \
                        "systemd\n":
                    said = subprocess.run(
                        [*cls.inside, "systemctl", "is-system-running"],
                        capture_output=True, text=True, check=False).stdout
            if said in ("running\n", "degraded\n"):
                return
            if outer.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((cls.root / "tmp/boot").read_text())
            time.sleep(0.1)

    def run_inside(self, *words, **options):
        return subprocess.run(
            [*self.inside, "env", "HOME=/root", *words], timeout=WAIT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, **options)

    def succeed(self, *words):
        result = self.run_inside(*words)
        self.assertEqual(result.returncode, 0, result.stdout + self.journal())
        return result.stdout

    def shell(self, text):
        return self.succeed("bash", "-euc", text)

    def journal(self):
        said = self.run_inside("journalctl", "--no-pager", "-n", "100", "-u",
                               "agg_server@0").stdout
        return "".join(line[:300] + "\n" for line in said.splitlines())

    def property(self, name):
        return self.run_inside("systemctl", "show", "--value", "-p", name,
                               "agg_server@0").stdout.strip()

    def wait_for(self, what, condition):
        deadline = time.monotonic() + WAIT
        while not condition():
            self.assertLess(time.monotonic(), deadline,
                            f"{what}\n{self.journal()}")
            time.sleep(0.1)

    def serving(self, *environment):
        return self.run_inside(*environment, "aggctl", "--timeout=5",
                               "health").returncode == 0

    def configure(self, text):
        """This job, of which nothing is there yet."""
        self.run_inside("systemctl", "stop", "agg_server@0")
        self.shell("systemctl reset-failed agg_server@0 || true; "
                   "rm -rf /var/lib/private/agg_server/* "
                   "/var/log/private/agg_server/* /etc/systemd/system/agg*.d; "
                   "systemctl daemon-reload")
        (self.root / "etc/agg_server/job.textproto").write_text(JOB + text)

    def test_the_documented_secrets_logs_and_checkpoints(self):
        self.configure(next(body for body in GUIDE.split("```\n")
                            if body.startswith("security {")))
        # The host's certificate of somebody's CA.
        self.shell("test_ca.sh ~/ca; cd ~; cp ca/ca.pem .; "
                   "cp ca/server.pem host.pem; cp ca/server.key host.key")
        self.shell(block("sh", "base64 >$name"))
        self.shell(block("sh", "install -m 600 ~/host.pem tls.crt"))
        self.assertEqual(
            self.shell("stat -c '%a %U' /etc/agg_server/secrets "
                       "/etc/agg_server/secrets/{shard,tls.key}"),
            "700 root\n600 root\n600 root\n")
        self.succeed("systemctl", "start", "agg_server@0")
        secrets = "/etc/agg_server/secrets"
        tls = f"AGG_TLS_CA={secrets}/ca.crt"
        self.wait_for("the shard serves", lambda: self.serving(
            tls, f"AGG_TOKEN_FILE={secrets}/operator"))
        said = self.succeed(tls, f"AGG_TOKEN_FILE={secrets}/trainer",
                            "minimal_worker", "127.0.0.1:50051")
        self.assertIn("OK, x[0] = 0.9375\n", said)
        status = "".join(block("sh", "AGG_TOKEN_FILE=").splitlines(True)[-2:])
        self.assertIn("AGG_COORDINATOR=host-0:", status)
        self.assertIn("round 4", self.shell(
            status.replace("host-0:", "127.0.0.1:")))
        # The server is nobody, and may do nothing.
        status = self.shell(
            f"cat /proc/{self.property('MainPID')}/status")
        uid, = re.findall(r"(?m)^Uid:\t(\d+)", status)
        self.assertNotEqual(uid, "0")
        for line in ("CapEff:\t0000000000000000", "NoNewPrivs:\t1",
                     "Seccomp:\t2"):
            self.assertIn(line, status)
        self.succeed("systemctl", "stop", "agg_server@0")
        self.assertEqual((self.property("Result"),
                          self.property("ExecMainStatus")),
                         ("success", "0"), self.journal())
        self.assertRegex(self.shell("cat /var/log/agg_server/audit.jsonl"),
                         '"action": "join"')
        self.assertIn("rounds.binlog", self.shell("ls /var/log/agg_server/"))
        self.assertTrue(self.shell(
            "find /var/lib/agg_server/ -name '*manifest*'"), self.journal())

    def test_a_file_for_root_alone_ends_it_at_once(self):
        path = "/etc/agg_server/secrets/direct"
        self.shell(f"umask 077; head -c 32 /dev/urandom | base64 >{path}")
        self.configure('security { identities { name: "a" roles: "worker" '
                       f'token_file: "{path}" }} shard_token_file: "{path}" }}')
        self.run_inside("systemctl", "start", "agg_server@0")
        self.wait_for("the unit fails",
                      lambda: self.property("ActiveState") == "failed")
        self.assertEqual((self.property("NRestarts"),
                          self.property("ExecMainStatus")), ("0", "2"))
        self.assertIn(f'"{path}": Permission denied', self.journal())

    def test_a_start_without_hope_ends(self):
        self.configure('checkpoint { path: "/var/lib/agg_server/missing" }')
        # Sooner than in minutes; the number of starts stays the unit's.
        self.shell("mkdir /etc/systemd/system/agg_server@.service.d; "
                   "printf '[Service]\\nRestartSec=1ms\\n' "
                   ">/etc/systemd/system/agg_server@.service.d/soon.conf; "
                   "systemctl daemon-reload")
        self.run_inside("systemctl", "start", "agg_server@0")
        self.wait_for("the unit fails",
                      lambda: self.property("ActiveState") == "failed")
        self.assertEqual(self.property("ExecMainStatus"), "1")
        self.assertEqual(self.property("NRestarts"),
                         setting("StartLimitBurst")[0])
        self.assertIn("Start request repeated too quickly", self.journal())
        # The documented way back, when it is mended.
        self.shell("mkdir /var/lib/private/agg_server/missing; "
                   "chown --reference=/var/lib/private/agg_server "
                   "/var/lib/private/agg_server/missing")
        self.shell(block("sh", "reset-failed"))
        self.wait_for("the shard serves", self.serving)

    def test_a_killed_shard_comes_back(self):
        self.configure("")
        self.succeed("systemctl", "start", "agg_server@0")
        self.wait_for("the shard serves", self.serving)
        killed = self.property("MainPID")
        self.succeed("systemctl", "kill", f"--signal={signal.SIGKILL:d}",
                     "agg_server@0")
        self.wait_for("another process is there",
                      lambda: self.property("MainPID") not in ("0", killed))
        self.wait_for("the shard serves", self.serving)
        self.assertEqual(self.property("NRestarts"), "1")


if __name__ == "__main__":
    unittest.main()
