"""aggctl as a process: exit codes, one-line errors, drain, completion."""

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path.cwd()
SERVER = BIN / "server/agg_server"
AGGCTL = BIN / "worker_client/tools/aggctl"
CONFIG = "workers: 1\nlearning_rate { rate: 0.1 }\n"
WAIT = 60  # a test that needs as long has failed


def aggctl(*arguments, coordinator=None, **environment):
    environment["PATH"] = "/usr/bin:/bin"
    if coordinator:
        environment["AGG_COORDINATOR"] = coordinator
    return subprocess.run([AGGCTL, *arguments], env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=WAIT, check=False)


def greet(listener):
    """HTTP/2 connections that get the server's greeting, an empty SETTINGS
    frame (RFC 9113, 3.4), and not a byte more."""
    with contextlib.ExitStack() as connections:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:  # the listener has been shut down
                return
            connections.enter_context(connection)
            with contextlib.suppress(OSError):  # it has hung up
                connection.send(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]),
                                socket.MSG_NOSIGNAL)


class AggctlTest(unittest.TestCase):

    def serve(self, *flags):
        """A server's process and address."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config = pathlib.Path(folder.name, "job.textproto")
        config.write_text(CONFIG)
        port = pathlib.Path(folder.name, "port")
        process = subprocess.Popen(
            [SERVER, f"--config={config}", "--port=0", f"--port_file={port}",
             *flags], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + WAIT
        while not port.exists():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        return process, "127.0.0.1:" + port.read_text().strip()

    def assert_fails(self, run, code, text):
        self.assertEqual(run.returncode, code, run)
        self.assertEqual(run.stderr.count("\n"), 1, run)
        self.assertTrue(run.stderr.startswith("aggctl: "), run)
        self.assertIn(text, run.stderr)

    def test_exit_codes(self):
        _, address = self.serve()
        good = aggctl("status", coordinator=address)
        self.assertEqual(good.returncode, 0, good)
        self.assertIn("job       default: ", good.stdout)
        self.assert_fails(aggctl("status", "--bogus"), 1, "--bogus")
        self.assert_fails(aggctl("evict", "--rank=0", coordinator=address), 2,
                          "NOT_FOUND: nobody")
        self.assert_fails(
            aggctl("set-rule", "mode", f"--coordinator={address}"), 2,
            "INVALID_ARGUMENT")
        with open("/dev/full", "w", encoding="ascii") as full:
            run = subprocess.run([AGGCTL, "--help"], stdout=full, text=True,
                                 stderr=subprocess.PIPE, check=False)
        self.assertEqual(run.returncode, 5, run)

    def test_nobody_or_nothing_answers(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % listener.getsockname()[1]
            self.assert_fails(aggctl("status", coordinator=address), 3,
                              "cannot reach " + address)
            listener.listen()  # takes connections, and says nothing
            self.assert_fails(
                aggctl("status", "--timeout=0.2", coordinator=address), 3,
                "cannot reach " + address)

    def test_a_token_of_the_environment_that_is_not_there(self):
        for arguments, path in (([], "/of/environment"),
                                (["--token-file=/said"], "/said")):
            run = aggctl("status", *arguments, coordinator="127.0.0.1:1",
                         AGG_TOKEN_FILE="/of/environment")
            self.assert_fails(run, 5, f'token_file is "{path}"')

    def test_somebody_connects_and_does_not_answer(self):
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=greet, args=[listener])
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        # On a busy machine the connection itself may take so long.
        for seconds in ("0.5", "5", "50"):
            run = aggctl("status", f"--timeout={seconds}", coordinator=address)
            if run.returncode != 3:
                break
        self.assert_fails(run, 4, address + " has not answered within ")

    def test_json_is_json(self):
        _, address = self.serve()
        for command in ("status", "workers", "rounds", "version"):
            run = aggctl(command, "--output=json", coordinator=address)
            self.assertEqual(run.returncode, 0, run)
            for line in run.stdout.splitlines():
                json.loads(line)
        self.assertEqual(
            json.loads(aggctl("status", "--output=json",
                              coordinator=address).stdout)["combination"],
            {"rule": "mean", "scope": "per_tensor", "step_scale": "none"})

    def test_drain_ends_the_process_as_sigterm_does(self):
        process, address = self.serve()
        run = aggctl("drain", coordinator=address)
        self.assertEqual(run.returncode, 0, run)
        self.assertEqual(process.wait(WAIT), 0)
        self.assert_fails(aggctl("status", coordinator=address), 3, "reach")

    def test_admin_can_be_switched_off(self):
        _, address = self.serve("--admin=false")
        self.assertEqual(aggctl("status", coordinator=address).returncode, 0)
        for command in (["drain"], ["set-rule", "sum"], ["rounds"],
                        ["evict", "--rank=0"], ["loglevel", "debug"]):
            self.assert_fails(aggctl(*command, coordinator=address), 2,
                              "--admin=false")

    def complete(self, *words):
        """What bash offers for the last of the words, split at = as it does."""
        script = aggctl("completion", "bash")
        self.assertEqual(script.returncode, 0, script)
        quoted = " ".join(f"'{word}'" for word in words)
        run = subprocess.run(
            ["bash", "-c", script.stdout + f"COMP_WORDS=({quoted}); "
             f"COMP_CWORD={len(words) - 1}; _aggctl; "
             'printf "%s\\n" "${COMPREPLY[@]}"'],
            text=True, capture_output=True, timeout=WAIT, check=False)
        self.assertEqual(run.stderr, "", run)
        return run.stdout.split()

    def test_completion(self):
        self.assertEqual(self.complete("aggctl", "st"), ["status"])
        self.assertIn("evict", self.complete("aggctl", ""))
        self.assertIn("--coordinator=", self.complete("aggctl", "--c"))
        self.assertEqual(self.complete("aggctl", "evict", "--ra"), ["--rank="])
        self.assertEqual(self.complete("aggctl", "status", "--ra"), [])
        self.assertEqual(self.complete("aggctl", "set-rule", "adasum_"),
                         ["adasum_counted"])
        self.assertEqual(
            self.complete("aggctl", "set-rule", "--scope", "=", "g"),
            ["global"])
        self.assertEqual(self.complete("aggctl", "--output", "="),
                         ["table", "json"])
        self.assertEqual(self.complete("aggctl", "--output", "=", "json", "ev"),
                         ["evict"])
        self.assertEqual(self.complete("aggctl", "loglevel", "w"), ["warning"])
        # A flag's value is no command, as one word or as two.
        self.assertEqual(self.complete("aggctl", "--output", "json", "ev"),
                         ["evict"])
        self.assert_fails(aggctl("completion", "tcsh"), 1,
                          "allowed: bash, zsh, fish")

    def script(self, shell):
        """The completion script of a shell, which that shell can read."""
        script = aggctl("completion", shell)
        self.assertEqual(script.returncode, 0, script)
        for text in ("evict", "coordinator", "adasum_counted", "per_tensor",
                     "warning"):
            self.assertIn(text, script.stdout)
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not installed: its script was printed, "
                          "and not tried")
        run = subprocess.run([shell, "-n"], input=script.stdout, text=True,
                             capture_output=True, timeout=WAIT, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return script.stdout

    # A line as far as it is typed -> the words that continue it.
    LINES = {
        "aggctl st": {"status"},
        "aggctl evict --ra": {"--rank="},
        "aggctl status --ra": set(),
        "aggctl set-rule adasum_": {"adasum_counted"},
        "aggctl set-rule --scope=g": {"--scope=global"},
        "aggctl --output ": {"table", "json"},
        "aggctl --output json ev": {"evict"},
        "aggctl --coordinator=h:1 ev": {"evict"},
        "aggctl loglevel w": {"warning"},
        "aggctl completion f": {"fish"},
        "aggctl --ver": {"--version"},
    }

    def test_zsh_completion(self):
        # What zsh offers where nobody types: its builtins are stand-ins that
        # print, and zsh's own choice of what fits is done here.
        stand_ins = """
            compdef() { }
            compset() { [[ $1 == -P ]] && typed=${words[CURRENT]%%=*}= }
            compadd() {
              while [[ $1 != -- ]]; do shift; done
              shift
              for word; do print -r -- "$typed$word"; done
            }
            _files() { print -r -- FILES }
        """
        script = stand_ins + self.script("zsh")

        def offered(line):
            run = subprocess.run(
                ["zsh", "-f", "-c", script + "\ntyped=; words=("
                 + " ".join(f"'{word}'" for word in line.split(" "))
                 + "); CURRENT=$#words; _aggctl"],
                text=True, capture_output=True, timeout=WAIT, check=False)
            self.assertEqual(run.stderr, "", line)
            last = line.split(" ")[-1]
            return {word for word in run.stdout.split()
                    if word.startswith(last)}

        for line, words in self.LINES.items():
            self.assertEqual(offered(line), words, line)
        self.assertIn("FILES", offered("aggctl pull "))

    def test_fish_completion(self):
        script = self.script("fish")

        def offered(line):
            run = subprocess.run(
                ["fish", "--no-config", "-c",
                 script + f"complete -C '{line}'"], text=True,
                capture_output=True, timeout=WAIT, check=False,
                env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
            self.assertEqual(run.stderr, "", line)
            return {word.split("\t")[0] for word in run.stdout.splitlines()}

        for line, words in self.LINES.items():
            # fish adds the = of a flag with a value by itself.
            self.assertEqual(offered(line), {w.rstrip("=") for w in words},
                             line)
        self.assertIn("/etc/hostname", offered("aggctl pull /etc/hostn"))


if __name__ == "__main__":
    unittest.main()
