#include "comm/python/python_backend.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "comm/backends/shm.h"
#include "comm/core/host_identity.h"
#include "comm/versions/sequence_numbers.h"

namespace ddp::detail {
namespace {

// Several that were started together: all have to end.
class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    for (const auto& work : works_) {
      if (auto error = work->exception()) return error;
    }
    return nullptr;
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const auto& work : works_) work->wait(timeout);
    return true;
  }
  void synchronize() override {}

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

c10::intrusive_ptr<c10d::Backend::Options> options_of(const GroupPlan& plan) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("shm", plan.timeout);
  options->group_name = plan.name;
  options->global_ranks_in_group.assign(plan.members.begin(), plan.members.end());
  return options;
}

// A name for the keys that no other group has whose ranks use the same store.
std::string prefix_of(const std::string& kind, const std::string& name, const std::vector<int>& ranks) {
  std::ostringstream prefix;
  prefix << kind << ' ' << name;
  for (const int rank : ranks) prefix << ' ' << rank;
  return prefix.str();
}

}  // namespace

PythonBackend::PythonBackend(BackendPtr connected, const GroupPlan& plan)
    : ForwardingBackend(std::move(connected)), plan_(plan), options_(options_of(plan)), process_(getpid()) {}

// The memory, the sockets and the threads are the parent's: a forked process leaves all as it is.
PythonBackend::~PythonBackend() {
  if (is_forked()) c10::raw::intrusive_ptr::incref(target().get());
}

bool PythonBackend::is_forked() const {
  return getpid() != process_;
}

c10d::Backend& PythonBackend::other() {
  if (is_forked()) {
    throw std::runtime_error(
        who(plan_.info) + ": a process that was forked from rank " + std::to_string(plan_.info.rank) + " (process " +
        std::to_string(process_) +
        ") cannot use that rank's group: call collectives in the process that called init_process_group");
  }
  return *target();
}

PythonBackend::WorkPtr PythonBackend::note(WorkPtr work) {
  if (is_coalescing_) coalesced_.push_back(work);
  return work;
}

void PythonBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  other().setTimeout(timeout);
}

void PythonBackend::abort() {
  if (!is_forked()) ForwardingBackend::abort();
}

void PythonBackend::shutdown() {
  if (!is_forked()) ForwardingBackend::shutdown();
}

void PythonBackend::startCoalescing() {
  is_coalescing_ = true;
  coalesced_.clear();
}

PythonBackend::WorkPtr PythonBackend::endCoalescing() {
  is_coalescing_ = false;
  return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
}

c10::intrusive_ptr<c10d::Backend> PythonBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const c10::intrusive_ptr<Options>& options) {
  const auto found = std::ranges::find(ranks, rank_);
  if (found == ranks.end()) return nullptr;
  GroupPlan plan = plan_;
  plan.info.parent = "rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  plan.info.rank = static_cast<int>(found - ranks.begin());
  plan.info.world_size = static_cast<int>(ranks.size());
  plan.timeout = options->timeout;
  plan.name = options->group_name;
  plan.members.clear();
  for (const int rank : ranks) {
    plan.members.push_back(plan_.members.empty() ? rank : plan_.members.at(static_cast<size_t>(rank)));
  }
  return make_python_backend(plan, c10::make_intrusive<c10d::PrefixStore>(prefix_of("split", plan.name, ranks), store));
}

c10::intrusive_ptr<c10d::Backend> PythonBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const c10::intrusive_ptr<Options>& options, const int& rank,
                                                       const int& size) {
  GroupPlan plan = plan_;
  plan.info.parent = "rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  plan.info.rank = rank;
  plan.info.world_size = size;
  plan.timeout = options->timeout;
  plan.name = options->group_name;
  plan.members.clear();
  return make_python_backend(plan, c10::make_intrusive<c10d::PrefixStore>(prefix_of("merge", plan.name, {}), store));
}

c10::intrusive_ptr<c10d::Backend> make_python_backend(const GroupPlan& plan,
                                                      const c10::intrusive_ptr<c10d::Store>& store) {
  const ShmConnection made = connect_shm(plan, store, host_identity());
  if (plan.info.rank == 0 && plan.info.world_size > 1 && !made.why_gloo.empty()) report_gloo(made.why_gloo);
  versions::begin_sequence_numbers(*made.backend);
  return c10::make_intrusive<PythonBackend>(made.backend, plan);
}

}  // namespace ddp::detail
