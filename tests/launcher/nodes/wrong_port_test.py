"""Another program listens at the master port: the nodes say which, by what it answers, instead of waiting for it."""

import http.server
import socket
import threading
import time

from harness import LauncherTest, main


class Greeter:
    """Sends `greeting` to everyone who connects (after a line of theirs where `waits`), in pieces of `piece` bytes."""

    def __init__(self, greeting, waits=False, piece=1 << 20):
        self.greeting, self.waits, self.piece = greeting, waits, piece
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        try:
            with client:
                while self.waits:
                    data = client.recv(4096)
                    if not data or b"\n" in data:
                        break
                for begin in range(0, len(self.greeting), self.piece):
                    client.sendall(self.greeting[begin:begin + self.piece])
                    time.sleep(0.01)
                while client.recv(4096):
                    pass
        except OSError:
            pass

    def close(self):
        self.listener.close()


class WrongPort(LauncherTest):
    def refused(self, port, *options):
        """What node 1 says, and its status."""
        status, _, err = self.run_job("--nnodes", "2", "--node_rank", "1", "--master_addr", "127.0.0.1", "--master_port", str(port), *options, "true")
        return status, err

    def check_greeting(self, text, greeting, **how):
        server = Greeter(greeting, **how)
        self.addCleanup(server.close)
        status, err = self.refused(server.port)
        self.assertEqual(status, 125, err)
        self.assertIn(f"port {server.port} of host 127.0.0.1 belongs to {text}", err)
        self.assertIn("choose another --master_port", err)

    def test_servers_that_greet(self):
        self.check_greeting("an SSH server (SSH-2.0-OpenSSH_9.2)", b"SSH-2.0-OpenSSH_9.2\r\n")
        self.check_greeting("an SMTP or FTP server (220 mail ESMTP)", b"220 mail ESMTP\r\n")
        self.check_greeting("another program, which sent 'hello'", b"hello\n")

    def test_a_greeting_byte_by_byte(self):
        self.check_greeting("an SSH server (SSH-2.0-OpenSSH_9.2)", b"SSH-2.0-OpenSSH_9.2\r\n", piece=1)

    def test_bytes_that_could_be_an_answer(self):
        self.check_greeting("an HTTP/2 server", b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64")
        self.check_greeting("another program, which sent 0x01", b"\1\2\3\4\5\6\7")

    def test_servers_that_wait_for_a_line(self):
        self.check_greeting("a Redis or POP3 server (-ERR unknown command)", b"-ERR unknown command\r\n", waits=True)

    def test_pythons_http_server(self):
        class Quiet(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        status, err = self.refused(server.server_port)
        self.assertEqual(status, 125, err)
        self.assertIn("belongs to an HTTP server", err)

    def test_node_0_says_who_has_its_port(self):
        server = Greeter(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.addCleanup(server.close)
        status, _, err = self.run_job("--nnodes", "2", "--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", str(server.port), "true")
        self.assertEqual(status, 125, err)
        self.assertIn("an SSH server (SSH-2.0-OpenSSH_9.2)", err)

    def test_nodes_that_come_and_go_are_told_too(self):
        server = Greeter(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.addCleanup(server.close)
        status, _, err = self.run_job("--nnodes", "1:2", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{server.port}", "true")
        self.assertEqual(status, 125, err)
        self.assertIn("an SSH server (SSH-2.0-OpenSSH_9.2)", err)

    def test_a_store_that_is_slow_is_waited_for(self):
        """What a stopped launcher answers late is not a stranger's."""
        server = Greeter(b"\1", waits=True)
        self.addCleanup(server.close)
        started = time.monotonic()
        status, err = self.refused(server.port, "--join_timeout", "8")
        self.assertEqual(status, 124, err)
        self.assertNotIn("belongs to", err)
        self.assertGreater(time.monotonic() - started, 7)


if __name__ == "__main__":
    main()
