// The state of a job as one JSON document. `ddprun status --json` prints it, and other outputs are made from it. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/findings.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/machine/gpu_monitor.h"

namespace launcher {

struct JobView {
  std::string job{};  // TORCHELASTIC_RUN_ID
  int pid = 0;        // the process number of ddprun, as its user sees it
  std::string host{};
  std::vector<std::string> program{};
  int attempt = 0;
  int world_size = 0;
  std::chrono::system_clock::time_point start{};
  std::string metrics{};  // the URL of the metrics; empty: none are served
  std::optional<std::chrono::system_clock::time_point> restart_time{};  // set while the job waits for its restart
  Findings findings{};
};

struct RankFigures {
  RankView view{};
  std::optional<double> steps_per_second = std::nullopt;
  std::optional<double> own_step_seconds = std::nullopt;     // own time of recent steps, without waits for other ranks
  std::optional<double> waited_step_seconds = std::nullopt;  // the waits of these steps
  std::string delay_text{};                                  // how it delays the others; empty: it does not
  std::optional<GpuState> gpu = std::nullopt;
};

nlohmann::ordered_json status_document(const JobView& job, const std::vector<RankFigures>& ranks, std::uint64_t now,
                                       std::chrono::system_clock::time_point time);

// Returns a line on the job, one on a hang and on each rank that delays or delayed the others, and a table of its
// ranks; "" if `document` is not such a document. No line is wider than `columns`; 0: no limit.
std::string status_text(const std::string& document, std::size_t columns = 0);

// Returns "job cifar (ddprun 4711 on node0) for 62 min: train". These functions throw if it is not such a document.
std::string status_title(const nlohmann::ordered_json& document);
// The table of ranks, with the titles in the first row.
std::vector<std::vector<std::string>> status_rows(const nlohmann::ordered_json& document);
// The problems of the job: a line for a hang, then one for each rank that delays the others, then one for each that
// did.
std::vector<std::string> finding_lines(const nlohmann::ordered_json& document);

// The document as metrics for Prometheus.
enum class MetricsFormat : std::uint8_t { kOpenMetrics, kText };
std::string metrics_text(const nlohmann::ordered_json& document, MetricsFormat format);

}  // namespace launcher
