// What anybody may answer where etcd is expected to be.
#include "launcher/nodes/elastic/etcd_api.h"
#include "launcher/nodes/elastic/etcd_keys.h"
#include "launcher/nodes/elastic/http_client.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace launcher::elastic;

const Clocks kNow{std::chrono::steady_clock::time_point(std::chrono::hours(9)),
                  std::chrono::system_clock::time_point(std::chrono::hours(400000))};

std::string with_length(const std::string& body, const std::string& status = "200 OK") {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string entry(const std::string& value) {
  // The parser of base64 has units; here it is only what the fuzzer changes.
  const HttpRequest put = transaction_request({.then = {{EtcdOperation::Kind::kWrite, "/a", value, 7}}});
  const std::size_t begin = put.body.find("\"value\":\"") + 9;
  return with_length(
      R"({"header":{"revision":"2"},"succeeded":true,"responses":[{"response_range":{"kvs":[{"key":"L2E=","mod_revision":"2","lease":"7","value":")" +
      put.body.substr(begin, put.body.find('"', begin) - begin) + R"("}],"count":"1"}}]})");
}

void check_value(const std::string& text) {
  if (const auto record = parse_coordinator_record(text)) {
    const auto same = parse_coordinator_record(to_json(*record));
    fuzz::require(same && same->host == record->host && same->port == record->port,
                  "a seat that was accepted can be written");
  }
  if (const auto stored = parse_history(text, kNow)) {
    fuzz::require(stored->history.rounds >= 0 && stored->history.restarts >= 0, "counts are no less than nothing");
    fuzz::require(parse_history(to_json(stored->history, stored->host, kNow), kNow).has_value(), "it can be written");
    history_for_successor(*stored, kNow.steady);
  }
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {entry(to_json(CoordinatorRecord{"abc", "10.0.0.1", 4711})),
          entry(to_json({.rounds = 2, .nodes = 1, .restarts = 1, .recent_restarts = {kNow.steady}}, "a", kNow)),
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
          "chunked\r\n\r\n2c\r\n{\"result\":{\"header\":{},\"ID\":\"7\",\"TTL\":\"15\"}}\n\r\n0\r\n\r\n",
          "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n25\r\n{\"error\":\"lease not "
          "found\",\"code\":5}\n\r\n0\r\nA: b\r\n\r\n",
          with_length(R"({"etcdserver":"3.4.23"})"),
          with_length("404 page not found\n", "404 Not Found")};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  HttpReplyReader reader;
  reader.take(bytes);
  const bool is_complete = reader.end() == HttpReplyReader::State::kComplete;
  HttpReplyReader in_pieces;
  for (std::size_t begin = 0; begin < bytes.size(); begin += 3) in_pieces.take(bytes.substr(begin, 3));
  const bool is_same = (in_pieces.end() == HttpReplyReader::State::kComplete) == is_complete;
  require(is_same && (!is_complete || in_pieces.reply().body == reader.reply().body), "pieces change nothing");
  require(is_complete == reader.problem().empty(), "a reply that is refused has a reason");
  if (!is_complete) return Outcome::kRefused;
  const HttpReply& reply = reader.reply();
  require(reply.body.size() <= bytes.size(), "a reply is no longer than what was sent");
  require(!gateway_problem(reply, parse_version(reply)).text.empty(), "every reply that is of no use has a reason");
  const auto lease = parse_lease(reply);
  if (lease) require(lease->left.count() >= 0, "a lease has no negative time");
  const auto outcome = parse_outcome(reply);
  if (!outcome) return lease || !parse_version(reply).empty() ? Outcome::kAccepted : Outcome::kRefused;
  for (const auto& [key, found] : outcome->found) {
    require(!key.empty() && found.revision > 0, "an entry has a key and a revision");
    check_value(found.value);
  }
  return Outcome::kAccepted;
}
