// The values of a job in etcd, under /ddprun/<its name>/: its coordinator, and what the next coordinator must know.
// Everything that is read is checked. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/nodes/elastic/rounds.h"

namespace launcher::elastic {

// The coordinator and its address.
struct CoordinatorRecord {
  std::string token{};  // identifies one period of one coordinator
  std::string host{};
  std::uint16_t port = 0;  // 0: it does not listen yet
};

// Restart times are stored as times of the system clock, as other hosts read them.
struct Clocks {
  std::chrono::steady_clock::time_point steady;
  std::chrono::system_clock::time_point system;
};

std::string to_json(const CoordinatorRecord& record);
std::optional<CoordinatorRecord> parse_coordinator_record(std::string_view text);
// `host`: the coordinator's host, to which its loss is counted as a failure; "" when it hands over its role.
std::string to_json(const History& history, const std::string& host, const Clocks& now);
struct StoredHistory {
  History history{};
  std::string host{};
};
std::optional<StoredHistory> parse_history(std::string_view text, const Clocks& now);
// Returns the history for the next coordinator. If the job has begun, the loss of the previous coordinator is counted.
History history_for_successor(const StoredHistory& stored, std::chrono::steady_clock::time_point now);

// Encodes how a job has ended, for nodes that arrive later.
std::string to_json(const JoinFailure& end);
std::optional<JoinFailure> parse_end(std::string_view text);

std::string key_path(const std::string& job, const std::string& key);

}  // namespace launcher::elastic
