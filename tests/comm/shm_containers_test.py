"""Ranks in containers and on several hosts, made of namespaces: who can share memory does, and who cannot uses gloo."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / folder) for folder in ("launcher", "support")]
from free_port import free_port  # noqa: E402
from hosts import Hosts, skip_reason  # noqa: E402

PROGRAM = os.environ["PROGRAM"]
PATIENCE = 120  # seconds, for hangs
LINE = re.compile(r"rank (\d) of (\d) sum ([\d.]+) average ([\d.]+) broadcast ([\d.]+) backend ([\w:]+) memory (\d+)")
WHY_NO_HOSTS = skip_reason()
NEW_PIDS = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def works(*command):
    return os.geteuid() == 0 and shutil.which(command[0]) and subprocess.run([*command, "true"], capture_output=True).returncode == 0


class Ranks:
    """Each rank is started by the words of `prefixes`."""

    def __init__(self, test, prefixes, address="127.0.0.1", port=None, variables=None):
        port = port or free_port()
        self.test = test
        self.jobs = []
        for rank, prefix in enumerate(prefixes):
            environment = dict(os.environ, MASTER_ADDR=address, MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(len(prefixes)),
                               LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(len(prefixes)), **(variables or {}))
            job = subprocess.Popen([*prefix, PROGRAM, "tell_memory"], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            test.addCleanup(self.end, job)
            self.jobs.append(job)

    @staticmethod
    def end(job):
        job.kill()
        job.communicate()

    def finish(self):
        """(backend, memory) of each rank, and what the library wrote to standard error."""
        told, errors = [], ""
        ranks = len(self.jobs)
        for rank, job in enumerate(self.jobs):
            out, err = job.communicate(timeout=PATIENCE)
            self.test.assertEqual(job.returncode, 0, err)
            line = LINE.fullmatch(out.strip())
            self.test.assertIsNotNone(line, out)
            values = [float(word) for word in line.groups()[:5]]
            total = ranks * (ranks + 1) / 2
            self.test.assertEqual(values, [rank, ranks, total, total / ranks, ranks])
            told.append((line[6], int(line[7])))
            errors += "".join(line for line in err.splitlines(keepends=True) if line.startswith("ddprun:"))
        return told, errors


class Containers(unittest.TestCase):
    def share(self, prefixes):
        told, errors = Ranks(self, prefixes).finish()
        self.assertEqual({backend for backend, _ in told}, {"shm"})
        self.assertEqual(len({memory for _, memory in told}), 1)
        self.assertNotEqual(told[0][1], 0)
        self.assertEqual(errors, "")

    def use_gloo(self, prefixes, why):
        told, errors = Ranks(self, prefixes).finish()
        self.assertEqual(told, [("cpu:gloo", 0)] * len(prefixes))
        if not why:
            self.assertEqual(errors, "")
            return
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertRegex(errors, "^ddprun: the ranks share no memory and use gloo: rank . of .: " + why)

    @unittest.skipUnless(works("unshare", "--ipc"), "needs unshare(1) and root")
    def test_ranks_in_ipc_namespaces_of_their_own_share_memory(self):
        self.share([["unshare", "--ipc"]] * 3)

    @unittest.skipUnless(works("unshare", "--mount"), "needs unshare(1) and root")
    def test_a_tiny_dev_shm_and_none_at_all_do_not_matter(self):
        for mount in ("mount -t tmpfs -o size=64k tmpfs /dev/shm", "mount -t tmpfs -o ro,size=4k tmpfs /dev/shm"):
            with self.subTest(mount):
                self.share([["unshare", "--mount", "sh", "-c", mount + ' && exec "$@"', "sh"]] * 2)

    @unittest.skipUnless(works(*NEW_PIDS), "needs unshare(1) and root")
    def test_ranks_in_pid_namespaces_of_their_own_use_gloo(self):
        self.use_gloo([NEW_PIDS] * 2, "")

    @unittest.skipUnless(works("unshare", "--mount"), "needs unshare(1) and root")
    def test_ranks_that_cannot_see_each_other_in_proc_use_gloo_and_say_so(self):
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /proc && exec "$@"', "sh"]
        self.use_gloo([hide] * 2, "process .* shared memory cannot be opened")

    @unittest.skipUnless(works("setpriv", "--reuid", "65534", "--clear-groups"), "needs setpriv(1) and root")
    def test_ranks_of_different_users_use_gloo_and_say_so(self):
        if not os.access(PROGRAM, os.X_OK) or any(not os.stat(folder).st_mode & 1 for folder in [pathlib.Path(PROGRAM), *pathlib.Path(PROGRAM).parents]):
            self.skipTest("another user cannot reach the program")
        other = ["setpriv", "--reuid", "65534", "--clear-groups"]
        if subprocess.run([*other, PROGRAM, "nothing"], capture_output=True).returncode == 127:
            self.skipTest("another user cannot load the program's libraries")
        self.use_gloo([[], other], "process .* shared memory cannot be opened .*Permission denied")

    @unittest.skipUnless(works(*NEW_PIDS), "needs unshare(1) and root")
    def test_two_containers_with_two_ranks_each_share_memory_inside(self):
        """A container is a PID namespace that its two ranks enter."""
        holders = [subprocess.Popen([*NEW_PIDS, "sleep", "1000"]) for _ in range(2)]
        for holder in holders:
            self.addCleanup(holder.wait)
            self.addCleanup(holder.kill)
        enter = [["nsenter", "--target", str(child_of(holder.pid)), "--pid", "--mount"] for holder in holders]
        self.check_two_hosts(Ranks(self, [enter[0], enter[1], enter[0], enter[1]]))

    @unittest.skipIf(WHY_NO_HOSTS, WHY_NO_HOSTS)
    def test_two_hosts_with_two_ranks_each_share_memory_on_each(self):
        hosts = Hosts(2)
        self.addCleanup(hosts.close)
        prefixes = [[*hosts.on(rank % 2), "env", f"DDPRUN_SHM_HOST={rank % 2}", "GLOO_SOCKET_IFNAME=eth0"] for rank in range(4)]
        self.check_two_hosts(Ranks(self, prefixes, address=hosts.address(0), port=29500))

    def check_two_hosts(self, ranks):
        told, errors = ranks.finish()
        self.assertEqual({backend for backend, _ in told}, {"shm"})
        memory = [number for _, number in told]
        self.assertNotIn(0, memory)
        self.assertEqual(memory[0], memory[2])
        self.assertEqual(memory[1], memory[3])
        self.assertNotEqual(memory[0], memory[1])
        self.assertEqual(errors, "")


def child_of(pid):
    """The first process of the namespace, once it is there and has the new /proc."""
    while True:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and pathlib.Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep":
            return int(children[0])


if __name__ == "__main__":
    unittest.main()
