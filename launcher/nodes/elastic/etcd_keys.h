// What a job writes into etcd, under /ddprun/<its name>/: who coordinates it, and what a coordinator after that one
// must know. Nothing is believed that was not checked. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/nodes/elastic/rounds.h"

namespace launcher::elastic {

// Who coordinates, and where it can be reached.
struct CoordinatorRecord {
  std::string token{};  // of one launcher and one time that it coordinates
  std::string host{};
  std::uint16_t port = 0;  // 0: it does not listen yet
};

// The times of restarts are kept as those of the system's clock.
struct Clocks {
  std::chrono::steady_clock::time_point steady;
  std::chrono::system_clock::time_point system;
};

std::string to_json(const CoordinatorRecord& record);
std::optional<CoordinatorRecord> parse_coordinator_record(std::string_view text);
// `host`: that coordinates, whose loss is a failure of it; "" when it goes in good order.
std::string to_json(const History& history, const std::string& host, const Clocks& now);
struct StoredHistory {
  History history{};
  std::string host{};
};
std::optional<StoredHistory> parse_history(std::string_view text, const Clocks& now);
// What it is for the coordinator that follows: one more loss, once the job has begun.
History handed_on(const StoredHistory& stored, std::chrono::steady_clock::time_point now);

// How a job has ended, for its nodes that come later.
std::string to_json(const JoinFailure& end);
std::optional<JoinFailure> parse_end(std::string_view text);

std::string key_path(const std::string& job, const std::string& key);

}  // namespace launcher::elastic
