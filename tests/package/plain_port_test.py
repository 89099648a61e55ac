"""examples/port, from which docs/port.md sets out: a program without ddprun, which learns."""

import support
from port import PortTest


class PlainPort(PortTest):
    def test_the_plain_program_learns(self):
        # Its own find_package(Torch) asks for a CUDA toolkit where LibTorch has CUDA; its source is what counts.
        self.apply(only="CMakeLists.txt")
        self.check_it_learns_alone(self.built())


support.main()
