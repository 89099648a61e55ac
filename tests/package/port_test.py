"""docs/port.md: its changes, applied to the plain program in examples/port, give one that trains alone and on two ranks."""

import re

import support
from port import PAGE, PortTest, losses


class Port(PortTest):
    def test_the_ported_program_learns_alone_and_on_two_ranks(self):
        self.apply()
        train = self.built()
        self.check_it_learns_alone(train)

        (self.folder / "net.pt").unlink()
        result = support.run(support.PREFIX / "bin/ddprun", "-n", 2, train, cwd=self.folder)
        together = losses(result.stdout)
        self.assertEqual(len(together), 20, "rank 0 prints, the other does not")
        self.assertLess(together[-1], 0.1)
        self.assertTrue((self.folder / "net.pt").exists())

        shown = re.search(r"^\$ ddprun -n 2 build/train\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1].splitlines()
        printed = result.stdout.splitlines()
        self.assertEqual(shown[3], "...")
        for line, expected in zip(shown[:3] + shown[4:], printed[:3] + printed[-2:], strict=True):
            self.assertEqual(line.split("loss")[0], expected.split("loss")[0])
            self.assertAlmostEqual(losses(line)[0], losses(expected)[0], delta=0.02)


support.main()
