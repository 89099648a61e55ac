"""A training that loses a node and gets another one goes on from its last checkpoint, with the same result."""

import os
import re
import time

from elastic_nodes import ElasticTest
from harness import main, wait_until

PROGRAM = os.environ["PROGRAM"]
STEPS = 12


class ElasticTraining(ElasticTest):
    def tearDown(self):
        self.nothing_is_left()

    def train(self, name):
        return self.node(name, options=("--join_restart", "--last_call", "120"), program=(PROGRAM, self.folder, str(STEPS)))

    def let_go_until(self, step):
        for number in range(step + 1):
            self.write(f"until.{number}", "")

    def test_three_nodes_then_two_then_three_make_the_steps_of_one(self):
        for name in "abc":
            self.train(name)
            if name == "a":
                wait_until(lambda: "1 of 2 to 3" in self.log("a"), "the coordinator")
        self.let_go_until(4)
        self.said("a", "step 4 with 3 ranks")
        begin = time.monotonic()
        self.kill("b")
        self.let_go_until(8)
        self.said("a", "step 5 with 2 ranks")
        recovery = time.monotonic() - begin
        self.assertLess(recovery, 50)  # 5 s is what a quiet machine may take
        print(f"from the loss of a node to the next step: {recovery:.2f} s")
        self.said("a", "step 8 with 2 ranks")
        self.train("d")
        self.said("d", "restart 2: 3 nodes and 3 ranks")
        self.write("until.end", "")
        self.end("a", "c", "d")
        steps = re.findall(r"step (\d+) with (\d) ranks", self.log("a"))
        self.assertEqual([int(step) for step, _ in steps], list(range(1, STEPS + 1)))
        self.assertEqual([int(ranks) for _, ranks in steps], [3] * 4 + [2] * 4 + [3] * 4)
        os.mkdir(self.path("alone"))
        self.write("alone/until.end", "")
        status, out, err = self.run_job("-n", "1", PROGRAM, self.path("alone"), str(STEPS))
        self.assertEqual(status, 0, err)
        expected = [float(number) for number in re.findall(r"-?\d+\.\d+", out.splitlines()[-1])]
        got = [float(number) for number in re.findall(r"weight (\S+) bias (\S+)", self.log("a"))[0]]
        for one, other in zip(expected, got):
            self.assertAlmostEqual(one, other, places=4)


if __name__ == "__main__":
    main()
