"""Two network namespaces connected by a link of 1 Gbit/s, for jobs of two ranks (bench/ddp/jobs.py). Needs root."""

import os
import subprocess


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class SlowLink:
    address = "10.213.77.1"

    def __init__(self):
        self.names = [f"ddpbench{os.getpid()}{side}" for side in "ab"]
        links = [f"vb{os.getpid() % 100000}{side}" for side in "ab"]
        self.prefixes = [["ip", "netns", "exec", name] for name in self.names]
        self.variables = [{"GLOO_SOCKET_IFNAME": link} for link in links]
        self.links = links

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            first, second = zip(self.links, self.names)
            ip("link", "add", first[0], "netns", first[1], "type", "veth", "peer", "name", second[0], "netns", second[1])
            for name, link, address in zip(self.names, self.links, [self.address, "10.213.77.2"]):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", link, "up")
                shape = ["tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "20ms"]
                subprocess.run(["ip", "netns", "exec", name, *shape], check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
