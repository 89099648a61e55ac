#include "launcher/nodes/elastic/etcd_keys.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "launcher/nodes/control/json_reader.h"
#include "launcher/nodes/elastic/http_client.h"
#include "launcher/os/system/json_text.h"

namespace launcher::elastic {
namespace {

using control::JsonReader;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kMaxText = 1024;
constexpr int kMax = 1 << 20;
constexpr int kMaxStatus = 255;
constexpr std::size_t kMaxHosts = 100'000;

json parse(std::string_view text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::string to_json(const CoordinatorRecord& record) {
  return json_text(json{{"token", record.token}, {"host", record.host}, {"port", record.port}});
}

std::optional<CoordinatorRecord> parse_coordinator_record(std::string_view text) {
  const json object = parse(text);
  if (!object.is_object()) return std::nullopt;
  JsonReader reader(object);
  CoordinatorRecord record{reader.text("token", kMaxText), reader.text("host", kMaxText),
                           static_cast<std::uint16_t>(reader.integer("port", 0, 65535))};
  return reader.is_good() && !record.host.empty() ? std::optional(std::move(record)) : std::nullopt;
}

std::string to_json(const History& history, const std::string& host, const Clocks& now) {
  json restarts = json::array();
  for (const auto& time : history.recent_restarts) {
    const auto when = now.system - std::chrono::duration_cast<std::chrono::system_clock::duration>(now.steady - time);
    restarts.push_back(std::chrono::duration_cast<milliseconds>(when.time_since_epoch()).count());
  }
  return json_text(json{{"host", host},
                        {"rounds", history.rounds},
                        {"nodes", history.nodes},
                        {"restarts", history.restarts},
                        {"recent", restarts},
                        {"failures", history.host_failures}});
}

std::optional<StoredHistory> parse_history(std::string_view text, const Clocks& now) {
  const json object = parse(text);
  if (!object.is_object()) return std::nullopt;
  JsonReader reader(object);
  StoredHistory stored;
  stored.host = reader.text("host", kMaxText);
  History& history = stored.history;
  history.rounds = reader.integer("rounds", 0, kMax);
  history.nodes = reader.integer("nodes", 0, kMax);
  history.restarts = reader.integer("restarts", 0, kMax);
  if (!reader.is_good()) return std::nullopt;
  const json recent = object.value("recent", json::array());
  const json failures = object.value("failures", json::object());
  if (!recent.is_array() || recent.size() > kMax || !failures.is_object() || failures.size() > kMaxHosts) {
    return std::nullopt;
  }
  for (const json& time : recent) {
    if (!time.is_number_integer()) return std::nullopt;
    const auto elapsed = std::chrono::duration_cast<milliseconds>(now.system.time_since_epoch()).count() -
                         std::clamp<std::int64_t>(time.get<std::int64_t>(), 0, std::int64_t{1} << 50);
    history.recent_restarts.push_back(now.steady - milliseconds(std::max<std::int64_t>(elapsed, 0)));
  }
  for (const auto& [host, count] : failures.items()) {
    if (!count.is_number_integer()) return std::nullopt;
    history.host_failures[host] = static_cast<int>(std::clamp<std::int64_t>(count.get<std::int64_t>(), 0, kMax));
  }
  return std::optional<StoredHistory>(std::move(stored));
}

History history_for_successor(const StoredHistory& stored, std::chrono::steady_clock::time_point now) {
  History history = stored.history;
  if (stored.host.empty() || history.rounds == 0) return history;
  ++history.restarts;
  history.recent_restarts.push_back(now);
  ++history.host_failures[stored.host];
  return history;
}

std::string to_json(const JoinFailure& end) {
  return json_text(json{{"text", end.text.substr(0, kMaxText)}, {"status", end.exit_status}});
}

std::optional<JoinFailure> parse_end(std::string_view text) {
  const json object = parse(text);
  if (!object.is_object()) return std::nullopt;
  JsonReader reader(object);
  JoinFailure end{reader.text("text", kMaxText), reader.integer("status", 0, kMaxStatus)};
  return reader.is_good() ? std::optional(std::move(end)) : std::nullopt;
}

std::string key_path(const std::string& job, const std::string& key) {
  return "/ddprun/" + url_escaped(job) + "/" + key;
}

}  // namespace launcher::elastic
