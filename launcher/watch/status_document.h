// What a job is doing, as one JSON document: what `ddprun status --json` prints, and the others are made of. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/watch/rank_view.h"

namespace launcher {

struct JobView {
  std::string job{};  // TORCHELASTIC_RUN_ID
  int pid = 0;        // of ddprun, as its user sees it
  std::string host{};
  std::vector<std::string> program{};
  int attempt = 0;
  int world_size = 0;
  std::chrono::system_clock::time_point start{};
};

struct RankRate {
  RankView view{};
  double steps_per_second = 0;
};

nlohmann::ordered_json status_document(const JobView& job, const std::vector<RankRate>& ranks, std::uint64_t now,
                                       std::chrono::system_clock::time_point time);

// A line on the job and a table of its ranks, from such a document; "" when it is none.
std::string status_text(const std::string& document);

// The document as OpenMetrics.
std::string open_metrics(const nlohmann::ordered_json& document);

}  // namespace launcher
