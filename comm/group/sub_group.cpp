#include "comm/group/sub_group.h"

#include <poll.h>
#include <sys/syscall.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/joined.h"
#include "comm/backends/backend_types.h"
#include "comm/backends/cuda_plugin.h"
#include "comm/backends/store_wait.h"
#include "comm/core/host_identity.h"
#include "comm/group/argument_checks.h"
#include "comm/group/connect_group.h"
#include "comm/group/failure_cause.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/store_keys.h"
#include "comm/group/verify_across_ranks.h"

namespace ddp::detail {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool has_ended(int pid) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return errno == ESRCH;
  pollfd ended{.fd = process, .events = POLLIN, .revents = 0};
  const bool is_over = poll(&ended, 1, 0) > 0;
  ::close(process);
  return is_over;
}

struct MemberGone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Connects this rank to a group.
class Connection {
 public:
  Connection(const GroupHandle& parent, SubGroupPlan plan)
      : parent_(parent), plan_(std::move(plan)), info_(parent.info()) {
    GroupState& state = parent.unconnected_state();
    const auto place = std::ranges::find(plan_.ranks, parent.rank());
    info_.rank = static_cast<int>(place - plan_.ranks.begin());
    info_.world_size = static_cast<int>(plan_.ranks.size());
    info_.parent = who(parent.info());
    path_ = state.path() + keys::subgroup(plan_.number) + "/";
    for (const int rank : plan_.ranks) members_.push_back(state.members()[static_cast<size_t>(rank)]);
    if (const Store store = state.store()) {
      group_store_ = c10::make_intrusive<c10d::PrefixStore>(keys::subgroup(plan_.number), store);
    }
  }

  GroupState::Parts parts() const {
    GroupState& state = parent_.unconnected_state();
    return {.info = info_,
            .backends = plan_.backends,
            .device = parent_.device(),
            .timeout = plan_.timeout,
            .store = group_store_,
            .group = nullptr,
            .in_process = state.in_process(),
            .job = state.job(),
            .path = path_,
            .members = members_};
  }

  ConnectedGroup connect(const std::function<bool()>& is_closed) const {
    GroupState& state = parent_.state();
    const auto c10d_parent = state.group("connecting a sub-group");
    try {
      if (group_store_) {
        group_store_->set(keys::present(info_.rank), std::string("1"));
        await_members(is_closed);
      }
      // torch.distributed names groups by a counter; those of a sub-group are below its keys.
      return connect_watched({.info = info_,
                              .backends = plan_.backends,
                              .device = parent_.device(),
                              .timeout = plan_.timeout,
                              .store = c10d_parent->getStore(),
                              .name = std::to_string(plan_.number),
                              .description = "sub-group",
                              .members = members_,
                              .split = plan_.split,
                              .in_process = state.in_process()},
                             is_closed);
    } catch (const MemberGone& error) {
      throw std::runtime_error(who(info_) + ": " + plan_.subject + " (backend " + plan_.backends.text() +
                               "): " + error.what());
    } catch (const std::exception& error) {
      throw std::runtime_error(who(info_) + ": " + plan_.subject + " (backend " + plan_.backends.text() +
                               "): " + message_of(error) +
                               connect_failure_cause({.info = info_,
                                                      .store = group_store_,
                                                      .job = state.job(),
                                                      .path = path_,
                                                      .members = members_,
                                                      .may_be_there = [this](int rank) { return runs_python(rank); }}));
    }
  }

 private:
  bool runs_python(int rank) const {
    const std::vector<int> python = ranks_running_python(parent_);
    return std::ranges::find(python, plan_.ranks[static_cast<size_t>(rank)]) != python.end();
  }

  // Waits until all members have arrived. The members of a group that is connected at its first use arrive at different
  // times. A member that has closed the group, has left the job or has ended never arrives.
  void await_members(const std::function<bool()>& is_closed) const {
    constexpr milliseconds kFirst{50};
    constexpr milliseconds kMaxSlice{500};
    std::vector<std::string> keys;
    for (int rank = 0; rank < info_.world_size; ++rank) {
      if (rank != info_.rank && !runs_python(rank)) keys.push_back(keys::present(rank));
    }
    if (keys.empty()) return;
    const auto deadline = Clock::now() + plan_.timeout;
    for (milliseconds slice = kFirst; !wait_until_set(*group_store_, keys, slice);
         slice = std::min(2 * slice, kMaxSlice)) {
      if (is_closed()) throw MemberGone("the group was closed while it was being connected");
      refuse_if_any_is_gone();
      if (Clock::now() > deadline) {
        throw std::runtime_error("the ranks have not connected within " + std::to_string(plan_.timeout.count()) +
                                 " ms");
      }
    }
  }

  // While backends connect, they do not notice that a member has ended or that this rank has closed the group.
  ConnectedGroup connect_watched(const GroupPlan& group, const std::function<bool()>& is_closed) const {
    if (group.device.is_cuda()) return connect_group(group);  // the calling thread's current device matters
    constexpr milliseconds kCheckInterval{200};
    std::packaged_task<ConnectedGroup()> task([group] { return connect_group(group); });
    std::future<ConnectedGroup> connected = task.get_future();
    std::thread thread(std::move(task));
    try {
      while (connected.wait_for(kCheckInterval) != std::future_status::ready) {
        if (is_closed()) throw MemberGone("the group was closed while it was being connected");
        refuse_if_any_is_gone();
      }
    } catch (const std::exception&) {
      thread.detach();  // it ends at its own timeout
      throw;
    }
    thread.join();
    return connected.get();
  }

