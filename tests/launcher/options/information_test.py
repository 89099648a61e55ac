"""--dry_run, --show_env and --check: what would be started and with what, and what this machine offers."""

import os
import re
import shlex
import shutil
import subprocess
import unittest

from harness import DDPRUN, LauncherTest, main


def blocks(text):
    """{heading: lines below it} of a preview."""
    found, lines = {}, None
    for line in text.splitlines():
        if line.startswith("rank "):
            lines = found.setdefault(line, [])
        else:
            lines.append(line.strip())
    return found


def variables(lines):
    return dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_a-z0-9]+=", line))


class Preview(LauncherTest):
    def test_python_is_that_of_the_environment_that_ddprun_is_installed_in(self):
        environment = self.path("an environment")
        os.makedirs(f"{environment}/bin")
        own = shutil.copy(DDPRUN, f"{environment}/bin/ddprun")
        os.symlink("/bin/echo", f"{environment}/bin/python3")
        script = self.write("train.py", "print(1)")
        variables = {"PYTHON_EXEC": ""}
        _, out, err = self.run_job("-n", "1", script, program=own, environment=variables)
        self.assertEqual((out, err), ("1\n", ""), "a folder with a python3 is not an environment")
        open(f"{environment}/pyvenv.cfg", "w").close()
        self.assertEqual(self.run_job("-n", "1", script, program=own, environment=variables), (0, f"-u {script}\n", ""))
        _, out, _ = self.run_job("-n", "1", script, program=own, environment={"PYTHON_EXEC": "/bin/true"})
        self.assertEqual(out, "", "PYTHON_EXEC comes first")

    def test_a_dry_run_prints_what_a_run_does_and_starts_nothing(self):
        host = os.uname().nodename
        words = ["sh", "-c", 'env > "$DDPRUN_TEST_FOLDER/env.$RANK"; echo "$*"', "a b", "it's", "", "\n\x1b[1m\\", "$HOME"]
        arguments = ("-n", "2", "--role", "some role", "--master-port", "0", "-x", "GREETING=hello world", *words)
        status, out, err = self.run_job("--dry_run", *arguments)
        self.assertEqual(status, 0, err)
        self.assertEqual(os.listdir(self.folder), [])
        self.assertNotIn("\x1b", out)
        found = blocks(out)
        self.assertEqual(list(found), [f"rank {rank} of 2 (local rank {rank} on host {host})" for rank in (0, 1)])

        self.assertEqual(self.run_job(*arguments)[0], 0)
        for rank, lines in enumerate(found.values()):
            real = dict(line.split("=", 1) for line in self.read(f"env.{rank}").splitlines() if "=" in line)
            shown = variables(lines)
            self.assertEqual(shown["MASTER_PORT"], "<free port>")
            self.assertEqual(shown["TORCHELASTIC_RUN_ID"], "<random>")
            self.assertTrue(shown["TORCHELASTIC_ERROR_FILE"].startswith("<"))
            for name, value in shown.items():
                if not value.startswith("<"):
                    self.assertEqual(real[name], shlex.split(value)[0] if value else "", name)
            self.assertIn("GREETING", shown)
            (command,) = [line[len("command:"):].strip() for line in lines if line.startswith("command:")]
            self.assertIn("\\012\\033[1m\\\\", command)
            typed = self.run_job("bash", "-c", f"printf '%s\\0' {command}")[1]
            self.assertEqual(typed.split("\0")[:-1], words)

    def test_a_dry_run_refuses_what_a_run_refuses(self):
        for arguments in (("no-such-program",), ("--wdir", "/nonexistent", "true"), ("-n", "0", "true")):
            dry, real = self.run_job("--dry-run", *arguments), self.run_job(*arguments)
            self.assertEqual(dry, real)
            self.assertNotEqual(dry[0], 0)

    def test_python_files_show_their_interpreter(self):
        script = self.write("train.py", "")
        status, out, err = self.run_job("--dry-run", script, "--lr", "0.1", environment={"PYTHON_EXEC": "/bin/sh"})
        self.assertEqual(status, 0, err)
        self.assertIn("  file:    /bin/sh\n", out)
        self.assertIn(f"  command: /bin/sh -u {script} --lr 0.1\n", out)

    def test_several_nodes_are_numbered_as_if_they_were_equal(self):
        status, out, err = self.run_job("--dry-run", "--nnodes", "3", "--node-rank", "2", "--master-addr", "host0", "-n", "2", "true")
        self.assertEqual(status, 0)
        self.assertEqual([line.split(" (")[0] for line in blocks(out)], ["rank 4 of 6", "rank 5 of 6"])
        self.assertIn("every node has as many ranks", err)
        shown = variables(list(blocks(out).values())[0])
        self.assertEqual((shown["MASTER_ADDR"], shown["MASTER_PORT"]), ("host0", "29500"))

    def gpus(self, *arguments, gpus=4, **environment):
        library = {"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": str(gpus), **environment}
        status, out, err = self.run_job("--show_env", *arguments, environment=library)
        self.assertEqual(status, 0, err)
        return [line[len("  GPU:     "):] for line in out.splitlines() if line.startswith("  GPU: ")]

    def test_the_environment_names_each_ranks_gpu(self):
        index = "CUDA index {} is GPU-{:04}-fake"
        self.assertEqual(self.gpus("-n", "2"), [index.format(0, 0), index.format(1, 1)])
        self.assertEqual(self.gpus("-n", "3", CUDA_VISIBLE_DEVICES="3,GPU-0001"),
                         [index.format(0, 3), index.format(1, 1), "none: there is no CUDA index 2 among 2"])
        self.assertEqual(self.gpus("-n", "1", CUDA_VISIBLE_DEVICES=""), ["none visible"])

    def test_without_a_driver_that_is_said(self):
        status, out, _ = self.run_job("--show-env", environment={"LD_LIBRARY_PATH": self.folder})
        self.assertEqual(status, 0)
        self.assertRegex(out, r"GPU:     (no NVIDIA driver found|CUDA index 0 is GPU-|none visible)")
        self.assertIn("    RANK=0\n", out)
        self.assertNotIn("command:", out)


