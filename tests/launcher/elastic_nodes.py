"""Jobs whose number of nodes may change: several ddprun on this machine, each with a name of its own."""

import os
import re
import signal

from harness import LauncherTest, free_port, wait_until

# Each rank says where it stands, then runs until it is told to end or to fail. A node's name is in NODE.
RANK = """
place="$WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $LOCAL_RANK $MASTER_PORT $NODE $$ $ROLE_RANK $TORCHELASTIC_MAX_RESTARTS"
echo "$place" > "part.$TORCHELASTIC_RESTART_COUNT.$RANK"
mv "part.$TORCHELASTIC_RESTART_COUNT.$RANK" "round.$TORCHELASTIC_RESTART_COUNT.$RANK"
until [ -e end ]; do
  if [ -e "fail.$NODE.$TORCHELASTIC_RESTART_COUNT" ]; then exit 7; fi
  sleep 0.02
done
"""


class Rank:
    def __init__(self, text):
        words = text.split()
        self.world, self.group, self.groups, self.local, self.port = map(int, words[:5])
        self.node, self.pid, self.role_rank, self.max_restarts = words[5], int(words[6]), int(words[7]), int(words[8])


class ElasticTest(LauncherTest):
    """Nodes are called by letters; the first one that is started coordinates."""

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.nodes = {}
        self.sockets = set()

    def meeting_options(self):
        return ("--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{self.port}")

    def node(self, name, nnodes="2:3", ranks=1, restarts=5, options=(), program=None, front=()):
        log = open(self.path(f"log.{name}"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        words = ["--nnodes", nnodes, *self.meeting_options(), "--max_restarts", str(restarts), "--local_addr", name, "-n",
                 str(ranks), "--grace", "5", *options, *(program or ("sh", "-c", f'cd "$DDPRUN_TEST_FOLDER" || exit 99\n{RANK}'))]
        self.nodes[name] = self.start(*words, stdout=log, stderr=log, environment={"NODE": name})
        return self.nodes[name]

    def round(self, number, nodes, ranks=1):
        """Waits until round `number` runs on `nodes`, names in the order of their numbers, and returns its ranks."""
        size = len(nodes) * ranks
        found = []
        for place in range(size):
            self.wait_for_round(number, place)
            found.append(Rank(self.read(f"round.{number}.{place}")))
        self.assertEqual([rank.node for rank in found], [name for name in nodes for _ in range(ranks)])
        for place, rank in enumerate(found):
            self.assertEqual((rank.world, rank.group, rank.groups, rank.local, rank.role_rank),
                             (size, place // ranks, len(nodes), place % ranks, place))
            self.assertEqual(rank.port, found[0].port)
        self.assertFalse(os.path.exists(self.path(f"round.{number}.{size}")))
        for name in nodes:
            self.sockets |= self.nodes[name].sockets()
        return found

    def wait_for_round(self, number, place):
        try:
            self.wait_for_files(f"round.{number}.{place}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self):
        return "\n".join(f"--- {name}\n{self.log(name)}" for name in self.nodes)

    def log(self, name):
        return self.read(f"log.{name}")

    def said(self, name, text):
        wait_until(lambda: re.search(text, self.log(name)), f"{text!r} by {name}:\n{self.log(name)}")

    def kill(self, name):
        """As if its machine was switched off: the launcher, and all that it started."""
        job = self.nodes[name]
        os.kill(job.supervisor(), signal.SIGKILL)

    def processes(self, name):
        """ddprun's own, by what they are."""
        job = self.nodes[name]
        return {"guardian": job.process.pid, "sweeper": job.sweeper(), "supervisor": job.supervisor()}

    def end(self, *names, status=0):
        for name in names:
            got = self.nodes[name].finish()[0]
            self.assertEqual(got, status, f"{name}\n{self.logs()}")

    def finish_well(self, *names):
        self.write("end", "")
        self.end(*names)

    def nothing_is_left(self):
        for job in self.nodes.values():
            wait_until(lambda job=job: not job.members(), "its end")
        self.assert_closed(self.sockets)
