"""The binary: flags, exit codes, files, signals."""

import ctypes
import itertools
import json
import os
import re
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.request

SERVER = os.path.join("server", "agg_server")
INSECURE = "security { insecure: true }\n"
CONFIG = 'workers: 1 learning_rate { rate: 0.1 }\n'


def run(*flags, config=CONFIG, preexec_fn=None):
    return subprocess.run((SERVER,) + flags, input=config, text=True,
                          capture_output=True, timeout=60,
                          preexec_fn=preexec_fn)


class FlagsTest(unittest.TestCase):

    def test_validate(self):
        result = run("--config=-", "--validate")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_print_config_is_a_fixed_point(self):
        first = run("--config=-", "--print_config")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn('rule: "mean"', first.stdout)
        second = run("--config=-", "--print_config", config=first.stdout)
        self.assertEqual(second.stdout, first.stdout)

    def test_bad_configs(self):
        for config, message in (
                ("workers: 1\nfoo: 2", "stdin:2:4:"),
                ("workers: -1", "workers is -1"),
                (CONFIG + 'backend: "tpu"', 'backend is "tpu"')):
            result = run("--config=-", "--validate", config=config)
            self.assertEqual(result.returncode, 2, config)
            self.assertIn(message, result.stderr)

    def test_all_mistakes_of_a_file_are_named(self):
        result = run("--config=-", config='wrokers: 2\nbackend: "tpu"\n'
                     'shards: "h"\nquorum: 1\nmetrix {}\n')
        self.assertEqual(result.returncode, 2)
        lines = result.stderr.splitlines()
        for line, text in itertools.zip_longest(lines, (
                "agg_server: stdin:1:8: ", "agg_server: stdin:5:8: ",
                'agg_server: stdin: shards[0] is "h"; allowed: ',
                "agg_server: stdin: workers is 0; allowed: ",
                'agg_server: stdin: backend is "tpu"; allowed: ',
                "agg_server: stdin: quorum is 1; allowed: ",
                "agg_server: stdin: learning_rate.rate is 0; allowed: ")):
            self.assertTrue(line.startswith(text), result.stderr)

    def test_bad_flags(self):
        for flags, message in (
                (["--wrong"], 'unknown flag "--wrong"'),
                (["config.textproto"], "config.textproto"),
                (["--config=-", "--shard=1"], '--shard is "1"'),
                (["--config=/no/such/file"],
                 '"/no/such/file" (No such file or directory)'),
                (["--config=" + tempfile.gettempdir()], "(a folder)"),
                (["--config=/dev/null"], "(empty; "),
                (["--config=-", "--bind=http://h"],
                 '--bind is "http://h"; allowed: '),
                (["--config=-", "--exit_with_stdin"],
                 "--exit_with_stdin is true; allowed: "),
                ([], "--config is missing")):
            result = run(*flags)
            self.assertEqual(result.returncode, 2, flags)
            self.assertIn(message, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_version_and_help(self):
        self.assertRegex(run("--version").stdout, r"^agg_server \d+\.\d+\.\d+$")
        self.assertIn("--print_config", run("--help").stdout)


class ProcessTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, *flags, preexec_fn=None, stdin=None, config_text=CONFIG):
        """A server whose port file is written, and what it has logged."""
        config = os.path.join(self.folder.name, "job.textproto")
        with open(config, "w") as file:
            file.write(config_text)
        self.port_file = os.path.join(self.folder.name, "port")
        process = subprocess.Popen(
            (SERVER, "--config", config, "--port=0", "--port_file",
             self.port_file) + flags, stderr=subprocess.PIPE, text=True,
            preexec_fn=preexec_fn, stdin=stdin)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        log = ""
        for line in process.stderr:
            log += line
            if "all shards are attached" in line:
                break
        return process, log

    def test_sigterm_drains(self):
        metrics = os.path.join(self.folder.name, "metrics")
        process, log = self.start("--metrics_port=0",
                                  "--metrics_port_file=" + metrics)
        for line in ("fingerprint", "memory budget", "limits:", "backend:"):
            self.assertIn(line, log)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        self.assertEqual(process.wait(60), 0, rest)
        self.assertIn("drained", rest)
        with open(self.port_file) as file:
            self.assertRegex(file.read(), r"^\d+\n$")
        with open(metrics) as file:
            self.assertRegex(file.read(), r"^\d+\n$")
        self.assertEqual(sorted(os.listdir(self.folder.name)),
                         ["job.textproto", "metrics", "port"])

    def assert_is_json_log(self, text, job, last):
        """Each line is a record with the documented fields."""
        records = [json.loads(line) for line in text.splitlines()]
        for record in records:
            self.assertEqual(
                [name for name in ("time", "severity", "message", "file", "line")
                 if name not in record], [], record)
            self.assertRegex(record["time"],
                             r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(record["severity"], ("INFO", "WARNING", "ERROR"))
            self.assertRegex(record["file"], r"^server/[a-z_/]+\.(cc|h)$")
            self.assertGreater(record["line"], 0)
            self.assertEqual((record.get("job"), record.get("shard")),
                             (job, None if job is None else 0))
        self.assertIn(last, records[-1]["message"])
        return records

    def test_a_log_of_json(self):
        process, log = self.start("--log_format=json",
                                  config_text=CONFIG + 'job: "night"\n')
        process.send_signal(signal.SIGTERM)
        log += process.stderr.read()
        self.assertEqual(process.wait(60), 0, log)
        records = self.assert_is_json_log(log, "night", "drained")
        places = {record["message"].split(":")[0]: record["file"]
                  for record in records}
        self.assertEqual(places["backend"], "server/server.cc")
        self.assertEqual(places["drained"], "server/server_main.cc")

    def test_a_mistake_in_a_log_of_json(self):
        result = run("--config=-", "--log_format=json", config="workers: -1")
        self.assertEqual(result.returncode, 2)
        self.assert_is_json_log(result.stderr, None, "learning_rate.rate is 0")

    def start_with_metrics(self):
        """A server with a metrics port; its process and that port."""
        path = os.path.join(self.folder.name, "metrics")
        process, _ = self.start("--metrics_port=0", "--drain_seconds=60",
                                "--metrics_port_file=" + path)
        deadline = time.monotonic() + 60
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.005)
        with open(path) as file:
            return process, int(file.read())

    def scrape(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics",
                                    timeout=60) as answer:
            return answer.read().decode()

    def test_who_scrapes_sees_an_orderly_stop(self):
        process, port = self.start_with_metrics()
        self.assertIn('aggserver_stopping{job="default",shard="0"} 0\n',
                      self.scrape(port))
        # The next scrape is awaited for one and a half times what lies between
        # these two.
        first = time.monotonic()
        while time.monotonic() < first + 2:
            time.sleep(0.1)
        self.scrape(port)
        process.send_signal(signal.SIGTERM)
        log = ""
        while "the metrics port stays open until the stop is scraped" not in log:
            line = process.stderr.readline()
            self.assertTrue(line, log)
            log += line
        self.assertIn("drained", log)
        last = self.scrape(port)
        self.assertIn('aggserver_stopping{job="default",shard="0"} 1\n', last)
        self.assertIn('phase="draining"} 1\n', last)
        # It has been seen: there is nothing to wait for.
        self.assertEqual(process.wait(60), 0, process.stderr.read())

    def test_a_server_that_nobody_scrapes_ends_at_once(self):
        process, port = self.start_with_metrics()
        self.scrape(port)  # by a person
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        self.assertEqual(process.wait(60), 0, rest)
        self.assertNotIn("stays open", rest)

    def test_silent_connections_do_not_hold_a_scrape_up(self):
        _, port = self.start_with_metrics()
        silent = [socket.create_connection(("127.0.0.1", port))
                  for _ in range(60)]
        begun = time.monotonic()
        self.assertIn("aggserver_build_info", self.scrape(port))
        # Prometheus gives up after 10 s.
        self.assertLess(time.monotonic() - begun, 10)
        for connection in silent:
            connection.close()

    def test_a_signal_is_audited(self):
        audit = os.path.join(self.folder.name, "audit")
        process, _ = self.start(
            config_text=CONFIG + f'security {{ audit {{ path: "{audit}" }} }}')
        process.send_signal(signal.SIGTERM)
        self.assertIn('audit: {"time": ', process.stderr.read())
        self.assertEqual(process.wait(60), 0)
        with open(audit) as file:
            (line,) = [json.loads(line) for line in file]
        self.assertEqual((line["action"], line["detail"], line["outcome"]),
                         ("drain", "signal 15 (Terminated)", "OK"))

    def test_drains_when_stdin_ends(self):
        process, _ = self.start("--exit_with_stdin", stdin=subprocess.PIPE)
        process.stdin.write("dropped")
        process.stdin.flush()
        self.assertIsNone(process.poll())
        process.stdin.close()
        rest = process.stderr.read()
        self.assertEqual(process.wait(60), 0, rest)
        self.assertIn("standard input has ended: draining", rest)

    def test_sigint_drains(self):
        process, _ = self.start()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 0)

    def test_sighup_drains(self):
        process, _ = self.start()
        process.send_signal(signal.SIGHUP)
        rest = process.stderr.read()
        self.assertEqual(process.wait(60), 0, rest)
        self.assertIn("signal 1 ", rest)
        self.assertIn("drained", rest)

    def test_under_nohup_sighup_is_ignored(self):
        process, _ = self.start(preexec_fn=lambda: signal.signal(
            signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        self.assertEqual(process.wait(60), 0, rest)
        self.assertNotIn("signal 1 ", rest)
        self.assertIn("signal 15 ", rest)

    def test_a_port_file_does_not_replace_what_is_no_file(self):
        pipe = os.path.join(self.folder.name, "pipe")
        os.mkfifo(pipe)
        link = os.path.join(self.folder.name, "link")
        os.symlink(pipe, link)
        for flag in ("--port_file", "--metrics_port_file"):
            for path in (pipe, link, self.folder.name):
                result = run("--config=-", "--port=0", "--metrics_port=0",
                             f"{flag}={path}")
                self.assertEqual(result.returncode, 1, result.stderr)
                self.assertIn(f'{flag} is "{path}" (not a regular file); '
                              "allowed: ", result.stderr)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        self.assertTrue(os.path.islink(link))
        self.assertEqual(sorted(os.listdir(self.folder.name)),
                         ["link", "pipe"])

    # Nobody makes files there, root neither; a supervisor need not try again.
    def test_a_port_file_that_may_not_be_written_is_a_matter_of_usage(self):
        result = run("--config=-", "--port=0", "--port_file=/sys/agg_port")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn('--port_file is "/sys/agg_port" (', result.stderr)

    def test_a_link_to_a_port_file_stays_a_link(self):
        os.symlink("file", os.path.join(self.folder.name, "port"))
        with open(os.path.join(self.folder.name, "file"), "w"):
            pass
        process, _ = self.start()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)  # its ports are written
        self.assertTrue(os.path.islink(self.port_file))
        with open(self.port_file) as file:
            self.assertRegex(file.read(), r"^\d+\n$")

    def assert_cannot_listen(self, result, *texts):
        self.assertEqual(result.returncode, 1)
        last = result.stderr.splitlines()[-1]
        for text in ("agg_server: cannot listen on ",) + texts:
            self.assertIn(text, last)
        # gRPC's own lines begin with a letter and a date.
        self.assertNotRegex(result.stderr, r"(?m)^E\d{4} ")

    def test_a_port_in_use(self):
        _, log = self.start()
        port = re.search(r"listens on 127\.0\.0\.1:(\d+)", log).group(1)
        self.assert_cannot_listen(run("--config=-", "--port=" + port),
                                  "127.0.0.1:" + port, "already in use")

    def test_an_address_of_another_host(self):
        # TEST-NET-1 of RFC 5737: no host's.
        self.assert_cannot_listen(run("--config=-", "--bind=192.0.2.1",
                                      config=CONFIG + INSECURE),
                                  "192.0.2.1:50051", "Cannot assign")

    def test_a_privileged_port(self):
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
            if int(file.read()) <= 80:
                self.skipTest("port 80 is not privileged here")
        prctl = ctypes.CDLL(None).prctl
        pr_capbset_drop, cap_net_bind_service = 24, 10
        result = run("--config=-", "--port=80", preexec_fn=lambda: prctl(
            pr_capbset_drop, cap_net_bind_service, 0, 0, 0))
        self.assert_cannot_listen(result, "127.0.0.1:80", "Permission denied")

    def start_with_file(self, config, path):
        """The exit code and the last line of a server that may not pass by
        modes, which root may."""
        prctl = ctypes.CDLL(None).prctl
        pr_capbset_drop, cap_dac_override, cap_dac_read_search = 24, 1, 2

        def preexec():
            for cap in (cap_dac_override, cap_dac_read_search):
                prctl(pr_capbset_drop, cap, 0, 0, 0)

        result = run("--config=-", "--port=0", preexec_fn=preexec,
                     config=CONFIG + config.replace("FILE", path))
        return result.returncode, result.stderr.splitlines()[-1]

    def test_a_file_that_is_not_for_this_process_is_no_reason_to_try_again(
            self):
        # Of nobody whom this test may be, root included.
        locked = os.path.join(self.folder.name, "locked")
        os.mkdir(locked)
        token = os.path.join(locked, "file")
        with open(token, "w") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
        os.chmod(locked, 0)
        self.addCleanup(os.chmod, locked, 0o700)
        if os.geteuid() == 0:
            os.chown(locked, 65534, 65534)
        tokens = {}
        for name in ("worker", "shard"):
            tokens[name] = os.path.join(self.folder.name, name)
            with open(tokens[name], "w") as file:
                file.write(f"the_token_of_the_{name}\n")

        def identities(worker=tokens["worker"], shard=tokens["shard"], more=""):
            return ('security { identities { name: "w" roles: "worker" '
                    f'token_file: "{worker}" }} shard_token_file: "{shard}" '
                    + more + "}")

        tls = 'certificate: "FILE" key: "FILE" client_ca: "FILE"'
        for field, config in (
                ("security.identities[0].token_file", identities("FILE")),
                ("security.shard_token_file", identities(shard="FILE")),
                ("security.denied_file",
                 identities(more='denied_file: "FILE" ')),
                ("security.tls.certificate", "security { tls { %s } }" % tls),
                ("security.audit.path",
                 'security { audit { path: "FILE" } }'),
                ("round_log", 'round_log { path: "FILE" }')):
            with self.subTest(field):
                code, said = self.start_with_file(config, token)
                self.assertEqual(code, 2, said)
                self.assertIn(field, said)
                self.assertIn("Permission denied", said)
                self.assertIn(token, said)
                # What is not there yet may come: a mount, a Secret.
                code, said = self.start_with_file(
                    config, os.path.join(self.folder.name, "later", "file"))
                self.assertEqual(code, 1, said)
                self.assertIn("No such file", said)

    def test_a_wide_bind_is_refused(self):
        result = run("--config=-", "--bind=0.0.0.0", "--port=0")
        self.assertEqual(result.returncode, 1)
        self.assertIn('--bind is "0.0.0.0"; allowed: ', result.stderr)
        self.assertIn("security { insecure: true }", result.stderr)

    def test_a_wide_bind_that_is_meant_warns(self):
        _, log = self.start("--bind=0.0.0.0", config_text=CONFIG + INSECURE)
        self.assertIn("insecure: listening on 0.0.0.0 without TLS", log)


if __name__ == "__main__":
    unittest.main()
