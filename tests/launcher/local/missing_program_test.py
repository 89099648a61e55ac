"""A program that cannot be started: one line, the shell's exit status, and nothing started."""

import errno
import os
import resource
import socket
import subprocess

from harness import DDPRUN, LauncherTest, main


class MissingProgram(LauncherTest):
    def check(self, status, text, *arguments, **options):
        environment = {"OMP_NUM_THREADS": "1", **options.pop("environment", {})}
        got, out, err = self.run_job(*arguments, environment=environment, **options)
        self.assertEqual((got, out), (status, ""), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(text, err)

    def test_no_such_file(self):
        self.check(127, "program not found: " + self.path("nothing"), "-n", "4", self.path("nothing"))

    def test_no_such_name_in_path(self):
        self.check(127, "program not found in PATH: ddprun-no-such-program", "ddprun-no-such-program", "x")

    def test_not_executable(self):
        self.check(126, "Permission denied", "-n", "4", self.write("data", "text"))

    def test_a_folder(self):
        self.check(126, "it is a folder", self.folder)
        os.mkdir(self.path("programs"))
        for name in (".", "..", "programs", "programs/", "./programs"):
            self.check(126, f"ddprun: cannot execute {name}: it is a folder; name the program in it", "-n", "2", name, cwd=self.folder)

    def test_no_such_python_file(self):
        self.check(127, "program not found: ", "-n", "2", self.path("train.py"))

    def test_a_file_in_path_that_is_not_executable(self):
        self.write("tool", "text")
        self.check(126, "Permission denied", "tool", environment={"PATH": self.folder})

    def test_a_script_whose_interpreter_is_missing(self):
        script = self.write("script", "#!/no/such/interpreter\n", executable=True)
        self.check(127, f"ddprun: cannot execute {script}: its first line names the interpreter /no/such/interpreter, which is not there", "-n", "4", script)

    def test_a_script_with_the_lines_of_windows(self):
        for first in ("#!/bin/sh", "#!/usr/bin/env python3", "#!/bin/sh -e"):
            script = self.write("script", first + "\r\ntrue\r\n", executable=True)
            self.check(127, f"ddprun: cannot execute {script}: it has the line endings of Windows", "-n", "4", script)
            self.check(127, "carriage return", "-n", "2", "--wdir", self.folder, "./script")
        # Python itself does not mind them.
        self.assertEqual(self.run_job(self.write("script.py", "#!/usr/bin/env python3\r\nprint(1)\r\n"))[:2], (0, "1\n"))

    def test_a_file_system_without_programs(self):
        script = "mount -t tmpfs -o noexec none \"$1\" && cp /bin/true \"$1/program\" && exec \"$2\" -n 2 \"$1/program\""
        done = subprocess.run(["unshare", "-Urm", "sh", "-c", script, "sh", self.folder, DDPRUN], capture_output=True, text=True, timeout=60, check=False)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no namespaces")
        self.assertEqual(done.returncode, 126, done.stderr)
        self.assertIn("its file system is mounted with noexec", done.stderr)

    def test_a_folder_with_a_python_program(self):
        os.mkdir(self.path("package"))
        self.write("package/__main__.py", "print('ran')\n")
        self.check(126, "it is a folder; --run_path starts its __main__.py", self.path("package"))
        self.assertEqual(self.run_job("--run_path", self.path("package"))[:2], (0, "ran\n"))

    def test_words_that_are_meant_otherwise(self):
        self.check(127, "leave them out: ddprun ... train.py --lr 0.1", "train.py --lr 0.1")
        self.check(127, "did you mean ddprun status?", "statsu")
        self.check(127, "write -n 2", "2", "train.py")

    def test_a_file_that_is_no_program(self):
        script = self.write("script", "", executable=True)
        with open(script, "wb") as file:
            file.write(b"\x7fELF garbage")
        self.check(126, f"ddprun: cannot execute {script}: Exec format error", "-n", "4", script)

    def test_an_environment_that_is_too_big(self):
        # ddprun itself fits under the limit, but the variables that it adds do not. What fits exactly is found by trying.
        environment = {"OMP_NUM_THREADS": "1"}
        for number in range(20):
            environment[f"FILL{number}"] = "x" * 100_000
        for size in range(100_000, 0, -200):
            environment["FILL"] = "x" * size
            try:
                job = self.start("-n", "4", "/bin/true", environment=environment, preexec_fn=self.limit_stack)
                break
            except OSError as error:
                self.assertEqual(error.errno, errno.E2BIG)
        status, out, err = job.finish()
        self.assertEqual((status, out), (126, ""), err)
        self.assertRegex(err, r"^ddprun: cannot execute /bin/true: Argument list too long \(.* the limit for both is \d+ KiB.*\)\n$")

    @staticmethod
    def limit_stack():
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    def test_a_shell_script_without_a_first_line_runs_as_a_shell_would_run_it(self):
        script = self.write("script", "exit 12\n", executable=True)
        self.assertEqual(self.run_job("-n", "2", script)[0], 12)

    def test_a_taken_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.check(125, f"port {port} is in use", "--master_port", str(port), "/bin/true")

    def test_an_unusable_folder_for_temporary_files(self):
        self.check(125, "TMPDIR", "/bin/true", environment={"TMPDIR": self.path("nowhere")})

    def test_with_a_log_folder_temporary_files_are_not_needed(self):
        status, _, err = self.run_job("--log_dir", self.path("logs"), "sh", "-c", 'echo \'{"message": "my words"}\' > $TORCHELASTIC_ERROR_FILE; exit 3',
                                      environment={"TMPDIR": self.path("nowhere")})
        self.assertEqual(status, 3, err)
        self.assertIn("my words", err)


if __name__ == "__main__":
    main()
