"""Programs that stand in for others, and a folder to run scripts in."""

import pathlib
import subprocess
import tempfile
import unittest

CASES = """echo '[==========] Running {number} tests from 1 test suite.'
{cases}
echo '[==========] {number} tests from 1 test suite ran. (5 ms total)'
exit {status}
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else "#!/bin/bash\n" + text)
    path.chmod(0o755)


def google_test(ok=0, failed=0, skipped=0, status=None):
    """A program that prints what such a GoogleTest program would."""
    lines = [f"echo '[       OK ] A.Ok{i} (1 ms)'" for i in range(ok)]
    lines += [f"echo '[  FAILED  ] A.No{i} (1 ms)'; echo '[  FAILED  ] A.No{i}'"
              for i in range(failed)]
    lines += ["echo 'a_test.cc:7: Skipped'; echo 'no CUDA device: none'; "
              f"echo '[  SKIPPED ] A.Skip{i} (0 ms)'" for i in range(skipped)]
    return CASES.format(number=ok + failed + skipped, cases="\n".join(lines),
                        status=int(failed > 0) if status is None else status)


class Folder(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="agg_bundle_")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_script(self, *command, **environment):
        result = subprocess.run(
            [str(word) for word in command], check=False, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=self.folder,
            env={"PATH": f"{self.folder}/path:/usr/sbin:/usr/bin:/sbin:/bin",
                 "TMPDIR": str(self.folder), "CUDA_HOME": "/nonexistent",
                 **environment})
        return result.returncode, result.stdout
