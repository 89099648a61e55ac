// Internal: the implementation of GroupHandle. Holds the c10d objects; never installed.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/base/rank_info.h>
#include <ddprun/comm/process_group.h>

#include "comm/backends/c10d_compat.h"
#include "comm/core/all_reduce_plan.h"
#include "comm/core/backend_map.h"
#include "comm/core/call_log.h"
#include "comm/core/terminate_handler.h"
#include "comm/group/connect_group.h"
#include "comm/group/member_processes.h"
#include "comm/group/peers.h"

namespace ddp::detail {

/// A backend per device.
const BackendMap& backends_of(const GroupHandle& group);

/// What serves tensors on `device`; null when nothing does.
const BackendTraits* backend_for(const GroupHandle& group, c10::Device device);

class AllReduceBackend;
class InCallBackend;

class GroupState {
 public:
  struct Parts {
    RankInfo info{};
    BackendMap backends{};
    c10::Device device{c10::kCPU};
    std::chrono::milliseconds timeout{};
    c10::intrusive_ptr<c10d::Store> store{};  ///< with every prefix but the ones below it; null for a single process
    c10::intrusive_ptr<c10d::ProcessGroup> group{};  ///< null for one that is closed, or connected at its first use
    /// Connects the group at its first use, in the thread that uses it; null where `group` is connected. It gives up
    /// when `is_closed` says so.
    std::function<ConnectedGroup(const std::function<bool()>& is_closed)> connect{};
    bool hosts_store = false;  ///< this process runs the store's server: it must leave last
    bool in_process = false;   ///< see GroupPlan
    JobServices job{};
    std::string path{};          ///< of the group's keys below the job's group: "" or "subgroup1/"
    std::vector<int> members{};  ///< the group's ranks in the job; empty: all
  };

  explicit GroupState(Parts parts);
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  const RankInfo& info() const { return info_; }
  const BackendMap& backends() const { return backends_; }
  /// What serves it; before it is connected what was asked for.
  const std::string& backend_text() const {
    return is_connected_.load(std::memory_order_acquire) ? backend_text_ : asked_text_;
  }
  c10::Device device() const { return device_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  bool in_process() const { return parts_.in_process; }

  bool is_open() const;
  /// Connects a group that is connected at its first use; every rank of the group must call it. Everything below but
  /// close() and abort() needs it. Throws std::runtime_error, the same again at each later use.
  void ensure_connected() {
    if (!is_connected_.load(std::memory_order_acquire)) connect_now();
  }
  /// The c10d group. Throws std::runtime_error when the group is closed; `operation` names the caller for the message.
  c10::intrusive_ptr<c10d::ProcessGroup> group(const char* operation) const;
  /// As group(), of which nothing is wanted: without its lock and count of references.
  void check_open(const char* operation) const {
    if (is_closed_.load(std::memory_order_acquire)) refuse_closed(operation);
  }
  bool has_cpu_backend() const { return has_cpu_backend_; }
  /// Its backend for CPU tensors, where that is one of ours, else null. Alive as long as group().
  AllReduceBackend* all_reduce_backend() const { return all_reduce_backend_; }
  /// The same with AllReduceTraits::in_call, else null. Alive as long as this.
  InCallBackend* in_call_backend() const { return in_call_backend_; }
  /// What that one can do for these ranks.
  const AllReduceTraits& all_reduce_traits() const { return all_reduce_traits_; }
  /// The store for our own keys; null for a single process or a closed group.
  c10::intrusive_ptr<c10d::Store> store() const;

  void close();
  /// Without `announce` nothing is reported to the other ranks: it was not this rank that gave up.
  void abort(bool announce = true) noexcept;

  /// The collectives that were called, for next_operation()'s numbers.
  CallLog& log() { return *log_; }
  /// The same, which outlives the group.
  std::shared_ptr<CallLog> shared_log() { return log_; }
  const std::string& path() const { return path_; }
  /// The group's ranks in the job.
  const std::vector<int>& members() const { return members_; }
  const JobServices& job() const { return job_; }
  /// Limits the time of all further calls to the store, because something has failed or this rank leaves.
  void limit_store_calls() const { detail::limit_store_calls(job_); }

  /// Number of the next collective, the same on all ranks since all call the same ones in the same order. `signature`
  /// is what they must have called. With log().end() when it has ended. `in_background`: the rank continues to compute
  /// during the collective.
  uint64_t next_operation(std::string_view signature, bool in_background = false) {
    return log_->begin_next(signature, in_background);
  }

  /// Number of the next comparison of the ranks through the store, which counts apart from the collectives.
  uint64_t next_comparison() { return comparisons_.fetch_add(1, std::memory_order_relaxed); }

  /// Number of the next sub-group, from 1, the same on all ranks for the same reason.
  int64_t next_subgroup() { return 1 + subgroups_.fetch_add(1, std::memory_order_relaxed); }

  /// The group's ranks that run Python, which never change: `ask` is called until it has not thrown.
  std::vector<int> python_ranks(const std::function<std::vector<int>()>& ask);

  /// The processes of the group's ranks, which never change either.
  std::vector<ProcessIdentity> processes(const std::function<std::vector<ProcessIdentity>()>& ask);

  /// Set by manual_seed(), taken once by the first DistributedDataParallel.
  void set_pending_seed(uint64_t seed);
  std::optional<uint64_t> take_pending_seed();

 private:
  [[noreturn]] void refuse_closed(const char* operation) const;
  void connect_now();
  void open_log();
  void serve_with(ConnectedGroup connected);
  Parts release(bool to_close);
  c10::intrusive_ptr<c10d::ProcessGroup> group_being_closed() const;
  void look_at_cpu_backend(c10d::ProcessGroup& group, const c10::intrusive_ptr<c10d::Store>& own);
  void announce(c10d::Store& store, const std::string& key, const std::string& how) const;
  void announce_failure(c10d::Store& store) const;
  void publish_exception(const UncaughtException& exception);

  const RankInfo info_;
  const std::string asked_text_;
  const c10::Device device_;
  const std::chrono::milliseconds timeout_;
  const JobServices job_;
  const std::string path_;
  const std::vector<int> members_;
  const bool hosts_store_;
  // Set once, before is_connected_ is.
  BackendMap backends_;
  std::string backend_text_;
  std::shared_ptr<CallLog> log_;
  c10::intrusive_ptr<c10d::Backend> kept_backend_;  // for in_call_backend_, which calls use without the group
  InCallBackend* in_call_backend_ = nullptr;
  bool has_cpu_backend_ = false;
  AllReduceBackend* all_reduce_backend_ = nullptr;
  AllReduceTraits all_reduce_traits_{};
  std::atomic<bool> is_connected_{false};
  std::mutex connect_mutex_;
  std::exception_ptr connect_error_;
  std::atomic<bool> is_closed_{false};
  mutable std::mutex mutex_;
  Parts parts_;
  std::optional<c10::weak_intrusive_ptr<c10d::ProcessGroup>> closing_;
  std::atomic<uint64_t> comparisons_{0};
  std::atomic<int64_t> subgroups_{0};
  std::optional<uint64_t> pending_seed_;
  std::mutex query_mutex_;
  std::optional<std::vector<int>> python_ranks_;
  std::optional<std::vector<ProcessIdentity>> processes_;
  std::optional<TerminateHandler> terminate_handler_;
};

}  // namespace ddp::detail
