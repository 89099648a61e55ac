"""scripts/get_cifar10 against a server on the loopback: resume, checksum, offline, and never a half-unpacked folder."""

import fcntl
import hashlib
import http.server
import io
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve()
FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
CLIENTS = [client for client in ("curl", "wget") if shutil.which(client)]


def archive(leave_out=(), sizes=None):
    """An archive in the official one's form, with two records a file. Random pixels keep it from shrinking."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in FILES + ["batches.meta.txt"]:
            if name in leave_out:
                continue
            content = b"\x03" + os.urandom(3072) + b"\x09" + os.urandom(3072) if name.endswith(".bin") else b"cat\n"
            content = content[: (sizes or {}).get(name)]
            info = tarfile.TarInfo("cifar-10-batches-bin/" + name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`. `breaks` holds, per request, after how many bytes the connection breaks (None: never); `status`
    other than 200 refuses everything; without `ranges` a request for the rest gets the whole."""

    daemon_threads = True

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.breaks, self.status, self.ranges, self.asked = content, [], 200, True, []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/cifar.tar.gz"

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        begin = int(wanted.split("=")[1].split("-")[0]) if wanted and server.ranges else 0
        body = server.content[begin:]
        if server.status != 200:
            return self.send_error(server.status)
        if wanted and server.ranges and not body:
            return self.send_error(416)
        self.send_response(206 if wanted and server.ranges else 200)
        if wanted and server.ranges:
            self.send_header("Content-Range", f"bytes {begin}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        limit = server.breaks.pop(0) if server.breaks else None
        self.wfile.write(body[:limit])

    def log_message(self, *arguments):
        pass


class GetCifar10:
    """The promises, for one download program; the classes below name it."""

    client = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ddprun-get-cifar10-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.content = archive()
        self.server = Server(self.content)
        self.addCleanup(self.server.close)
        self.dir = self.folder / "data" / "cifar"
        self.part = self.folder / "data" / ".cifar.tar.gz.part"
        # A PATH with this client only.
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for tool in ["bash", "basename", "cut", "dirname", "env", "flock", "gzip", "ls", "mkdir", "mv", "rm", "rmdir",
                     "sha256sum", "shasum", "tar", "tr", "wc", self.client]:
            found = shutil.which(tool)
            if found:
                (self.bin / tool).symlink_to(found)

    def run_script(self, *arguments, url=None, content=None, cwd=None):
        environment = {
            "PATH": str(self.bin), "HOME": str(self.folder), "DDPRUN_CACHE": str(self.folder / "cache"),
            "DDPRUN_CIFAR10_URL": url or self.server.url, "no_proxy": "*",
            "DDPRUN_CIFAR10_SHA256": hashlib.sha256(content or self.content).hexdigest(),
        }
        return subprocess.run([SCRIPT, *(arguments or [self.dir])], env=environment, cwd=cwd or self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50)

    def assert_done(self, result, directory=None):
        directory = directory or self.dir
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, f"{directory}\n")
        self.assertEqual(sorted(os.listdir(directory)), sorted(FILES + ["batches.meta.txt"]))
        self.assertEqual(os.listdir(directory.parent), [directory.name], "something was left behind")
        for name in FILES:
            self.assertEqual((directory / name).stat().st_size, 2 * 3073)

    def assert_failed(self, result, message, kept=0):
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn(message, result.stderr)
        self.assertFalse(self.dir.exists())
        self.assertEqual(os.listdir(self.dir.parent), [self.part.name] if kept else [], "something was left behind")
        self.assertEqual(self.part.stat().st_size if kept else 0, kept)

    def test_downloads_unpacks_and_needs_no_network_the_second_time(self):
        self.assert_done(self.run_script())
        self.assert_done(self.run_script(url="http://127.0.0.1:1/"))
        self.assertEqual(len(self.server.asked), 1)

    def test_takes_the_cache_without_an_argument_and_a_relative_folder_from_where_it_is_called(self):
        self.assert_done(self.run_script(""), self.folder / "cache" / "cifar-10")
        (self.folder / "here").mkdir()
        self.assert_done(self.run_script("mine/", cwd=self.folder / "here"), self.folder / "here" / "mine")

    def test_goes_on_in_the_next_run_where_this_one_stopped(self):
        half = len(self.content) // 2
        self.server.breaks = [half, 0]
        self.assert_failed(self.run_script(), "is kept in", kept=half)
        self.server.asked.clear()
        self.assert_done(self.run_script())
        self.assertEqual(self.server.asked, [f"bytes={half}-"])

    def test_goes_on_in_the_same_run_when_the_connection_breaks(self):
        self.server.breaks = [1000, 2000, 3000]
        self.assert_done(self.run_script())
        self.assertEqual(self.server.asked, [None, "bytes=1000-", "bytes=3000-", "bytes=6000-"])

    def test_starts_again_when_the_server_cannot_go_on(self):
        self.server.ranges = False
        self.part.parent.mkdir()
        self.part.write_bytes(self.content[:5000])
        self.assert_done(self.run_script())

    def test_gives_up_on_a_server_that_always_breaks_and_cannot_go_on(self):
        self.server.ranges = False
        self.server.breaks = [1000] * 100
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertFalse(self.dir.exists())
        self.assertLess(len(self.server.asked), 10)

    def test_starts_again_when_what_was_kept_belongs_to_another_archive(self):
        self.part.parent.mkdir()
        for other in (bytes(5000), self.content + b"more"):
            self.part.write_bytes(other)
            self.assert_done(self.run_script())
            shutil.rmtree(self.dir)

    def test_does_not_download_again_what_had_arrived_whole(self):
        self.part.parent.mkdir()
        self.part.write_bytes(self.content)
        self.assert_done(self.run_script())
        self.assertEqual(self.server.asked, [])

    def test_refuses_a_damaged_archive_with_both_checksums(self):
        self.server.content = self.content[:4000] + bytes(1) + self.content[4001:]
        result = self.run_script()
        self.assert_failed(result, "wrong checksum")
        self.assertIn("expected SHA-256 " + hashlib.sha256(self.content).hexdigest(), result.stderr)
        self.assertIn("got SHA-256 " + hashlib.sha256(self.server.content).hexdigest(), result.stderr)
        self.server.content = self.content
        self.assert_done(self.run_script())

    def test_refuses_an_archive_that_is_not_cifar_10(self):
        for content, message in [(archive(leave_out=["data_batch_4.bin"]), "data_batch_4.bin is missing"),
                                 (archive(sizes={"test_batch.bin": 4000}), "test_batch.bin has 4000 bytes")]:
            self.server.content = content
            self.assert_failed(self.run_script(content=content), message)

    def test_unpacks_nothing_from_an_archive_that_tar_cannot_read(self):
        self.server.content = self.content[:9000]
        self.assert_failed(self.run_script(content=self.server.content), "cannot unpack", kept=9000)

    def test_says_at_once_when_offline_and_keeps_what_has_arrived(self):
        self.part.parent.mkdir()
        self.part.write_bytes(self.content[:700])
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
            for url in (f"http://127.0.0.1:{unused.getsockname()[1]}/x", "http://no-such-host.invalid/x"):
                start = time.monotonic()
                self.assert_failed(self.run_script(url=url), url + ": no connection: offline", kept=700)
                self.assertLess(time.monotonic() - start, 20)

    def test_names_the_answer_of_a_server_that_refuses(self):
        self.server.status = 404
        self.assert_failed(self.run_script(), "404" if self.client == "curl" else "the server answered with an error")

    def test_takes_an_empty_folder_but_touches_no_other(self):
        self.dir.mkdir(parents=True)
        self.assert_done(self.run_script())
        (self.dir / "test_batch.bin").unlink()
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertIn("test_batch.bin is missing", result.stderr)
        self.assertEqual(len(os.listdir(self.dir)), len(FILES))

    def test_two_runs_at_once_do_not_write_the_same_file(self):
        if not shutil.which("flock"):
            self.skipTest("no flock command")
        self.part.parent.mkdir()
        with open(self.part, "ab") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            result = self.run_script()
            self.assertEqual(result.returncode, 1)
            self.assertIn("another get_cifar10 is downloading", result.stderr)
            self.assertTrue(self.part.exists())

    def test_wrong_usage_has_a_status_of_its_own(self):
        for arguments in (["--no-such-option"], ["one", "two"]):
            result = self.run_script(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("usage:", result.stderr)


@unittest.skipUnless("curl" in CLIENTS, "curl is not installed")
class WithCurl(GetCifar10, unittest.TestCase):
    client = "curl"

    def test_takes_a_file_url(self):
        source = self.folder / "archive.tar.gz"
        source.write_bytes(self.content)
        self.assert_done(self.run_script(url=source.as_uri()))


@unittest.skipUnless("wget" in CLIENTS, "wget is not installed")
class WithWget(GetCifar10, unittest.TestCase):
    client = "wget"


class WithoutClient(GetCifar10, unittest.TestCase):
    client = "no-client"

    def test_says_what_to_install(self):
        self.assert_failed(self.run_script(), "needs curl or wget")


# Of the promises above, those that download do not hold without a client.
for promise in [name for name in vars(GetCifar10) if name.startswith("test_")]:
    setattr(WithoutClient, promise, None)

if __name__ == "__main__":
    unittest.main(verbosity=2)
