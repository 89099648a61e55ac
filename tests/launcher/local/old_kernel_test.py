"""Where the kernel or the container has no pidfd_open, and as process 1 of a container."""

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import unittest

from harness import DDPRUN, LauncherTest, main, shell, wait_until

PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434
ENOSYS = 38


def forbid_pidfds():
    """A seccomp filter for this process and its children: both system calls do not exist."""
    load, equal, answer = 0x20, 0x15, 0x06
    program = b"".join(struct.pack("<HBBI", *instruction) for instruction in (
        (load, 0, 0, 0),  # the system call's number
        (equal, 1, 0, PIDFD_OPEN),
        (equal, 0, 1, PIDFD_SEND_SIGNAL),
        (answer, 0, 0, 0x00050000 | ENOSYS),
        (answer, 0, 0, 0x7FFF0000)))
    memory = ctypes.create_string_buffer(program, len(program))
    filter_program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(memory)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filter_program, 0, 0) != 0:
        os._exit(77)


class WithoutPidfds(LauncherTest):
    def start(self, *arguments, **options):
        return super().start(*arguments, preexec_fn=forbid_pidfds, **options)

    def test_success_and_failure(self):
        refused = "import os, errno, sys\ntry: os.pidfd_open(os.getpid())\nexcept OSError as e: sys.exit(e.errno != errno.ENOSYS)"
        self.assertEqual(self.run_job("python3", "-c", refused + "\nsys.exit(2)")[0], 0)
        self.assertEqual(self.run_job("-n", "4", "true")[0], 0)
        status, _, err = self.run_job("-n", "4", *shell("[ $RANK = 2 ] && exit 7\nexec sleep 1000"))
        self.assertEqual(status, 7, err)
        self.assertIn("rank 2 failed first", err)

    def test_many_ranks_that_end_at_once(self):
        for _ in range(5):
            self.assertEqual(self.run_job("-n", "50", "true")[0], 0)

    def test_the_first_failure_is_named(self):
        script = """
            echo $$ > tmp.$RANK; mv tmp.$RANK pid.$RANK
            if [ $RANK = 2 ]; then
                while [ ! -e ready.0 ] || [ ! -e ready.1 ]; do :; done
                exit 33
            fi
            while [ ! -e pid.2 ]; do :; done
            trap '' TERM
            : > ready.$RANK
            while kill -0 $(cat pid.2) 2>/dev/null; do :; done
            exit 1"""
        status, _, err = self.run_job("-n", "3", *shell(script))
        self.assertEqual(status, 33, err)

    def test_nothing_is_left(self):
        job = self.start("-n", "2", "--grace", "0.3", *shell("trap '' TERM\nsetsid sleep 1000 &\n: > ready.$RANK\nsleep 1000"))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)
        self.assert_nothing_left(job)


def can_make_pid_namespaces():
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "--pid", "--fork", "--mount-proc", "true"], check=False,
                                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


@unittest.skipUnless(can_make_pid_namespaces(), "no rights to make a process namespace")
class AsProcessOne(LauncherTest):
    def start_in_namespace(self, *arguments):
        environment = {**os.environ, "DDPRUN_TEST_FOLDER": self.folder}
        process = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", DDPRUN, *arguments], env=environment,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def ddprun_of(self, unshare):
        with open(f"/proc/{unshare.pid}/task/{unshare.pid}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]

    def test_the_status_is_passed_on(self):
        process = self.start_in_namespace("-n", "2", *shell("exit $((RANK * 9))"))
        self.assertEqual(process.wait(20), 9)

    def test_term_is_answered(self):
        process = self.start_in_namespace("-n", "2", *shell(": > ready.$RANK; exec sleep 1000"))
        self.wait_for_files("ready.0", "ready.1")
        os.kill(wait_until(lambda: self.ddprun_of(process), "process 1")[0], signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
