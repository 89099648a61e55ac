// A running job as others see it: reports when it hangs, tells who asks, and keeps what its last collectives were.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/outcome/job_end.h"
#include "launcher/plan/log_layout.h"
#include "launcher/plan/options.h"
#include "launcher/processes/supervisor.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/messages.h"
#include "launcher/watch/hang_watch.h"
#include "launcher/watch/metrics_server.h"
#include "launcher/watch/status_document.h"
#include "launcher/watch/status_server.h"

namespace launcher {

class JobWatch {
 public:
  // All references must outlive this. Throws LaunchError when the address for metrics cannot be had.
  JobWatch(EventLoop& loop, Messages& messages, const Options& options, const LogLayout& layout,
           const std::string& run_id, pid_t guardian);

  // The ranks of an attempt have been started. `supervisor` must outlive it, `ports` are those of its store.
  void begin_attempt(Supervisor& supervisor, std::vector<std::uint16_t> ports, int attempt, int world_size);
  // They are gone. When one failed, writes the flight records and adds to `end` where the ranks' calls differ.
  void end_attempt(JobEnd& end);

 private:
  bool is_at_store(pid_t pid) const;
  void on_hang(const Verdict& verdict, const std::vector<RankView>& views);
  void keep_flight_records(const std::vector<RankView>& views);
  nlohmann::ordered_json document() const;

  EventLoop& loop_;
  Messages& messages_;
  const Options& options_;
  const LogLayout& layout_;
  JobView job_;
  bool has_record_ = false;           // of the hang that ends the attempt
  Supervisor* supervisor_ = nullptr;  // null between attempts
  std::vector<std::uint16_t> ports_;
  std::optional<HangWatch> hang_watch_;
  std::optional<StatusServer> status_;
  std::optional<MetricsServer> metrics_;
};

}  // namespace launcher
