"""A job in which nothing happens costs nothing, before the usual hang timeout and after it, on a machine with many sockets too."""

import os
import resource
import socket
import time
import unittest

from harness import LauncherTest, main

RANKS = 64
USUAL_TIMEOUT = 120
LIMIT = 0.005  # of a processor; 0.0015 is measured, and 0.44 was when each rank's sockets were looked for on their own
SOCKETS = 20_000


def ticks_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers cost more")
class IdleCost(LauncherTest):
    def share(self, pids, time_span):
        """Of a processor that the processes use in this time."""
        before, begin = sum(map(ticks_of, pids)), time.monotonic()
        time.sleep(time_span)
        return (sum(map(ticks_of, pids)) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)

    def open_sockets(self):
        """Connections over loopback, as many as are allowed."""
        most = min(SOCKETS, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500)
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.addCleanup(listener.close)
        for _ in range((most - 1) // 2):
            client = socket.create_connection(listener.getsockname())
            server = listener.accept()[0]
            self.addCleanup(client.close)
            self.addCleanup(server.close)

    def test_64_ranks_that_sleep(self):
        self.open_sockets()
        job = self.start("-n", str(RANKS), "sh", "-c", "echo x; exec sleep 1000")
        supervisor = job.supervisor()
        lines = [job.process.stdout.readline() for _ in range(RANKS)]
        self.assertEqual(len(lines), RANKS)
        with open(f"/proc/{job.process.pid}/task/{job.process.pid}/children", encoding="ascii") as file:
            own = {job.process.pid, supervisor, *map(int, file.read().split())}
        self.assertEqual(len(own), 3)
        begin = time.monotonic()
        shares = {"at first": self.share(own, 30)}
        time.sleep(max(0, begin + USUAL_TIMEOUT + 5 - time.monotonic()))
        shares["after the hang timeout"] = self.share(own, 60)
        for when, share in shares.items():
            print(f"{when}: {100 * share:.2f} % of a processor", flush=True)
            self.assertLess(share, LIMIT, shares)


if __name__ == "__main__":
    main()
