"""Random faults over three nodes: whatever is killed or frozen, all nodes that are left end with one status and one culprit."""

import os
import random
import re
import signal
import socket
import time

from harness import LauncherTest, is_running, main, shell, wait_until

FAULTS = int(os.environ.get("FAULTS", "12"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
NODES = 3
RANKS = 2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def culprit(err):
    """Who the report says failed first: ("rank", 3) or ("node", 1)."""
    own = re.search(r"rank (\d+) failed first", err)
    if own:
        return ("rank", int(own[1]))
    there = re.search(r"stopped because of node (\d+): (?:rank (\d+) )?", err)
    return there and (("rank", int(there[2])) if there[2] else ("node", int(there[1])))


class NodeFaults(LauncherTest):
    def test_all_nodes_that_are_left_agree(self):
        dice = random.Random(SEED)
        for number in range(FAULTS):
            kind = dice.choice(["rank", "rank exits", "two ranks", "supervisor", "guardian", "frozen supervisor"])
            node, rank = dice.randrange(NODES), dice.randrange(NODES * RANKS)
            with self.subTest(seed=SEED, number=number, kind=kind, node=node, rank=rank):
                self.one_fault(kind, node, rank, dice)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def one_fault(self, kind, node, rank, dice):
        port = free_port()
        script = 'echo $$ > part.$RANK; mv part.$RANK pid.$RANK\nuntil [ -e exit.$RANK ]; do sleep 0.01; done; exit 44'
        nodes = [self.start("--nnodes", str(NODES), "--node-rank", str(place), "--master-addr", "127.0.0.1", "--master-port",
                            str(port), "-n", str(RANKS), *shell(script)) for place in range(NODES)]
        self.wait_for_files(*[f"pid.{place}" for place in range(NODES * RANKS)])
        time.sleep(dice.random() * 0.2)  # the fault comes at any time
        begin = time.monotonic()
        lost, expected = self.strike(kind, nodes, node, rank, dice)
        ends = {place: one.finish() for place, one in enumerate(nodes) if place != lost}
        self.assertEqual({status for status, _, _ in ends.values()}, {expected}, ends)
        named = {culprit(err) for _, _, err in ends.values()}
        self.assertEqual(len(named), 1, ends)
        if "rank" not in kind:
            self.assertEqual(named, {("node", node)})
        elif kind != "two ranks":
            self.assertEqual(named, {("rank", rank)})
        self.assertLess(time.monotonic() - begin, 20)  # 1.2 s on a quiet machine
        if kind == "frozen supervisor":  # when it is itself again, it learns that it was given up
            os.kill(nodes[node].supervisor(), signal.SIGCONT)
            self.assertEqual(nodes[node].finish()[0], 1)
        for one in nodes:
            wait_until(lambda: not one.members(), "its end")

    def strike(self, kind, nodes, node, rank, dice):
        """Returns the node that cannot report, or None, and the status of the others."""
        pid = lambda which: int(self.read(f"pid.{which}"))
        if kind == "rank exits":
            self.write(f"exit.{rank}", "")
            return None, 44
        if kind in ("rank", "two ranks"):
            os.kill(pid(rank), signal.SIGKILL)
            if kind == "two ranks":
                other = pid(dice.randrange(NODES * RANKS))
                if is_running(other):
                    os.kill(other, signal.SIGKILL)
            return None, 128 + signal.SIGKILL
        if kind == "guardian":
            os.kill(nodes[node].process.pid, signal.SIGKILL)
        else:
            os.kill(nodes[node].supervisor(), signal.SIGKILL if kind == "supervisor" else signal.SIGSTOP)
        return node, 1


if __name__ == "__main__":
    main()