class LostAnswers(LauncherTest):
    QUESTIONS = (["--help"], ["--version"], ["--check"], ["--generate", "man"], ["--show_env"], ["--dry_run", "true"])

    def test_an_answer_that_cannot_be_written_is_an_error(self):
        for question in self.QUESTIONS:
            with open("/dev/full", "w", encoding="utf-8") as full:
                status, _, err = self.run_job(*question, stdout=full, patience=60)
            self.assertEqual(status, 125, question)
            self.assertIn("ddprun: cannot write to standard output: No space left on device\n", err)

    def test_a_closed_output_is_an_error_for_who_asks_but_not_for_a_job(self):
        ddprun = shlex.quote(os.environ["DDPRUN"])
        run = lambda words: self.start("-c", f"exec {ddprun} {words} >&-", program="/bin/sh").finish(60)
        for question in self.QUESTIONS:
            status, _, err = run(" ".join(question))
            self.assertEqual(status, 125, question)
            self.assertIn("ddprun: cannot write to standard output: it is closed\n", err)
        self.assertEqual(run("-n 2 true")[0], 0)


class CmakePrefixPath(LauncherTest):
    """An environment like those that pip installs into: PREFIX/bin/ddprun, its CMake package and Pythons below PREFIX/lib."""

    def setUp(self):
        super().setUp()
        self.prefix = os.path.realpath(self.path("environment"))
        os.makedirs(os.path.join(self.prefix, "bin"))
        self.program = shutil.copy(os.environ["DDPRUN"], os.path.join(self.prefix, "bin/ddprun"))

    def make(self, *folders):
        path = os.path.join(self.prefix, *folders)
        os.makedirs(path)
        return path

    def make_package(self):
        self.make("lib/cmake/ddprun")
        self.write("environment/lib/cmake/ddprun/ddprunConfig.cmake", "")

    def ask(self, program=None):
        return self.start("--cmake-prefix-path", program=program or self.program).finish(60)

    def test_it_is_the_launchers_own_prefix_and_the_newest_pythons_torch(self):
        self.make_package()
        for python in ("python3.9/site-packages", "python3.x/site-packages", "python3.10/dist-packages"):
            newest = self.make("lib", python, "torch/share/cmake")
        self.make("lib/python3.12/site-packages")
        self.assertEqual(self.ask(), (0, f"{self.prefix};{newest}\n", ""))
        link = os.path.join(self.folder, "a-link")
        os.symlink(self.program, link)
        self.assertEqual(self.ask(link)[1], f"{self.prefix};{newest}\n")

    def test_without_a_torch_beside_it_what_to_add_is_said(self):
        self.make_package()
        status, out, err = self.ask()
        self.assertEqual((status, out), (0, self.prefix + "\n"))
        self.assertRegex(err, r"^ddprun: there is no PyTorch below .*; add to CMAKE_PREFIX_PATH what .*torch.utils.cmake_prefix_path.* prints\n$")

    def test_a_launcher_without_its_package_says_so(self):
        self.make("lib/python3.11/site-packages/torch/share/cmake")
        status, out, err = self.ask()
        self.assertEqual((status, out), (125, ""))
        self.assertRegex(err, r"^ddprun: --cmake_prefix_path: .*/bin/ddprun was not installed with a CMake package")


