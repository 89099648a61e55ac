"""What a rank whose failure nothing catches leaves behind: alone, under ddprun, and under torchrun."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.environ["PROGRAM"]
# A program under a sanitizer leaves fatal signals to the sanitizer unless told otherwise.
OURS = ":".join(f"handle_{name}=0" for name in ("abort", "segv", "sigbus", "sigfpe", "sigill")) + ":use_sigaltstack=0"
for variable in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
    os.environ[variable] = f"{os.environ.get(variable, '')}:{OURS}:disable_coredump=0"
# What each failure says, and the signal that ends the process.
FAILURES = {
    "exception": (r'uncaught \(anonymous namespace\)::NoSuchShard: no shard "7"\nin \?/data', signal.SIGABRT),
    "number": (r"uncaught exception of type int", signal.SIGABRT),
    "thread": (r"uncaught \(anonymous namespace\)::NoSuchShard: in a thread", signal.SIGABRT),
    "threads": (r"uncaught \(anonymous namespace\)::NoSuchShard: thread", signal.SIGABRT),
    "noexcept": (r"uncaught \(anonymous namespace\)::NoSuchShard: in a noexcept function", signal.SIGABRT),
    "not_joined": (r"std::terminate\(\) without an exception .*", signal.SIGABRT),
    "abort": (r"abort\(\) \(SIGABRT\)", signal.SIGABRT),
    "segv": (r"invalid memory access \(SIGSEGV, address 0x10\)", signal.SIGSEGV),
    "overflow": (r"stack overflow \(SIGSEGV, address 0x[0-9a-f]+\)", signal.SIGSEGV),
    "bus": (r"memory that cannot be provided .* \(SIGBUS, address 0x[0-9a-f]+\)", signal.SIGBUS),
    "fpe": (r"integer division by zero \(SIGFPE, address 0x[0-9a-f]+\)", signal.SIGFPE),
    "ill": (r"illegal instruction \(SIGILL, address 0x[0-9a-f]+\)", signal.SIGILL),
    "sent": (r"SIGBUS from process \d+", signal.SIGBUS),
}


class FailureHandlers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def environment(self, **variables):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "TORCHELASTIC_", "PET_"))}
        return {**kept, **variables}

    def run_alone(self, how, *more, error_file="error.json", **options):
        return subprocess.run(
            [PROGRAM, how, *more], cwd=self.folder, timeout=60, stdin=subprocess.DEVNULL, capture_output=True,
            env=self.environment(RANK="1", TORCHELASTIC_ERROR_FILE=self.path(error_file)), **options,
        )  # fmt: skip

    def error(self):
        with open(self.path("error.json"), encoding="utf-8") as file:
            return json.load(file)["message"]

    def test_every_failure_is_written_and_ends_as_it_would_have(self):
        for how, (message, number) in FAILURES.items():
            with self.subTest(how):
                before = time.time()
                result = self.run_alone(how)
                self.assertEqual(result.returncode, -number, result.stderr)
                error = self.error()
                self.assertRegex(error["message"], re.compile(r"\Arank 1: " + message + r"\Z", re.S))
                extra = error["extraInfo"]
                self.assertEqual(extra["rank"], 1)
                self.assertTrue(before - 0.01 <= extra["timestamp"] <= time.time(), extra)
                # torchrun shows this text alone.
                self.assertTrue(extra["py_callstack"].startswith(error["message"] + "\n#0 "), extra)
                self.assertIn("failing_program", extra["py_callstack"])
                self.assertIn(b"error: rank 1: ", result.stderr)
                self.assertIn(b"\n#0 ", result.stderr)
                self.assertEqual(os.listdir(self.folder), ["error.json"])
                os.unlink(self.path("error.json"))

    def test_a_long_message_is_cut_between_characters_and_says_so(self):
        for how in ("long", "longer"):
            with self.subTest(how):
                said = self.run_alone(how).stderr.decode()
                cut = re.search(r"NoSuchShard: x?ü{4000,} \[\.\.\.\]$", said, re.M)
                self.assertIsNotNone(cut, said[:200] + said[-200:])
                self.assertTrue(self.error()["message"].endswith(cut[0]))
                self.assertIn("ü [...]\n#0 ", self.error()["extraInfo"]["py_callstack"])
                os.unlink(self.path("error.json"))

    def test_a_limit_on_file_sizes_does_not_replace_the_failure(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        for how in ("number", "segv"):
            with self.subTest(how):
                message, number = FAILURES[how]
                result = self.run_alone(how, preexec_fn=limit)
                self.assertEqual(result.returncode, -number, result.stderr)
                self.assertRegex(result.stderr.decode(), message)
                self.assertEqual(os.listdir(self.folder), [])

    def test_the_stack_begins_where_it_failed(self):
        for how in ("segv", "fpe", "overflow"):
            with self.subTest(how):
                self.run_alone(how)
                first = re.search(r"#0 .*\n", self.error()["extraInfo"]["py_callstack"])[0]
                self.assertIn("failing_program", first)
                os.unlink(self.path("error.json"))

    def test_core_dumps_stay(self):
        def allow_core():
            resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)

        def dumped(*arguments):
            process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, stderr=subprocess.DEVNULL, preexec_fn=allow_core,
                                       env=self.environment(RANK="1", TORCHELASTIC_ERROR_FILE=self.path("error.json")))
            status = os.waitpid(process.pid, 0)[1]
            process.returncode = os.waitstatus_to_exitcode(status)
            return os.WCOREDUMP(status), process.returncode

        for how in ("segv", "exception", "overflow"):
            self.assertEqual(dumped(how), dumped(how, "without"), how)

    def test_the_previous_handler_gets_the_original_fault(self):
        result = self.run_alone("chain")
        self.assertEqual(result.returncode, 42)
        self.assertIn(b"previous handler, address 0x10\n", result.stderr)
        self.assertIn("address 0x10", self.error()["message"])

    def test_an_error_that_was_reported_before_is_kept(self):
        self.assertEqual(self.run_alone("reported").returncode, -signal.SIGABRT)
        self.assertEqual(self.error(), "reported before")

    def test_a_child_process_of_the_rank_writes_nothing(self):
        self.assertEqual(self.run_alone("child").returncode, 3)
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_exit_writes_nothing(self):
        self.assertEqual(self.run_alone("exit").returncode, 9)
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_error_file_that_cannot_be_written_changes_nothing(self):
        result = self.run_alone("segv", error_file="missing/error.json")
        self.assertEqual(result.returncode, -signal.SIGSEGV)
        self.assertIn(b"error: rank 1: invalid memory access", result.stderr)

    def test_without_a_launcher_nothing_is_installed(self):
        result = subprocess.run([PROGRAM, "segv"], cwd=self.folder, env=self.environment(), capture_output=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (-signal.SIGSEGV, b""))

    @unittest.skipUnless(os.environ.get("DDPRUN"), "the launcher is not built")
    def test_ddprun_shows_it(self):
        for how, (message, number) in FAILURES.items():
            with self.subTest(how):
                result = subprocess.run([os.environ["DDPRUN"], "-n", "2", PROGRAM, how], cwd=self.folder, timeout=60,
                                        env=self.environment(), capture_output=True)
                text = result.stderr.decode(errors="replace")
                self.assertEqual(result.returncode, 128 + number, text)
                report = text[text.index("ddprun: rank 1 failed first: it was killed by " + number.name):]
                plain = re.sub(r"\n    ", "\n", report)
                self.assertRegex(plain, re.compile("\nrank 1: " + message, re.S))

    @unittest.skipUnless(os.environ.get("TORCH_PYTHON"), "LibTorch has no Python")
    def test_torchrun_shows_it(self):
        for how in ("exception", "abort", "overflow"):
            with self.subTest(how):
                result = subprocess.run(
                    [os.environ["TORCH_PYTHON"], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                     "--no-python", PROGRAM, how],
                    cwd=self.folder, timeout=120, env=self.environment(OMP_NUM_THREADS="1"), capture_output=True,
                )  # fmt: skip
                text = re.sub(r"\n *", "\n", result.stderr.decode(errors="replace"))
                self.assertEqual(result.returncode, 1, text)
                report = text[text.index("Root Cause"):]
                message, number = FAILURES[how]
                self.assertIn(f"exitcode  : {-number}", report)
                self.assertRegex(report, re.compile("rank 1: " + message + "\n#0 ", re.S))


if __name__ == "__main__":
    unittest.main()
