#include <string>

#include "launcher/nodes/store/store_client.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

using namespace std::string_literals;

TEST_CASE("OtherService: known protocols are named, with what they said") {
  CHECK(describe_service("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n") == "an SSH server (SSH-2.0-OpenSSH_9.2p1 Debian-2)");
  CHECK(describe_service("HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n") ==
        "an HTTP server (HTTP/1.1 400 Bad Request)");
  CHECK(describe_service("<!DOCTYPE HTML>\n<html>") == "an HTTP server (<!DOCTYPE HTML>)");
  CHECK(describe_service("-ERR unknown command\r\n") == "a Redis or POP3 server (-ERR unknown command)");
  CHECK(describe_service("\x15\x03\x01\x00\x02\x02\x46"s) == "a TLS server (HTTPS or another protocol inside TLS)");
  CHECK(describe_service("\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03"s) == "an HTTP/2 server (gRPC or another one)");
  CHECK(describe_service("J\x00\x00\x00\x0a\x38.0.32"s) == "a MySQL server");
  CHECK(describe_service("220 mail.example.org ESMTP\r\n") == "an SMTP or FTP server (220 mail.example.org ESMTP)");
  CHECK(describe_service("RFB 003.008\n") == "a VNC server (RFB 003.008)");
}

TEST_CASE("OtherService: of others the bytes are shown, as text where they are text") {
  CHECK(describe_service("hello\r\n") == "another program, which sent 'hello'");
  CHECK(describe_service("\x07\xff"s) == "another program, which sent 0x07 0xff");
  CHECK(describe_service(std::string(9, '\2')) ==
        "another program, which sent 0x02 0x02 0x02 0x02 0x02 0x02 0x02 0x02 ...");
  CHECK(describe_service("\n") == "another program, which sent 0x0a");
}

TEST_CASE("OtherService: no bytes of another service reach the terminal as they are, and long lines are cut") {
  const std::string text = describe_service("SSH-\x1b[2J" + std::string(1000, 'x') + "\r\n");
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.size() < 200);
}

TEST_CASE("OtherService: every beginning of every greeting has a text") {
  for (const std::string& whole :
       {"SSH-2.0-x\r\n"s, "\x16\x03\x03\x00\x01"s, "\x00\x00\x12\x04\x00\x00\x00\x00\x00"s, "220 x\r\n"s}) {
    for (std::size_t length = 1; length <= whole.size(); ++length)
      CHECK_FALSE(describe_service(whole.substr(0, length)).empty());
  }
}

}  // namespace
}  // namespace launcher::store
