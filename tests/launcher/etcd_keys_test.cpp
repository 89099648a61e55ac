#include "launcher/elastic/etcd_keys.h"

#include <chrono>
#include <string>

#include "launcher/elastic/http_message.h"
#include "tests/support/catch.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

TEST_CASE("http: a request has its form as a body, escaped") {
  const HttpRequest request{.method = "PUT", .path = "/v2/keys/a", .form = {{"value", "{\"a b\"}"}, {"ttl", "5"}}};
  CHECK(to_text(request, "etcd:2379") ==
        "PUT /v2/keys/a HTTP/1.1\r\nHost: etcd:2379\r\nConnection: close\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 29\r\n\r\nvalue=%7B%22a%20b%22%7D&ttl=5");
}

TEST_CASE("http: a reply has as many bytes as it says, or is none") {
  const auto whole = parse_http_reply("HTTP/1.1 201 Created\r\nX: y\r\ncontent-length: 4\r\n\r\nbody");
  REQUIRE(whole);
  CHECK(whole->status == 201);
  CHECK(whole->body == "body");
  CHECK_FALSE(parse_http_reply("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nbody"));
  CHECK_FALSE(parse_http_reply("HTTP/1.1 201 Created\r\nContent-Length: -1\r\n\r\nbody"));
  CHECK_FALSE(parse_http_reply("HTTP/1.1 201 Created\r\nContent-Length: 4"));
  CHECK_FALSE(parse_http_reply("HTTP/1.1 abc\r\n\r\n"));
  CHECK_FALSE(parse_http_reply(""));
  CHECK(parse_http_reply("HTTP/1.0 200 OK\r\n\r\nto the end")->body == "to the end");
}

TEST_CASE("http: chunks are joined") {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
  CHECK(parse_http_reply(head + "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n")->body == "abc0123456789");
  CHECK_FALSE(parse_http_reply(head + "3\r\nabc\r\n"));
  CHECK_FALSE(parse_http_reply(head + "ffffffffffffffff\r\nabc\r\n0\r\n\r\n"));
  CHECK_FALSE(parse_http_reply(head + "zz\r\nabc\r\n0\r\n\r\n"));
}

TEST_CASE("etcd: the name of a job is one part of the key, whatever it is") {
  CHECK(key_path("my job/../x", "coordinator") == "/v2/keys/ddprun/my%20job%2F..%2Fx/coordinator");
}

TEST_CASE("etcd: a value comes with its index, and an error is none") {
  const auto value = parse_etcd_value({200, R"({"action":"get","node":{"key":"/a","value":"v","modifiedIndex":7}})"});
  REQUIRE(value);
  CHECK(value->value == "v");
  CHECK(value->index == 7);
  CHECK_FALSE(parse_etcd_value({404, R"({"errorCode":100,"message":"Key not found"})"}));
  CHECK_FALSE(parse_etcd_value({200, R"({"node":{"value":3,"modifiedIndex":7}})"}));
  CHECK_FALSE(parse_etcd_value({200, R"({"node":{"value":"v","modifiedIndex":-7}})"}));
  CHECK_FALSE(parse_etcd_value({200, "404 page not found"}));
}

TEST_CASE("etcd: who coordinates comes back as it was written") {
  const auto seat = parse_seat(to_json(Seat{"abc", "10.0.0.1", 4711}));
  REQUIRE(seat);
  CHECK(seat->token == "abc");
  CHECK(seat->host == "10.0.0.1");
  CHECK(seat->port == 4711);
  CHECK_FALSE(parse_seat(R"({"token":"a","host":"b","port":65536})"));
  CHECK_FALSE(parse_seat(R"({"token":"a","host":"","port":1})"));
  CHECK_FALSE(parse_seat("[]"));
}

TEST_CASE("etcd: what a coordinator has counted comes back on the clock of another machine") {
  const Clocks there{std::chrono::steady_clock::time_point(100h), std::chrono::system_clock::time_point(400000h)};
  const Clocks here{std::chrono::steady_clock::time_point(3h), there.system + 10min};
  const History history{.rounds = 4,
                        .nodes = 2,
                        .restarts = 3,
                        .recent_restarts = {there.steady - 20min},
                        .host_failures = {{"a", 1}, {"b", 2}}};
  const auto stored = parse_history(to_json(history, "b", there), here);
  REQUIRE(stored);
  CHECK(stored->history.rounds == 4);
  CHECK(stored->history.nodes == 2);
  REQUIRE(stored->history.recent_restarts.size() == 1);
  CHECK(stored->history.recent_restarts[0] == here.steady - 30min);
  const History after = handed_on(*stored, here.steady);
  CHECK(after.restarts == 4);
  CHECK(after.recent_restarts.size() == 2);
  CHECK(after.host_failures.at("b") == 3);
  const auto in_good_order = parse_history(to_json(history, "", there), here);
  CHECK(handed_on(*in_good_order, here.steady).restarts == 3);
  CHECK_FALSE(parse_history(R"({"host":"a","rounds":1,"nodes":1})", here));
  CHECK_FALSE(parse_history(R"({"host":"a","rounds":1,"nodes":1,"restarts":0,"recent":["x"]})", here));
  CHECK_FALSE(parse_history(R"({"host":"a","rounds":1,"nodes":1,"restarts":0,"failures":{"a":"x"}})", here));
}

}  // namespace
}  // namespace launcher::elastic
