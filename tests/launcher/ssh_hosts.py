"""A real sshd for the tests of -H: keys, configuration and known hosts of its own, started and ended by the test."""

import contextlib
import os
import shutil
import signal
import subprocess

from harness import wait_until

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def skip_reason():
    """Why there can be no sshd here, "" when there can."""
    if os.geteuid() != 0:
        return "an sshd for other hosts needs root"
    if SSHD is None or not all(map(shutil.which, ("ssh", "ssh-keygen"))):
        return "there is no OpenSSH (openssh-server, openssh-client)"
    return ""


class Sshd:
    """One server on these addresses, perhaps `on` another host (Hosts.on()). `ssh` is what --ssh-command takes."""

    def __init__(self, folder, addresses=("0.0.0.0",), on=()):
        self.folder = folder
        self.on = list(on)
        self.port = 20000 + os.getpid() % 10000  # below those that the kernel gives out
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # it insists
        for name in ("host_key", "key", "other_key"):
            if not os.path.exists(self.path(name)):
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True)
        shutil.copy(self.path("key.pub"), self.path("authorized_keys"))
        self.write("sshd_config", f"""
            Port {self.port}
            HostKey {self.path("host_key")}
            AuthorizedKeysFile {self.path("authorized_keys")}
            PidFile none
            StrictModes no
            PasswordAuthentication no
            KbdInteractiveAuthentication no
            UsePAM no
            MaxStartups 200
            """ + "\n".join(f"ListenAddress {address}" for address in addresses))
        with open(self.path("host_key.pub"), encoding="utf-8") as key:
            self.write("known_hosts", "* " + key.read())
        self.write_client("known_hosts")
        self.log = self.path(f"sshd.{len(os.listdir(folder))}.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*self.on, SSHD, "-D", "-e", "-f", self.path("sshd_config")],
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        wait_until(self.listens, "sshd")

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("\n".join(line.strip() for line in text.splitlines()) + "\n")

    def write_client(self, known_hosts, key="key"):
        self.write("ssh_config", f"""
            Host *
            Port {self.port}
            UserKnownHostsFile {self.path(known_hosts)}
            GlobalKnownHostsFile /dev/null
            StrictHostKeyChecking yes
            IdentitiesOnly yes
            IdentityFile {self.path(key)}
            """)

    @property
    def ssh(self):
        return f"ssh -F {self.path('ssh_config')}"

    def listens(self):
        with open(self.log, encoding="utf-8") as file:
            log = file.read()
        if self.process.poll() is not None:
            raise AssertionError("sshd ended: " + log)
        return "Server listening" in log

    def close(self):
        """Ends the server and the sessions that it has left."""
        for pid in [*descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def sessions(self):
        return descendants(self.process.pid)


def descendants(pid):
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b") ", 1)[1].split()
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)] = int(fields[1])
    found = [pid]
    for parent in found:
        found.extend(child for child, its in parents.items() if its == parent)
    return found[1:]


def running(program):
    """Pids of the processes that execute this file, with their arguments."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/exe") == program:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    found[int(name)] = file.read().split(b"\0")[:-1]
    return found
