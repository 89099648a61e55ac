// Internal: lets ranks ask each other where they are, at any time, also while all of them wait in a collective.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/core/call_log.h"
#include "comm/group/bounded_store.h"

namespace ddp::detail {

/// Finds out which collective each rank has called (c10d's DesyncDebugger does it for NCCL). On each rank a thread
/// waits on a separate connection until another rank asks, and then answers with the calls of this rank. It uses no CPU
/// time while it waits. Questions of this rank use the caller's store.
class DesyncDebugger {
 public:
  using Store = c10::intrusive_ptr<c10d::Store>;
  using Clock = std::chrono::steady_clock;

  /// `store` holds our keys of the job's group and serves this class alone: other calls would interrupt its wait, and
  /// stop() ends all calls over it. `bounded` is what lies under it, or null where it lies in this process's memory.
  /// `rank` is this rank's in the job.
  DesyncDebugger(Store store, c10::intrusive_ptr<BoundedStore> bounded, int rank);
  ~DesyncDebugger();
  DesyncDebugger(const DesyncDebugger&) = delete;
  DesyncDebugger& operator=(const DesyncDebugger&) = delete;

  /// The calls of a group are reported while its log lives. `group` is its path below the job's group, "" for that.
  void add(const std::string& group, const std::shared_ptr<const CallLog>& log);

  /// Asks `ranks` of the job for their calls in `group`; those that have answered within `limit`. Throws what the store
  /// throws.
  std::map<int, RankReport> ask(c10d::Store& store, const std::string& group, const std::vector<int>& ranks,
                                std::chrono::milliseconds limit) const;
  /// Tells `ranks` what was found out about a failure in `group`.
  void send_verdict(c10d::Store& store, const std::string& group, const std::vector<int>& ranks,
                    const std::string& verdict) const;
  /// What another rank has reported about a failure in `group`, or this one has found out, if any.
  std::optional<std::string> verdict_of(const std::string& group) const;
  /// This rank has found it out: its other collectives that fail now need not ask.
  void set_verdict(const std::string& group, const std::string& verdict);
  /// Held by the thread of this rank that looks for a cause: several collectives fail at once.
  std::timed_mutex& cause_search_mutex() { return cause_search_mutex_; }

  /// Something that ranks do together has failed here: when this rank gives up now, others may be the cause.
  void note_failure();
  bool has_failed() const { return first_failure().has_value(); }
  std::optional<Clock::time_point> first_failure() const;

  /// Answers no longer.
  void stop() noexcept;

 private:
  void serve() noexcept;
  void answer(int64_t number);

  const Store store_;
  const c10::intrusive_ptr<BoundedStore> bounded_;
  const int rank_;
  std::atomic<bool> stopping_{false};
  std::timed_mutex cause_search_mutex_;
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> first_failure_;
  std::map<std::string, std::weak_ptr<const CallLog>> logs_;
  std::map<std::string, std::string> verdicts_;
  std::thread thread_;
};

}  // namespace ddp::detail
