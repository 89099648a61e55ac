// What anybody may answer where etcd is expected to be.
#include "launcher/elastic/etcd_keys.h"
#include "launcher/elastic/http_message.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace launcher::elastic;

const Clocks kNow{std::chrono::steady_clock::time_point(std::chrono::hours(9)),
                  std::chrono::system_clock::time_point(std::chrono::hours(400000))};

std::string reply(const std::string& value) {
  std::string escaped;
  for (const char c : value) escaped += c == '"' ? std::string("\\\"") : std::string(1, c);
  const std::string body = R"({"action":"get","node":{"key":"/a","value":")" + escaped + R"(","modifiedIndex":7}})";
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {reply(to_json(Seat{"abc", "10.0.0.1", 4711})),
          reply(to_json({.rounds = 2, .nodes = 1, .restarts = 1, .recent_restarts = {kNow.steady}}, "a", kNow)),
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
          "HTTP/1.1 404 Not Found\r\n\r\n{\"errorCode\":100}"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  const auto reply = parse_http_reply(bytes);
  if (!reply) return Outcome::kRefused;
  require(reply->body.size() <= bytes.size(), "a reply is no longer than what was sent");
  const auto value = parse_etcd_value(*reply);
  if (!value) return Outcome::kRefused;
  if (const auto seat = parse_seat(value->value)) {
    const auto same = parse_seat(to_json(*seat));
    require(same && same->host == seat->host && same->port == seat->port, "a seat that was accepted can be written");
  }
  if (const auto stored = parse_history(value->value, kNow)) {
    require(stored->history.rounds >= 0 && stored->history.restarts >= 0, "counts are no less than nothing");
    require(parse_history(to_json(stored->history, stored->host, kNow), kNow).has_value(), "it can be written");
    handed_on(*stored, kNow.steady);
  }
  return Outcome::kAccepted;
}
