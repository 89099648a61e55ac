"""Random faults over three nodes: whatever is killed, frozen or unplugged, and whenever, all nodes that are left end with one
status and name one culprit. FAULTS is their number, SEED repeats a run, KIND=<name> is one kind of them."""

import contextlib
import os
import random
import re
import shutil
import signal
import time

from harness import DDPRUN, Job, LauncherTest, free_port, is_running, main, shell, wait_until
from hosts import Hosts, skip_reason

FAULTS = int(os.environ.get("FAULTS", "16"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
NODES = 3
RANKS = 2
WHY_NO_HOSTS = skip_reason()
ALL_RANKS = range(NODES * RANKS)
# Each attempt's ranks have files of their own; what lets them end is one file for each, or one for all.
PROGRAM = """
attempt=$TORCHELASTIC_RESTART_COUNT
echo $$ > part.$attempt.$RANK; mv part.$attempt.$RANK pid.$attempt.$RANK
until [ -e exit.$RANK ] || [ -e end.$RANK ] || [ -e end ]; do sleep 0.01; done
[ -e exit.$RANK ] && exit 44
exit 0"""


def culprit(err):
    """Who the last report says failed first: ("rank", 3) or ("node", 1)."""
    found = None
    for own, node, rank in re.findall(r"^ddprun: (?:rank (\d+) failed first|stopped because of node (\d+): (?:rank (\d+) )?)", err, re.M):
        found = ("rank", int(own or rank)) if own or rank else ("node", int(node))
    return found


class NodeFaults(LauncherTest):
    def test_all_nodes_that_are_left_agree(self):
        dice = random.Random(SEED)
        kinds = [name[6:] for name in dir(self) if name.startswith("fault_")]
        for number in range(FAULTS):
            # Every kind in turn, each place and moment at random.
            kind = os.environ.get("KIND") or kinds[number % len(kinds)]
            with self.subTest(seed=SEED, number=number, kind=kind):
                self.one_fault(kind, dice)

    def one_fault(self, kind, dice):
        self.nodes = []
        self.port = free_port()
        self.lost = set()
        self.sockets = set()
        needs_hosts = kind.startswith(("cable", "slow"))
        self.hosts = Hosts(NODES, (4,)) if needs_hosts and not WHY_NO_HOSTS else None
        if needs_hosts and not self.hosts:
            return
        begin = time.monotonic()
        try:
            getattr(self, "fault_" + kind)(dice)
            self.assertLess(time.monotonic() - begin, 30)  # 2 s on a quiet machine
            for node in self.nodes:
                wait_until(lambda node=node: not node.members(), "its end")
            self.assert_closed(self.sockets)
        finally:
            for node in self.nodes:
                node.clean_up()
            if self.hosts:
                self.hosts.close()
            for name in os.listdir(self.folder):
                if name.startswith("job."):
                    shutil.rmtree(self.path(name))
                else:
                    os.remove(self.path(name))

    # What the faults are made of.

    def node(self, place, options=()):
        address = self.hosts.address(0) if self.hosts else "127.0.0.1"
        words = ["--nnodes", str(NODES), "--node-rank", str(place), "--master-addr", address, "--master-port", str(self.port), "-n",
                 str(RANKS), "--grace", "5", "--node-timeout", "1", *options, *shell(PROGRAM)]
        if self.hosts:
            words = [*self.hosts.on(place), DDPRUN, *words]
            return Job(words[1:], self.folder, program=words[0])
        return Job(words, self.folder)

    def begin(self, dice, options=()):
        self.nodes = [self.node(place, options) for place in range(NODES)]
        self.wait_for_ranks(0)
        if not self.hosts:
            self.sockets = set().union(*(node.sockets() for node in self.nodes))
            self.assertGreaterEqual(len(self.sockets), 2 * NODES)  # the stores, the launchers' connections
        time.sleep(dice.random() * 0.2)  # the fault comes at any time

    def wait_for_ranks(self, attempt):
        self.wait_for_files(*[f"pid.{attempt}.{rank}" for rank in ALL_RANKS])

    def pid(self, rank, attempt=0):
        return int(self.read(f"pid.{attempt}.{rank}"))

    def process(self, place, which):
        node = self.nodes[place]
        return {"guardian": lambda: node.process.pid, "sweeper": node.sweeper, "supervisor": node.supervisor}[which]()

    def lose(self, place, which, number=signal.SIGKILL):
        """The fault of this process of ddprun's, of which it cannot report."""
        os.kill(self.process(place, which), number)
        self.lost.add(place)

    def end_alike(self, status=None, named=None, told=()):
        """All nodes that are not lost end with one status, and name one culprit."""
        ends = {place: node.finish() for place, node in enumerate(self.nodes) if place not in self.lost}
        statuses = {one for one, _, _ in ends.values()}
        self.assertEqual(len(statuses), 1, ends)
        # Who is told to stop says nothing, as on one node.
        culprits = {culprit(err) for place, (_, _, err) in ends.items() if place not in told}
        self.assertLessEqual(len(culprits), 1, ends)
        if status is not None:
            self.assertEqual(statuses, {status}, ends)
        if named is not None:
            self.assertEqual(culprits, {named}, ends)

    # The faults.

    def fault_rank_killed(self, dice):
        self.begin(dice)
        rank = dice.choice(ALL_RANKS)
        os.kill(self.pid(rank), signal.SIGKILL)
        self.end_alike(137, ("rank", rank))

    def fault_rank_exits(self, dice):
        self.begin(dice)
        rank = dice.choice(ALL_RANKS)
        self.write(f"exit.{rank}", "")
        self.end_alike(44, ("rank", rank))

    def fault_two_ranks_at_once(self, dice):
        self.begin(dice)
        first, second = dice.sample(ALL_RANKS, 2)
        os.kill(self.pid(first), signal.SIGKILL)
        other = self.pid(second)
        if is_running(other):
            os.kill(other, signal.SIGKILL)
        self.end_alike(137)

    def fault_all_ranks_at_once(self, dice):
        self.begin(dice)
        for rank in dice.sample(ALL_RANKS, len(ALL_RANKS)):
            self.write(f"exit.{rank}", "")
        self.end_alike(44)

    def fault_rank_frozen_and_another_exits(self, dice):
        self.begin(dice, ("--grace", "0.3"))
        frozen, rank = dice.sample(ALL_RANKS, 2)
        os.kill(self.pid(frozen), signal.SIGSTOP)
        self.write(f"exit.{rank}", "")
        self.end_alike(44, ("rank", rank))

    def fault_launcher_killed(self, dice):
        self.begin(dice)
        place = dice.randrange(NODES)
        self.lose(place, dice.choice(["guardian", "sweeper", "supervisor"]))
        self.end_alike(1, ("node", place))

    def fault_launcher_and_rank_killed(self, dice):
        self.begin(dice)
        place, rank = dice.randrange(NODES), dice.choice(ALL_RANKS)
        pid = self.pid(rank)
        self.lose(place, "supervisor")
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
        self.end_alike()

    def fault_two_launchers_killed(self, dice):
        self.begin(dice)
        places = dice.sample(range(NODES), 2)
        processes = [self.process(place, "supervisor") for place in places]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):  # the second one may have ended because of the first
                os.kill(process, signal.SIGKILL)
        self.lost.update(places)
        self.end_alike(1)

    def fault_launcher_frozen(self, dice):
        self.begin(dice)
        place = dice.randrange(NODES)
        self.lose(place, "supervisor", signal.SIGSTOP)
        self.end_alike(1, ("node", place))
        time.sleep(dice.choice([0, 3]))
        os.kill(self.nodes[place].supervisor(), signal.SIGCONT)  # itself again, it learns that it was given up
        status, _, err = self.nodes[place].finish()
        self.assertEqual((status, culprit(err)), (1, ("node", place)), err)

    def fault_helper_frozen_and_a_rank_exits(self, dice):
        self.begin(dice)
        place, rank, which = dice.randrange(NODES), dice.choice(ALL_RANKS), dice.choice(["guardian", "sweeper"])
        frozen = self.process(place, which)
        os.kill(frozen, signal.SIGSTOP)
        self.write(f"exit.{rank}", "")
        self.lost.add(place)
        self.end_alike(44, ("rank", rank))
        self.lost.clear()
        os.kill(frozen, signal.SIGCONT)
        self.assertEqual(self.nodes[place].finish()[0], 44)

    def fault_launcher_told_to_stop(self, dice):
        self.begin(dice)
        place, number = dice.randrange(NODES), dice.choice([signal.SIGTERM, signal.SIGINT])
        self.nodes[place].signal(number)
        self.end_alike(128 + number, ("node", place), told=(place,))

    def fault_launchers_told_to_stop(self, dice):
        self.begin(dice)
        for node in self.nodes:
            node.signal(signal.SIGTERM)
            time.sleep(dice.random() * 0.02)
        self.end_alike(143, told=range(NODES))

    def fault_while_joining(self, dice):
        """Whoever comes again is taken in, and the job ends well."""
        late, place = dice.sample(range(NODES), 2)
        here = {rank: self.node(rank) for rank in range(NODES) if rank != late}
        self.nodes = list(here.values())
        wait_until(here[place].supervisor, "the launcher")
        time.sleep(dice.random() * 0.1)
        os.kill(dice.choice([here[place].process.pid, here[place].supervisor()]), signal.SIGKILL)
        wait_until(lambda: not here[place].members(), "its end")
        self.write("end", "")
        if place == 0:  # the others were with it, or on their way
            self.nodes.append(self.node(late))
            ends = [here[rank].finish() for rank in here if rank != place]
            if any(status == 0 for status, _, _ in ends):
                self.fail(str(ends))
            self.nodes[-1].clean_up()
            return
        again = [self.node(place), self.node(late)]
        self.nodes += again
        for node in [here[rank] for rank in here if rank != place] + again:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)

    def fault_while_ending(self, dice):
        """One node's ranks have ended well, and it waits for the others."""
        self.begin(dice)
        done, place = dice.randrange(NODES), dice.randrange(NODES)
        for rank in range(done * RANKS, (done + 1) * RANKS):
            self.write(f"end.{rank}", "")
        wait_until(lambda: not any(is_running(self.pid(rank)) for rank in range(done * RANKS, (done + 1) * RANKS)), "its end")
        time.sleep(dice.random() * 0.1)
        self.lose(place, dice.choice(["guardian", "supervisor"]))
        if place == done:  # nobody needs it any more, but that all have ended is unknown without it
            self.write("end", "")
            ends = [node.finish() for index, node in enumerate(self.nodes) if index != place]
            self.assertEqual(len({status for status, _, _ in ends}), 1, ends)
        else:
            self.end_alike(1, ("node", place))

    def fault_in_a_restart(self, dice):
        """Whatever it meets, the rest that starts again or what has started, all end alike."""
        self.begin(dice, ("--max-restarts", "1", "--restart-backoff", dice.choice(["0", "0.2"])))
        rank, place = dice.choice(ALL_RANKS), dice.randrange(NODES)
        os.kill(self.pid(rank), signal.SIGKILL)
        time.sleep(dice.random() * 0.3)
        how = dice.choice(["kill", "stop"])
        if self.nodes[place].process.poll() is None:
            if how == "kill":
                self.lose(place, "supervisor")
            else:
                self.nodes[place].signal(signal.SIGTERM)
        ends = {index: node.finish() for index, node in enumerate(self.nodes) if index not in self.lost}
        self.assertEqual(len({status for status, _, _ in ends.values()}), 1, (how, place, ends))

    def fault_after_a_restart(self, dice):
        self.begin(dice, ("--max-restarts", "1"))
        os.kill(self.pid(dice.choice(ALL_RANKS)), signal.SIGKILL)
        self.wait_for_ranks(1)
        rank = dice.choice(ALL_RANKS)
        os.kill(self.pid(rank, 1), signal.SIGKILL)
        self.end_alike(137, ("rank", rank))

    def fault_beside_another_job(self, dice):
        """The other job, on another port, goes on and ends well."""
        folder = self.path("job.other")
        os.mkdir(folder)
        port = free_port()
        others = [Job(["--nnodes", "2", "--node-rank", str(place), "--master-addr", "127.0.0.1", "--master-port", str(port), "-n", "1",
                       *shell(": > ready.$RANK; until [ -e end ]; do sleep 0.01; done")], folder) for place in range(2)]
        try:
            self.wait_for_files("job.other/ready.0", "job.other/ready.1")
            self.fault_launcher_killed(dice)
            self.write("job.other/end", "")
            for other in others:
                status, _, err = other.finish()
                self.assertEqual(status, 0, err)
        finally:
            for other in others:
                other.clean_up()

    def fault_cable_pulled(self, dice):
        self.begin(dice)
        place = dice.randrange(NODES)
        self.hosts.cable(place, plugged=False)
        self.lost.add(place)
        self.end_alike(1, ("node", place))
        self.assertEqual(self.nodes[place].finish()[0], 1)  # it has lost the others

    def fault_slow_links(self, dice):
        for place in range(NODES):
            self.hosts.slow_down(place, "256kbit", "100ms")
        self.begin(dice)
        rank = dice.choice(ALL_RANKS)
        if dice.random() < 0.5:
            os.kill(self.pid(rank), signal.SIGKILL)
            self.end_alike(137, ("rank", rank))
        else:
            self.lose(rank // RANKS, "supervisor")
            self.end_alike(1, ("node", rank // RANKS))


if __name__ == "__main__":
    main()
