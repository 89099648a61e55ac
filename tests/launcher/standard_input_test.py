"""Standard input goes to rank 0; the others read an empty one. Every byte of output arrives."""

import hashlib
import os
import subprocess

from harness import LauncherTest, main, shell


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

    def test_one_ranks_output_passes_untouched(self):
        data = os.urandom(3 << 20)
        with open(self.path("data"), "wb") as file:
            file.write(data)
        job = self.start("-n", "1", "cat", self.path("data"))
        out, _ = job.process.communicate()
        self.assertEqual(hashlib.sha256(out).hexdigest(), hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    main()
