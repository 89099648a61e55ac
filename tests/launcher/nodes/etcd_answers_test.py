"""What ddprun says where something else than a good etcd answers at --rdzv_endpoint."""

import json
import socketserver
import threading

from harness import LauncherTest, free_port, main

# Between pieces a server waits for so long that each comes alone.
PAUSE = 0.001


class Answering(socketserver.StreamRequestHandler):
    """Reads a request, and answers by what its server has for the path."""

    def handle(self):
        path = self.rfile.readline().split(b" ")[1].decode()
        length = 0
        for line in iter(self.rfile.readline, b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.rfile.read(length)
        answer = self.server.answers.get(path, self.server.answers[""])
        for piece in answer if isinstance(answer, list) else [answer]:
            self.wfile.write(piece)
            self.wfile.flush()
            threading.Event().wait(PAUSE if isinstance(answer, list) else 0)


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request, client_address):
        """ddprun does not read a reply to its end that is too long."""


def reply(body, status="200 OK", headers=""):
    if isinstance(body, dict):
        body = json.dumps(body)
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode()


NOT_FOUND = reply("404 page not found\n", "404 Not Found")


class Answers(LauncherTest):
    def said_of(self, status, text, answers, join_timeout="1"):
        with Server(("127.0.0.1", free_port()), Answering) as server:
            server.answers = answers if isinstance(answers, dict) else {"": answers}
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                got, _, err = self.run_job("--nnodes", "2", "--rdzv_backend", "etcd", "--rdzv_endpoint",
                                           f"127.0.0.1:{server.server_address[1]}", "--join_timeout", join_timeout, "true")
            finally:
                server.shutdown()
                thread.join()
        self.assertEqual(got, status, err)
        self.assertIn(text, err)
        self.assertLess(len(err), 1000)

    def test_an_old_etcd_is_named_with_the_version_that_is_needed(self):
        old = {"/version": reply({"etcdserver": "3.3.27", "etcdcluster": "3.3.0"}), "": NOT_FOUND}
        self.said_of(125, "it is etcd 3.3.27: ddprun needs etcd 3.4 or newer, for its API v3", old)

    def test_an_etcd_without_its_gateway_is_told_how_to_be_started(self):
        without = {"/version": reply({"etcdserver": "3.6.1", "etcdcluster": "3.6.0"}), "": NOT_FOUND}
        self.said_of(125, "it is etcd 3.6.1 without the JSON form of its API v3: start it with --enable-grpc-gateway=true", without)

    def test_what_wants_passwords_or_speaks_https_only_is_said_at_once(self):
        refused = reply({"error": "etcdserver: user name is empty", "code": 3}, "400 Bad Request")
        self.said_of(125, "it requires a user and a password, which ddprun cannot send", refused)
        self.said_of(125, "it requires a user and a password", reply("", "401 Unauthorized"))
        self.said_of(125, "it requires a user and a password", reply("<html>Forbidden</html>", "403 Forbidden"))
        self.said_of(125, "it answers only https on this port, and ddprun uses http",
                     reply("Client sent an HTTP request to an HTTPS server.\n", "400 Bad Request"))

    def test_what_is_no_etcd_is_shown_by_its_first_words(self):
        page = "<!DOCTYPE html>\r\n<html><body>Bad Gateway</body></html>"
        self.said_of(124, "the program that answers there is not etcd 3.4 or newer: status 502, '<!DOCTYPE html>'", reply(page, "502 Bad Gateway"))
        self.said_of(124, "the program that answers there is not etcd 3.4 or newer: status 404, '404 page not found'", NOT_FOUND)
        self.said_of(124, "the program that answers there is not etcd 3.4 or newer: status 200, '[]'", reply("[]"))
        self.said_of(124, "the program that answers there does not use HTTP: it sent 'SSH-2.0-OpenSSH_9.2p1", b"SSH-2.0-OpenSSH_9.2p1\r\n")
        self.said_of(124, "status 301, ''", reply("\r\n", "301 Moved", "Location: https://elsewhere/\r\n"))

    def test_another_program_is_not_waited_for_until_the_join_timeout(self):
        text = "; --rdzv_endpoint names the HOST:PORT of etcd"
        self.said_of(125, "it sent 'SSH-2.0-OpenSSH_9.2p1'" + text, b"SSH-2.0-OpenSSH_9.2p1\r\n", join_timeout="100")
        self.said_of(125, "status 404, '404 page not found'" + text, NOT_FOUND, join_timeout="100")
        self.said_of(124, "status 502", reply("", "502 Bad Gateway"), join_timeout="6")

    def test_broken_answers_are_said(self):
        self.said_of(124, "it closed the connection without a reply", b"")
        self.said_of(124, "in the middle of a reply", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}")
        self.said_of(124, "its HTTP reply has an invalid chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        self.said_of(124, "too long", reply("x" * (2 << 20)))
        self.said_of(124, "too long", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20))

    def test_etcds_own_errors_are_passed_on(self):
        self.said_of(124, "it answered: etcdserver: request timed out",
                     reply({"error": "etcdserver: request timed out", "code": 14}, "503 Service Unavailable"))

    def test_a_key_that_says_nothing_sensible_is_named(self):
        entry = {"key": "L2RkcHJ1bi9ub25lL2Nvb3JkaW5hdG9y", "mod_revision": "7", "value": "bm9uc2Vuc2U="}
        odd = {"header": {}, "succeeded": True, "responses": [{"response_range": {"header": {}, "kvs": [entry], "count": "1"}}]}
        whole = reply(odd)
        text = "its key /ddprun/none/coordinator does not name the coordinator"
        self.said_of(124, text, whole)
        self.said_of(124, text, [whole[i:i + 1] for i in range(0, len(whole), 1)], join_timeout="8")

    def test_where_nobody_listens_the_line_says_so(self):
        got, _, err = self.run_job("--nnodes", "2", "--rdzv_backend", "etcd-v2", "--rdzv_endpoint", f"127.0.0.1:{free_port()}",
                                   "--join_timeout", "3", "true")
        self.assertEqual(got, 124)
        self.assertIn("etcd: Connection refused", err)
        self.assertIn("is etcd running there, and are address and port right?", err)
        self.assertIn("--rdzv_backend etcd-v2 is treated as etcd: ddprun uses the API v3 of etcd 3.4 or newer", err)


if __name__ == "__main__":
    main()