  void refuse_if_any_is_gone() const {
    std::vector<int> others;
    for (int rank = 0; rank < info_.world_size; ++rank) {
      if (rank != info_.rank && !runs_python(rank)) others.push_back(rank);
    }
    for (const int rank : others) refuse_if_gone(rank);
    for (const int rank : others) {
      // connect() adds to the message which ranks the other member has missed.
      if (group_store_->check({keys::failed(rank)}))
        throw std::runtime_error(name_of(rank) + " has given up connecting");
    }
  }

  void refuse_if_gone(int rank) const {
    const JobServices& job = parent_.unconnected_state().job();
    const int in_job = members_[static_cast<size_t>(rank)];
    if (group_store_->check({keys::exited(rank)})) throw MemberGone(name_of(rank) + " has closed this group");
    if (job.store->check({keys::exited(in_job)}) || job.store->check({keys::closing(in_job)})) {
      throw MemberGone(name_of(rank) + " has left the job");
    }
    refuse_if_ended(rank);
  }

  void refuse_if_ended(int rank) const {
    if (plan_.processes.empty()) return;
    const ProcessIdentity& process = plan_.processes[static_cast<size_t>(rank)];
    if (process.host != host_identity() || !has_ended(process.pid)) return;
    const JobServices& job = parent_.unconnected_state().job();
    job.store->set(keys::silent(members_[static_cast<size_t>(rank)]),
                   std::string("1"));  // other ranks then do not wait for it at the end
    throw MemberGone(name_of(rank) + ", process " + std::to_string(process.pid) + ", has ended");
  }

  // The rank's number in this group and in the parent group, such as "rank 1 (rank 3 of 4)".
  std::string name_of(int rank) const {
    return "rank " + std::to_string(rank) + " (rank " + std::to_string(plan_.ranks[static_cast<size_t>(rank)]) +
           " of " + std::to_string(parent_.size()) + ")";
  }

  const GroupHandle parent_;
  const SubGroupPlan plan_;
  RankInfo info_;
  std::string path_;
  std::vector<int> members_;  // their numbers in the job
  Store group_store_;         // our own keys of the group; null where there is no store
};

}  // namespace

std::string text_of_ranks(const std::vector<int>& ranks) {
  return std::string("(").append(joined(ranks)).append(")");
}

BackendMap sub_group_backends(const std::string& named, const std::vector<int>& ranks, const GroupHandle& parent,
                              const char* operation) {
  const BackendMap& of_parent = backends_of(parent);
  if (named.empty()) return of_parent;
  const BackendMap backends = [&] {
    try {
      return parse_backend_map(named, known_backends());
    } catch (const std::invalid_argument& error) {
      refuse(parent, operation, error.what());
    }
  }();
  const BackendTraits* exclusive = backends.with(&BackendTraits::needs_cuda);
  if (exclusive != nullptr && of_parent.with(&BackendTraits::needs_cuda) == nullptr) {
    refuse(parent, operation,
           "backend '" + exclusive->name +
               "' needs a parent group that has a GPU per rank, but the parent group's backend is '" +
               of_parent.text() + "'");
  }
  if (!can_connect(backends, static_cast<int>(ranks.size()))) {
    refuse(parent, operation,
           "backend '" + backends.text() + "' is for one rank, not for ranks " + text_of_ranks(ranks));
  }
  check_backends(backends, parent.info());
  return backends;
}

c10::intrusive_ptr<c10d::Backend> communicator_to_split(const GroupHandle& parent, const BackendMap& backends) {
  const BackendTraits* const on_devices = backends.cuda;
  const bool is_nccl = on_devices != nullptr && on_devices->needs_cuda && backends_of(parent).cuda == on_devices;
  if (!is_nccl || !parent.device().is_cuda() || c10d::debug_level() == c10d::DebugLevel::Detail) return nullptr;
  if (!ranks_running_python(parent).empty()) return nullptr;
  const auto communicator = parent.state().group("splitting a communicator")->getBackend(c10::kCUDA);
  return require_cuda(parent.info(), "NCCL").can_split(*communicator) ? communicator : nullptr;
}

void split_as_non_member(const GroupHandle& parent, c10d::Backend& communicator) {
  require_cuda(parent.info(), "NCCL").split_as_non_member(communicator, parent.device());
}

ProcessGroup make_sub_group(const GroupHandle& parent, SubGroupPlan plan, Connect when) {
  const auto connection = std::make_shared<Connection>(parent, std::move(plan));
  GroupState::Parts parts = connection->parts();
  parts.connect = [connection](const auto& is_closed) { return connection->connect(is_closed); };
  ProcessGroup group(std::make_shared<GroupState>(std::move(parts)));
  if (when == Connect::kAtOnce) static_cast<void>(group.handle().state());
  return group;
}

}  // namespace ddp::detail
