#include <string>
#include <string_view>
#include <vector>

#include "launcher/nodes/elastic/http_client.h"
#include "tests/support/catch.h"

namespace launcher::elastic {
namespace {

using Catch::Matchers::ContainsSubstring;
using State = HttpReplyReader::State;

// What comes of `text` when the connection is closed after it: in one piece, byte by byte, and cut at any one place.
HttpReplyReader read(const std::string& text) {
  HttpReplyReader whole;
  whole.take(text);
  const State state = whole.end();
  const auto same = [&](HttpReplyReader& other) {
    REQUIRE(other.end() == state);
    REQUIRE(other.reply().status == whole.reply().status);
    if (state == State::kComplete) REQUIRE(other.reply().body == whole.reply().body);
    REQUIRE(other.problem() == whole.problem());
  };
  HttpReplyReader by_bytes;
  for (const char c : text) by_bytes.take({&c, 1});
  if (text.starts_with("HTTP/1.")) same(by_bytes);
  for (std::size_t cut = 1; cut < text.size() && text.size() < 1000; ++cut) {
    HttpReplyReader in_two;
    in_two.take(std::string_view(text).substr(0, cut));
    in_two.take(std::string_view(text).substr(cut));
    if (text.starts_with("HTTP/1.")) same(in_two);
  }
  return whole;
}

bool is_complete(const std::string& text) {
  HttpReplyReader reader = read(text);
  return reader.end() == State::kComplete;
}

std::string problem_of(const std::string& text) {
  return read(text).problem();
}

TEST_CASE("http: a request has its JSON as a body") {
  CHECK(to_text({.method = "POST", .path = "/v3/kv/range", .body = "{}"}, "etcd:2379") ==
        "POST /v3/kv/range HTTP/1.1\r\nHost: etcd:2379\r\nConnection: close\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
  CHECK(to_text({.path = "/version"}, "etcd:2379") ==
        "GET /version HTTP/1.1\r\nHost: etcd:2379\r\nConnection: close\r\nAccept: application/json\r\n\r\n");
}

TEST_CASE("http: a reply has as many bytes as it says, or is none") {
  const auto whole = read("HTTP/1.1 201 Created\r\nX: y\r\ncontent-length: 4\r\n\r\nbody");
  CHECK(whole.reply().status == 201);
  CHECK(whole.reply().body == "body");
  CHECK_FALSE(is_complete("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nbody"));
  CHECK_FALSE(is_complete("HTTP/1.1 201 Created\r\nContent-Length: -1\r\n\r\nbody"));
  CHECK_FALSE(is_complete("HTTP/1.1 201 Created\r\nContent-Length: 4"));
  CHECK_FALSE(is_complete("HTTP/1.1 abc\r\n\r\n"));
  CHECK_FALSE(is_complete(""));
  CHECK(is_complete("HTTP/1.1 204 No Content\r\n\r\n"));
  CHECK(read("HTTP/1.0 200 OK\r\n\r\nto the end").reply().body == "to the end");
  CHECK(read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").reply().status == 200);
}

TEST_CASE("http: a reply with a length is complete before the connection is closed") {
  HttpReplyReader reader;
  CHECK(reader.take("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{") == State::kIncomplete);
  CHECK(reader.take("}more") == State::kComplete);
  CHECK(reader.reply().body == "{}");
}

TEST_CASE("http: chunks are joined, and trailers are skipped") {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
  CHECK(read(head + "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n").reply().body == "abc0123456789");
  CHECK(read(head + "2\r\n{}\r\n0\r\nGrpc-Trailer: x\r\nB: y\r\n\r\n").reply().body == "{}");
  CHECK_FALSE(is_complete(head + "3\r\nabc\r\n"));
  CHECK_FALSE(is_complete(head + "3\r\nabcd\r\n0\r\n\r\n"));
  CHECK_FALSE(is_complete(head + "ffffffffffffffff\r\nabc\r\n0\r\n\r\n"));
  CHECK_FALSE(is_complete(head + "zz\r\nabc\r\n0\r\n\r\n"));
  CHECK_FALSE(is_complete(head + "0\r\nno end of the trailer"));
}

TEST_CASE("http: what is no reply is named") {
  CHECK(problem_of("") == "it closed the connection without a reply");
  CHECK(problem_of("HTTP/1.1 200 OK\r\nContent-Len") == "it closed the connection in the middle of a reply");
  CHECK(problem_of("SSH-2.0-OpenSSH_9.2p1\r\n") ==
        "the program that answers there does not use HTTP: it sent 'SSH-2.0-OpenSSH_9.2p1'");
  CHECK_THAT(problem_of("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"), ContainsSubstring("too long"));
  CHECK_THAT(problem_of("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), ContainsSubstring("Content-Length"));
}

TEST_CASE("http: nobody can make it keep more than a reply of etcd's") {
  const std::string piece(std::size_t{64} << 10U, 'x');
  const auto pieces_until_refused = [&](const std::string& head) {
    HttpReplyReader reader;
    reader.take(head);
    int pieces = 0;
    while (reader.take(piece) == State::kIncomplete && pieces < 1000) ++pieces;
    CHECK(reader.end() == State::kInvalid);
    return pieces;
  };
  CHECK(pieces_until_refused("HTTP/1.1 200 OK\r\n") <= 1);
  CHECK(pieces_until_refused("HTTP/1.1 200 OK\r\n\r\n") <= 17);
  CHECK(pieces_until_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") <= 1);
  CHECK(pieces_until_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n") <= 2);
}

}  // namespace
}  // namespace launcher::elastic
