"""--wdir: the program is looked up where it is executed, as after `cd`."""

import os

from harness import LauncherTest, main

PROGRAM = "#!/bin/sh\necho \"$0 in $(pwd)\"\n"
QUIET = {"OMP_NUM_THREADS": "1"}


class WorkingFolder(LauncherTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("sub"))
        self.inside = os.path.realpath(self.path("sub"))

    def run_here(self, *arguments, **environment):
        """ddprun runs in the test's folder."""
        return self.run_job(*arguments, cwd=self.folder, environment={**QUIET, **environment})

    def test_a_program_with_a_relative_path(self):
        self.write("sub/prog", PROGRAM, executable=True)
        for name in ("sub", "./sub/", self.path("sub")):
            self.assertEqual(self.run_here("--wdir", name, "./prog"), (0, f"./prog in {self.inside}\n", ""))
        status, _, err = self.run_here("-n", "2", "--wdir", "sub", "sub/prog")
        self.assertEqual((status, err), (127, "ddprun: program not found: sub/sub/prog\n"))

    def test_a_program_in_a_relative_folder_of_path(self):
        os.mkdir(self.path("sub/bin"))
        self.write("sub/bin/prog", PROGRAM, executable=True)
        status, out, err = self.run_here("--wdir", "sub", "prog", PATH="bin:" + os.environ["PATH"])
        self.assertEqual((status, out), (0, f"bin/prog in {self.inside}\n"), err)
        self.write("sub/beside", PROGRAM, executable=True)
        status, _, err = self.run_here("--wdir", "sub", "beside")
        self.assertEqual((status, err), (127, "ddprun: program not found in PATH: beside (a file in sub is started as ./beside)\n"))

    def test_a_script_without_a_first_line(self):
        self.write("sub/prog", "echo in $(pwd)\n", executable=True)
        self.assertEqual(self.run_here("--wdir", "sub", "./prog"), (0, f"in {self.inside}\n", ""))

    def test_a_python_script(self):
        self.write("sub/train.py", "import os, sys; print(sys.argv[0], os.getcwd())")
        for options in ((), ("--run_path",)):
            self.assertEqual(self.run_here("--wdir", "sub", *options, "train.py"), (0, f"train.py {self.inside}\n", ""))
        status, _, err = self.run_here("--wdir", "sub", "sub/train.py")
        self.assertEqual((status, err), (127, "ddprun: program not found: sub/sub/train.py\n"))

    def test_a_python_module(self):
        self.write("sub/trainer.py", "import os; print(os.getcwd())")
        self.assertEqual(self.run_here("--wdir", "sub", "-m", "trainer"), (0, f"{self.inside}\n", ""))

    def test_error_files_when_tmpdir_is_relative(self):
        os.mkdir(self.path("scratch"))
        script = 'echo \'{"message": "my own words"}\' > "$TORCHELASTIC_ERROR_FILE"; exit 3'
        status, _, err = self.run_here("--wdir", "sub", "sh", "-c", script, TMPDIR="scratch")
        self.assertEqual(status, 3)
        self.assertIn("my own words", err)
        self.assertEqual(os.listdir(self.path("scratch")), [])

    def test_a_file_is_no_folder(self):
        self.write("file", "", executable=True)
        status, _, err = self.run_here("--wdir", "file", "true")
        self.assertEqual((status, err), (125, "ddprun: --wdir file: Not a directory\n"))


if __name__ == "__main__":
    main()
