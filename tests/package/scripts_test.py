"""What the scripts share: scripts/common.sh."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
import unittest

import support

BEGIN = 'set -euo pipefail; cd "$PROJECT_SOURCE"; . scripts/common.sh\n'
ENDLESS = BEGIN + """with_progress "$WORK/progress.log" bash -c 'echo $$ >"$WORK/child"; exec sleep 600'"""
LOCKED = BEGIN + 'exec 8>"$WORK/lock"; flock 8; with_progress "$WORK/progress.log" sleep 0.1'
ENVIRONMENT = {**os.environ, "DDPRUN_CACHE": str(support.WORK)}


class Scripts(unittest.TestCase):
    def test_a_script_that_is_killed_ends_what_it_runs(self):
        child = support.WORK / "child"
        child.unlink(missing_ok=True)
        script = subprocess.Popen(["bash", "-c", ENDLESS], env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        try:
            self.wait(lambda: child.exists() and child.read_text().endswith("\n"), "the child never began")
        finally:
            script.terminate()
        self.assertEqual(script.wait(60), -signal.SIGTERM)
        running = int(child.read_text())
        self.addCleanup(self.kill, running)
        self.wait(lambda: not os.path.exists(f"/proc/{running}"), f"process {running} goes on")

    def test_a_script_that_has_ended_holds_no_lock_any_more(self):
        support.WORK.mkdir(parents=True, exist_ok=True)
        support.run("bash", "-c", LOCKED, env=ENVIRONMENT)
        with open(support.WORK / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

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
