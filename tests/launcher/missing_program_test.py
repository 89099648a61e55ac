"""A program that cannot be started: one line, the shell's exit status, and nothing started."""

import socket

from harness import LauncherTest, main


class MissingProgram(LauncherTest):
    def check(self, status, text, *arguments, **options):
        got, out, err = self.run_job(*arguments, environment={"OMP_NUM_THREADS": "1", **options.get("environment", {})})
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

    def test_no_such_python_file(self):
        self.check(127, "program not found: ", "-n", "2", self.path("train.py"))

    def test_a_file_in_path_that_is_not_executable(self):
        self.write("tool", "text")
        self.check(126, "Permission denied", "tool", environment={"PATH": self.folder})

    def test_a_script_whose_interpreter_is_missing(self):
        script = self.write("script", "#!/no/such/interpreter\n", executable=True)
        status, _, err = self.run_job("-n", "2", script)
        self.assertEqual(status, 127, err)
        self.assertIn("the interpreter that it names?", err)

    def test_a_file_that_is_no_program(self):
        script = self.write("script", "", executable=True)
        with open(script, "wb") as file:
            file.write(b"\x7fELF garbage")
        status, _, err = self.run_job("-n", "2", script)
        self.assertEqual(status, 126, err)
        self.assertIn("cannot execute", err)

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


if __name__ == "__main__":
    main()