class Check(LauncherTest):
    def check(self, **environment):
        status, out, err = self.run_job("--check", environment=environment, patience=60)
        self.assertEqual(err, "")
        lines = [re.match(r"(ok|note|PROBLEM) +([^:]+): (.*)", line) for line in out.splitlines()[:-1] if line[0] != " "]
        self.assertTrue(all(lines), out)
        return status, {match[2]: (match[1], match[3]) for match in lines}, out

    def test_everything_is_looked_at(self):
        status, found, out = self.check()
        self.assertEqual(status, 0, out)
        self.assertTrue(out.endswith("\nA job can run.\n"))
        self.assertEqual(
            set(found) - {"Python's torch"},
            {"build", "kernel", "process descriptors", "leftovers", "cgroup v2", "seccomp", "pseudo-terminals", "open files",
             "processes", "usable CPUs", "GPUs", "Python", "debugger", "temporary files", "store", "secrets"},
        )  # fmt: skip
        version = self.run_job("--version")[1].strip()
        self.assertTrue(found["build"][1].startswith(version.split(" (")[0] + ", "), found["build"])
        self.assertIn(os.uname().release, found["kernel"][1])
        self.assertEqual(found["usable CPUs"][1], str(len(os.sched_getaffinity(0))))

    def test_python_and_its_torch_are_found_without_importing_it(self):
        python = self.write("python", f"""#!/bin/sh
PYTHONPATH={self.folder}/packages exec {shlex.quote(os.environ["PYTHON_EXEC"])} "$@"
""", executable=True)
        os.makedirs(self.path("packages/torch-9.8.7.dist-info"))
        self.write("packages/torch-9.8.7.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.8.7\n")
        self.write("packages/torch.py", "raise SystemExit('was imported')\n")
        _, found, out = self.check(PYTHON_EXEC=python)
        self.assertEqual(found["Python's torch"], ("ok", "9.8.7"), out)
        self.assertEqual(found["Python"][0], "ok")

    def test_what_only_some_programs_need_is_a_note(self):
        status, found, out = self.check(PYTHON_EXEC="no-such-python", PATH="/nonexistent")
        self.assertEqual((status, found["Python"][0], found["debugger"][0]), (0, "note", "note"), out)
        broken = self.write("python", "#!/bin/sh\nexit 3\n", executable=True)
        status, found, out = self.check(PYTHON_EXEC=broken)
        self.assertEqual((status, found["Python"][0]), (0, "note"), out)

    def test_gpus_are_listed(self):
        status, found, out = self.check(LD_LIBRARY_PATH=os.environ["FAKE_NVML"], FAKE_GPUS="2", CUDA_VISIBLE_DEVICES="1")
        self.assertEqual(found["GPUs"], ("ok", "2, driver 999.1, 1 visible with CUDA_VISIBLE_DEVICES=1"), out)
        self.assertIn(" 0: GPU-0000-fake\n", out)
        self.assertIn(" 1: GPU-0001-fake\n", out)

    def test_a_machine_on_which_no_job_can_run(self):
        status, found, out = self.check(TMPDIR=self.path("missing"))
        self.assertEqual((status, found["temporary files"][0]), (125, "PROBLEM"), out)
        self.assertTrue(out.endswith("\nNo job can run.\n"))

    @unittest.skipIf(subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0, "no network namespace can be made")
    def test_a_loopback_interface_that_is_down_is_said(self):
        status, out, _ = self.run_job("-n", DDPRUN, "--check", program="unshare")
        self.assertEqual(status, 125)
        self.assertRegex(out, r"(?m)^PROBLEM +store: 127\.0\.0\.1 cannot be reached .*ip link set lo up")
        status, out, err = self.run_job("-n", DDPRUN, "-n", "2", "echo", "hello", program="unshare")
        self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] hello", "[1] hello"]))
        self.assertEqual(err.count("127.0.0.1 cannot be reached"), 1)


if __name__ == "__main__":
    main()
