"""The program's arguments arrive byte for byte; ddprun's own end where the program begins."""

import os

from harness import LauncherTest, main

PRINT = ("python3", "-c", "import sys, os; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))")


class Arguments(LauncherTest):
    def passed(self, *arguments):
        status, out, err = self.run_job("-n", "1", *PRINT, *arguments)
        self.assertEqual(status, 0, err)
        return tuple(os.fsencode(out).split(b"\0"))

    def test_odd_arguments_are_untouched(self):
        odd = ("$$x", "", "--x", "-n", "a b", "--nproc_per_node=9", "--", "--help", "%%", "'q'", '"dq"', "\\", "new\nline",
               "${local_rank}", "-", "=", "{}", "*", "~", "[a]", "ünïcödé", "\udcff\udcfe", "--grace", "1")
        self.assertEqual(self.passed(*odd), tuple(os.fsencode(text) for text in odd))

    def test_no_arguments(self):
        self.assertEqual(self.passed(), (b"",))

    def test_double_dash_ends_the_options(self):
        status, out, _ = self.run_job("-n", "1", "--", "echo", "-n", "x")
        self.assertEqual((status, out), (0, "x"))
        status, out, _ = self.run_job("--", "echo", "--", "x")
        self.assertEqual((status, out), (0, "-- x\n"))

    def test_every_spelling_of_the_number_of_ranks(self):
        for arguments in (("--nproc_per_node", "2"), ("--nproc-per-node", "2"), ("--nproc_per_node=2",),
                          ("--nproc-per-node=2",), ("-n", "2"), ("-n2",), ("-n=2",), ("-np", "2"), ("-np=2",)):
            status, out, err = self.run_job(*arguments, "--no-prefix", "sh", "-c", "echo $WORLD_SIZE")
            self.assertEqual((status, out), (0, "2\n2\n"), (arguments, err))

    def test_python_files_and_modules_run_unbuffered_with_python(self):
        script = self.write("show.py", "import sys; print(sys.argv, sys.stdout.write_through, __name__)\n")
        status, out, err = self.run_job(script, "--x", "$$y")
        self.assertEqual((status, out), (0, f"{[script, '--x', '$$y']} True __main__\n"), err)
        status, out, err = self.run_job("-m", "show", "z", environment={"PYTHONPATH": self.folder})
        self.assertEqual((status, out), (0, f"{[script, 'z']} True __main__\n"), err)

    def test_no_python_executes_the_file_itself(self):
        script = self.write("tool.py", "#!/bin/sh\necho shell $1\n", executable=True)
        self.assertEqual(self.run_job("--no_python", script, "a")[:2], (0, "shell a\n"))

    def test_run_path_takes_a_script_of_any_name(self):
        script = self.write("script", "import sys; print(sys.argv[1:], __name__)\n")
        status, out, err = self.run_job("--run_path", script, "a")
        self.assertEqual((status, out), (0, "['a'] __main__\n"), err)

    def test_the_local_rank_as_an_argument_for_those_who_want_it(self):
        for option, expected in (("--pass-local-rank", "--local_rank=1"), ("--pass_local_rank=gpu", "--gpu=1"),
                                 ("--pass-local-rank=--local-rank", "--local-rank=1")):
            status, out, err = self.run_job("-n", "2", option, "echo", "a", "b c")
            self.assertEqual(status, 0, err)
            self.assertIn(f"[1] {expected} a b c\n", out)
        self.assertNotIn("local_rank", self.run_job("-n", "2", "--use-env", "echo", "a")[1])

    def test_fields_in_arguments_only_under_a_flag(self):
        arguments = ("echo", "r${rank}", "${local_rank}/${local_world_size}/${world_size}", "$$x", "${other}")
        status, out, err = self.run_job("-n", "2", "--expand-arguments", *arguments)
        self.assertEqual(sorted(out.splitlines()), ["[0] r0 0/2/2 $$x ${other}", "[1] r1 1/2/2 $$x ${other}"], err)
        self.assertEqual(self.run_job(*arguments)[1], " ".join(arguments[1:]) + "\n")

    def test_slots_of_this_machine(self):
        show = ("--no-prefix", "sh", "-c", "echo $WORLD_SIZE")
        self.assertEqual(self.run_job("-H", "localhost:3", *show)[1], "3\n3\n3\n")
        self.assertEqual(self.run_job("-H", "localhost:3", "-np", "2", *show)[1], "2\n2\n")
        self.assertEqual(self.run_job("-H", "127.0.0.1", *show)[1], "1\n")
        for hosts, ranks, text in (("localhost:1", "2", "slots for 1 of 2 ranks"),
                                   ("localhost:x", "1", "expected HOST[:RANKS]"),
                                   ("-oProxyCommand=x", "1", "expected HOST[:RANKS]")):
            status, out, err = self.run_job("-H", hosts, "-n", ranks, *show)
            self.assertEqual((status, out, len(err.splitlines())), (125, "", 1), err)
            self.assertIn(text, err)

    def test_a_wrong_command_line_is_one_line_and_status_125(self):
        for arguments, text in ((("--nproc_per_nodes", "2", "x"), "did you mean --nproc_per_node?"),
                                (("--standalonee", "x"), "did you mean --standalone?"),
                                (("-n", "0", "x"), "--nproc_per_node"),
                                (("-n", "two", "x"), "--nproc_per_node"),
                                (("-n",), "needs a value"),
                                (("--master_port", "70000", "x"), "70000"),
                                ((), "no program given"),
                                (("-n", "2"), "no program given"),
                                (("-z", "x"), "unknown option -z"),
                                (("--grace", "-1", "x"), "grace"),
                                (("--standalone=1", "x"), "takes no value"),
                                (("--nnodes", "2", "--node_rank", "2", "x"), "--node_rank")):
            status, out, err = self.run_job(*arguments)
            self.assertEqual((status, out), (125, ""), (arguments, err))
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertIn(text, err)

    def test_help_and_version(self):
        status, out, err = self.run_job("--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("--nproc_per_node", out)
        status, out, err = self.run_job("--version")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"^ddprun \d+\.\d+\.\d+ \(commit ([0-9a-f]{12}(, with changes)?|unknown)\)\n$")


if __name__ == "__main__":
    main()
