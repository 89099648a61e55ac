"""Faults at random over four nodes: interruptions of the network, processes that are killed and frozen. ROUNDS is their number, SEED
repeats them, and KIND=<name> is one kind of them."""

import os
import random
import signal
import time

import etcd_nodes
from harness import LauncherTest, main
from hosts import INTERRUPTIONS, skip_reason
from interrupted_nodes import BUSY, NODES, QUIET, Nodes

WHY_NOT = skip_reason()
NO_ETCD = etcd_nodes.WHY_NOT
ROUNDS = int(os.environ.get("ROUNDS", "4"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))


class RandomFaults(LauncherTest):
    def test_no_job_ends_without_need_and_no_node_is_left_alone(self):
        dice = random.Random(SEED)
        kinds = [name[6:] for name in dir(self) if name.startswith("fault_")]
        for number in range(ROUNDS):
            kind = os.environ.get("KIND") or dice.choice(kinds)
            meeting = dice.choice(["static", "c10d", "elastic", *([] if NO_ETCD else ["etcd"])])
            print(f"{number}: {kind} in {meeting} (SEED={SEED})", flush=True)
            try:
                with self.subTest(seed=SEED, number=number, kind=kind, meeting=meeting):
                    getattr(self, "fault_" + kind)(meeting, dice, str(number))
            finally:
                self.doCleanups()
                self.setUp()

    def job(self, meeting, dice, name, *options, is_up=True):
        """Also what to interrupt, and how."""
        job = Nodes(self, name, meeting, dice.choice([QUIET, BUSY]), options)
        if is_up:
            job.wait_for_ranks()
        self.pause(dice.random() * 0.3)
        return job, dice.choice(INTERRUPTIONS), dice.randrange(NODES)

    def pause(self, seconds):
        """An interruption on a machine that is too busy for this is a longer one than was meant, and proves nothing."""
        begin = time.monotonic()
        time.sleep(seconds)
        late = time.monotonic() - begin - seconds
        if late > 1:
            self.skipTest(f"this machine is too busy: {seconds} s took {late:.1f} s more")

    def end_well(self, job, places=range(NODES)):
        job.end_ranks()
        job.end(0, places)

    def kill_rank(self, job, dice):
        os.kill(job.process(dice.randrange(NODES), "rank"), signal.SIGKILL)

    def fault_interruption(self, meeting, dice, name, is_up=True):
        job, how, place = self.job(meeting, dice, name, is_up=is_up)
        where = dice.choice([place, place, "all"])
        # Several of them that follow each other closely are one: all together are below the limit.
        count = dice.choice([1, 1, 3])
        for _ in range(count):
            job.interrupt(how, where, down=True)
            self.pause(dice.choice([0.05, 0.1, 0.2, 0.3, 0.5, 1, 2] if count > 1 else [0.1, 0.2, 0.3, 0.5, 1, 2, 4, 5, 7]))
            job.interrupt(how, where, down=False)
            self.pause(dice.random() * 0.7)
        job.wait_for_ranks()
        self.end_well(job)

    def fault_interruption_at_the_start(self, meeting, dice, name):
        self.fault_interruption(meeting, dice, name, is_up=False)

    def fault_freeze(self, meeting, dice, name):
        """Of any of ddprun's processes, or of a rank, with an interruption meanwhile or without one."""
        job, how, place = self.job(meeting, dice, name)
        process = job.process(place, dice.choice(["guardian", "sweeper", "supervisor", "rank"]))
        os.kill(process, signal.SIGSTOP)
        is_cut = dice.choice([False, False, True])
        if is_cut:
            job.interrupt(how, place, down=True)
        self.pause(dice.choice([0.1, 0.5, 1.5, 3, 6]))
        if is_cut:
            job.interrupt(how, place, down=False)
        os.kill(process, signal.SIGCONT)
        self.end_well(job)

    def fault_rank_killed_in_an_interruption(self, meeting, dice, name):
        job, how, place = self.job(meeting, dice, name)
        where = dice.choice([place, "all"])
        job.interrupt(how, where, down=True)
        self.pause(dice.choice([0, 0.3, 1.5]))
        self.kill_rank(job, dice)
        self.pause(dice.choice([0.2, 1, 3]))
        job.interrupt(how, where, down=False)
        job.end(137)

    def fault_interruption_in_a_restart(self, meeting, dice, name):
        job, how, place = self.job(meeting, dice, name, "--max_restarts", "1")
        self.kill_rank(job, dice)
        self.pause(dice.choice([0, 0.02, 0.1, 0.3]))
        job.interrupt(how, place, down=True)
        self.pause(dice.choice([0.2, 1, 3, 6]))
        job.interrupt(how, place, down=False)
        job.wait_for_ranks(1)
        self.end_well(job)

    def fault_launcher_killed(self, meeting, dice, name):
        """Without restarts: all others end, long before --node_timeout has passed."""
        job, _, place = self.job(meeting, dice, name)
        os.kill(job.process(place, dice.choice(["guardian", "sweeper", "supervisor"])), signal.SIGKILL)
        begin = time.monotonic()
        job.end(1, job.others(place))
        self.assertLess(time.monotonic() - begin, 8, job.log())

    def fault_launcher_killed_with_restarts(self, meeting, dice, name):
        """The others run on without it, unless their number is fixed, or without etcd, if it was the coordinator."""
        job, _, place = self.job(meeting, dice, name, "--max_restarts", "1", "--join_timeout", "60")
        os.kill(job.process(place, dice.choice(["guardian", "sweeper", "supervisor"])), signal.SIGKILL)
        if meeting == "etcd" or (meeting == "elastic" and place != 0):
            job.wait_for_ranks(1, NODES - 1)
            self.end_well(job, job.others(place))
        else:
            job.end_alike(job.others(place))

    def fault_long_interruption(self, meeting, dice, name):
        job, how, place = self.job(meeting, dice, name, "--node_timeout", "2")
        job.interrupt(how, place, down=True)
        self.pause(dice.choice([4, 6]))
        job.interrupt(how, place, down=False)
        job.end(1)


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
