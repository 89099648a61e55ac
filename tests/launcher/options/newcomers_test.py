"""More than sixty command lines with mistakes of people who come from other launchers: the output says what is wrong and what to do."""

import os
import socket
import subprocess

from harness import DDPRUN, LauncherTest, free_port, main

CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "newcomers.txt")
FILES = {
    "train.py": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=0)\n"
                "arguments, _ = parser.parse_known_args()\nprint(f'lr={arguments.lr}')\n",
    "train": "#!/bin/sh\necho trained\n",
    "train.sh": "#!/bin/sh\necho trained\n",
    "train.cpp": "int main() {}\n",
    "dos.sh": "#!/bin/sh\r\necho trained\r\n",
    "hosts": "localhost slots=2\n",
    "package/__main__.py": "print('package')\n",
}
EXECUTABLE = ("train", "dos.sh")


def cases():
    """(exit status, command line, what is expected) of each case."""
    with open(CASES, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if line.strip() and not line.startswith("#")]
    return [(int(first.split(" ", 1)[0]), first.split(" ", 1)[1], expected) for first, expected in zip(lines[::2], lines[1::2])]


class Newcomers(LauncherTest):
    def make_files(self):
        os.mkdir(self.path("bin"))
        os.symlink(DDPRUN, self.path("bin/ddprun"))
        os.mkdir(self.path("package"))
        for name, text in FILES.items():
            self.write(name, text, executable=name in EXECUTABLE)

    def output_of(self, command):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "CUDA_"))}
        environment["PATH"] = self.path("bin") + ":" + environment["PATH"]
        done = subprocess.run(["sh", "-c", command], cwd=self.folder, env=environment, capture_output=True, timeout=170,
                              stdin=subprocess.DEVNULL, check=False)
        return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")

    def test_each_line_is_answered_with_what_to_do(self):
        self.make_files()
        found = cases()
        self.assertGreaterEqual(len(found), 60)
        busy = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(busy.close)
        for expected_status, command, expected in found:
            command = command.replace("PORT", str(free_port())).replace("BUSY", str(busy.getsockname()[1]))
            status, text = self.output_of(command)
            if "SHOW" in os.environ:  # for whoever reads them
                print(f"--- {command}\n{text}[status {status}]\n", flush=True)
            with self.subTest(command=command):
                self.assertRegex(text, expected)
                self.assertEqual(status, expected_status, text)


if __name__ == "__main__":
    main()
