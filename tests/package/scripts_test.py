"""What the scripts share: scripts/common.sh."""

import contextlib
import os
import signal
import subprocess
import time
import unittest

import support

PROGRAM = """
set -euo pipefail
cd "$PROJECT_SOURCE"
. scripts/common.sh
with_progress "$WORK/progress.log" bash -c 'echo $$ >"$WORK/child"; exec sleep 600'
"""


class Scripts(unittest.TestCase):
    def test_a_script_that_is_killed_ends_what_it_runs(self):
        child = support.WORK / "child"
        child.unlink(missing_ok=True)
        script = subprocess.Popen(["bash", "-c", PROGRAM], env={**os.environ, "DDPRUN_CACHE": str(support.WORK)}, stdout=subprocess.DEVNULL)
        try:
            self.wait(lambda: child.exists() and child.read_text().endswith("\n"), "the child never began")
        finally:
            script.terminate()
        self.assertEqual(script.wait(60), -signal.SIGTERM)
        running = int(child.read_text())
        self.addCleanup(self.kill, running)
        self.wait(lambda: not os.path.exists(f"/proc/{running}"), f"process {running} goes on")

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def wait(self, condition, otherwise):
        end = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), end, otherwise)
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
