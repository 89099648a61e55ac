"""Standard input goes to rank 0, another one, all or none; who does not get it reads an empty one."""

import hashlib
import os
import select
import subprocess

from harness import LauncherTest, main, process_state, shell, wait_until


class StandardInput(LauncherTest):
    def test_rank_0_reads_all_of_it_and_the_others_nothing(self):
        job = self.start("-n", "3", *shell("wc -c > count.$RANK"), stdin=subprocess.PIPE)
        job.process.stdin.write(os.urandom(1 << 20))
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual([int(self.read(f"count.{rank}")) for rank in range(3)], [1 << 20, 0, 0])

    def test_a_rank_that_does_not_read_does_not_hinder(self):
        job = self.start("-n", "2", "/bin/true", stdin=subprocess.PIPE)
        self.assertEqual(job.finish()[0], 0)

    def test_a_named_rank_reads_it(self):
        job = self.start("-n", "3", "--stdin", "2", *shell("cat > read.$RANK"), stdin=subprocess.PIPE)
        job.process.stdin.write(b"for rank 2\n")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual([self.read(f"read.{rank}") for rank in range(3)], ["", "", "for rank 2\n"])

    def test_nobody_reads_it(self):
        with open(self.write("input", "x\n"), "rb") as file:
            status, _, err = self.run_job("-n", "2", "--stdin=none", *shell("cat > read.$RANK"), stdin=file)
            self.assertEqual((status, file.read()), (0, b"x\n"), err)
        self.assertEqual(self.read("read.0"), "")

    def test_a_rank_that_does_not_exist_is_refused(self):
        status, _, err = self.run_job("-n", "3", "--stdin", "3", *shell(": > ran"))
        self.assertEqual((status, len(err.splitlines())), (125, 1), err)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_every_rank_gets_a_copy_of_all_bytes(self):
        data = os.urandom(3 << 20)
        with open(self.path("input"), "wb") as file:
            file.write(data)
        digest = hashlib.sha256(data).hexdigest()
        for source in ("pipe", "file"):
            with open(self.path("input"), "rb") as file:
                job = self.start("-n", "3", "--stdin=all", *shell("sha256sum > sum.$RANK"),
                                 stdin=subprocess.PIPE if source == "pipe" else file)
                status, _, err = job.finish() if source == "file" else self.feed(job, data)
            self.assertEqual(status, 0, err)
            for rank in range(3):
                self.assertEqual(self.read(f"sum.{rank}").split()[0], digest, source)

    def feed(self, job, data):
        _, err = job.process.communicate(data, timeout=20)
        return job.process.returncode, None, err

    def test_a_rank_that_reads_slowly_or_not_at_all_holds_or_leaves(self):
        # Rank 0 reads only when told, so nobody gets much more; rank 1 has closed its input, so it holds nobody.
        script = """
            case $RANK in
            0) while [ ! -e go ]; do sleep 0.01; done; wc -c > count.0;;
            1) exec < /dev/null; : > closed; while [ ! -e count.0 ]; do sleep 0.01; done;;
            2) wc -c > count.2;;
            esac"""
        job = self.start("-n", "3", "--stdin=all", *shell(script), stdin=subprocess.PIPE)
        self.wait_for_files("closed")
        os.set_blocking(job.process.stdin.fileno(), False)
        sent = 0

        def is_full():
            """True once ddprun takes no more."""
            nonlocal sent
            try:
                sent += os.write(job.process.stdin.fileno(), b"x" * 65536)
                return False
            except BlockingIOError:
                return process_state(job.supervisor()) == "S" and not select.select([], [job.process.stdin], [], 0.2)[1]

        wait_until(is_full, "ddprun to wait for rank 0")
        self.assertLess(sent, 1 << 20)
        self.write("go", "")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual([int(self.read(f"count.{rank}")) for rank in (0, 2)], [sent, sent])

    def test_the_next_attempt_reads_what_the_first_left(self):
        script = ': > ready.$TORCHELASTIC_RESTART_COUNT; read line; echo "$line" > line.$TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))'
        job = self.start("--stdin=all", "--max-restarts=1", *shell(script), stdin=subprocess.PIPE)
        job.process.stdin.write(b"first\n")
        job.process.stdin.flush()
        self.wait_for_files("line.0", "ready.1")
        job.process.stdin.write(b"second\n")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual([self.read("line.0"), self.read("line.1")], ["first\n", "second\n"])

    def test_one_ranks_output_passes_untouched(self):
        data = os.urandom(3 << 20)
        with open(self.path("data"), "wb") as file:
            file.write(data)
        job = self.start("-n", "1", "cat", self.path("data"))
        out, _ = job.process.communicate()
        self.assertEqual(hashlib.sha256(out).hexdigest(), hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    main()
