"""The stacks of Python programs, of each version that is installed: ddprun reads them, and the programs do nothing for it."""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

from harness import DDPRUN, LauncherTest, process_state, wait_until

# In step with python_frames.h.
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]
PROGRAM = """import os, threading, time
class Reader:
    def load(self, ignored):
        threading.Thread(target=wait_for_e\u0301vent, daemon=True).start()
        open(os.path.join(os.environ["DDPRUN_TEST_FOLDER"], "begun"), "w").close()
        if os.environ.get("LOOP"):
            while True:
                pass
        time.sleep(
            3600)
def wait_for_e\u0301vent():
    threading.Event().wait()
def key(value):
    return Reader().load(value) or 1
sorted([1], key=key)
"""


def interpreters():
    for version in VERSIONS:
        # Of a version manager the others are beside the one that runs, and its command may have no such version.
        beside = glob.glob(os.path.join(sys.base_prefix, "..", f"{version}.*", "bin", f"python{version}"))
        for path in (shutil.which(f"python{version}"), *beside):
            if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                yield version, path
                break


class PythonStack(LauncherTest):
    def begin(self, python, **environment):
        script = self.write("program.py", PROGRAM)
        if os.path.exists(self.path("begun")):
            os.remove(self.path("begun"))
        job = self.start("--rdzv_id", "stacks", "--no_python", python, script,
                         environment={"XDG_RUNTIME_DIR": self.folder, **environment})
        self.wait_for_files("begun")
        return job, script

    def stack(self):
        done = subprocess.run([DDPRUN, "stack"], env={**os.environ, "XDG_RUNTIME_DIR": self.folder}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def end(self, job):
        job.signal(signal.SIGTERM)
        job.finish()

    def test_the_functions_of_all_threads_are_shown_with_their_lines(self):
        found = list(interpreters())
        if not found:
            self.skipTest(f"none of Python {', '.join(VERSIONS)} is installed")
        for version, python in found:
            with self.subTest(version=version):
                job, script = self.begin(python)
                reader = "load" if version == "3.10" else "Reader.load"
                main = [f"    #0 {reader} ({script}:9)", f"    #1 key ({script}:14)", f"    #2 <module> ({script}:15)"]
                # It may still be on its way to sleep.
                text = wait_until(lambda: (shown := self.stack()) and "\n".join(main) in shown and shown, "the main thread's stack")
                if version != "3.10":  # which does not say whose the other threads are
                    self.assertRegex(text, rf"wait_for_\u00e9vent \({re.escape(script)}:12\)")
                self.end(job)

    def test_a_program_that_loops_is_read_while_it_runs(self):
        for version, python in interpreters():
            with self.subTest(version=version):
                job, script = self.begin(python, LOOP="1")
                wait_until(lambda: re.search(rf"load \({re.escape(script)}:[78]\)\n    #1 key", self.stack()), "its stack")
                self.end(job)

    def test_a_program_that_a_signal_has_stopped_is_read(self):
        for version, python in interpreters():
            with self.subTest(version=version):
                job, script = self.begin(python)
                wait_until(lambda: f"load ({script}:9)" in self.stack(), "its stack")
                rank = next(pid for pid in job.members() if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == script.encode())
                os.kill(rank, signal.SIGSTOP)
                wait_until(lambda: process_state(rank) == "T", "the stop")
                self.assertIn(f"load ({script}:9)", self.stack())
                os.kill(rank, signal.SIGCONT)
                self.end(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
