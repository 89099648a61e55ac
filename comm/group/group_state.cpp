#include "comm/group/group_state.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include <ddprun/comm/report.h>

#include "base/progress/own_page.h"
#include "comm/backends/all_reduce_backend.h"
#include "comm/group/desync_debugger.h"
#include "comm/group/failure_cause.h"
#include "comm/group/store_keys.h"

namespace ddp::detail {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Ranks that are threads share a process, so its progress page does not belong to one rank.
std::shared_ptr<CallLog> log_of(const GroupState::Parts& parts, const std::string& path, int leader) {
  if (parts.in_process) return std::make_shared<CallLog>();
  return std::make_shared<CallLog>(own_page().add_group(path, parts.info.rank, parts.info.world_size, leader));
}

// The group's backend for CPU tensors; null if it has none.
c10::intrusive_ptr<c10d::Backend> cpu_backend_of(c10d::ProcessGroup& group) {
  if (!group.hasBackends()) return {};
  const auto devices = group.getDeviceTypes();
  if (std::ranges::find(devices, c10::kCPU, &c10::Device::type) == devices.end()) return {};
  return group.getBackend(c10::kCPU);
}

}  // namespace

GroupState::GroupState(Parts parts)
    : info_(parts.info),
      asked_text_(parts.backends.text()),
      device_(parts.device),
      timeout_(parts.timeout),
      job_(parts.job),
      path_(parts.path),
      members_(parts.members.empty() ? all_ranks(parts.info.world_size) : parts.members),
      hosts_store_(parts.hosts_store),
      backends_(parts.backends),
      is_closed_(parts.group == nullptr && !parts.connect),
      parts_(std::move(parts)) {
  if (parts_.connect) return;
  open_log();
  serve_with({.group = parts_.group, .backends = backends_});
}

void GroupState::open_log() {
  log_ = log_of(parts_, path_, members_.front());
  if (parts_.store) job_.desync_debugger->add(path_, log_);
}

void GroupState::serve_with(ConnectedGroup connected) {
  backends_ = connected.backends;
  backend_text_ = backends_.text();
  const auto own = store();
  if (own) own->set(keys::connected(info_.rank), std::string("1"));
  if (connected.group) look_at_cpu_backend(*connected.group, own);
  // Not needed where ranks are threads: all of them end with the process.
  if (own && job_.bounded) {
    terminate_handler_.emplace([this](const UncaughtException& exception) { publish_exception(exception); });
  }
  is_connected_.store(true, std::memory_order_release);
}

void GroupState::connect_now() {
  const std::lock_guard lock(connect_mutex_);
  if (is_connected_.load(std::memory_order_relaxed)) return;
  if (connect_error_) std::rethrow_exception(connect_error_);
  decltype(Parts::connect) connect;
  {
    const std::lock_guard parts(mutex_);
    if (!log_) open_log();
    connect = parts_.connect;
  }
  if (!connect) return;  // the group is closed; later calls throw
  try {
    ConnectedGroup connected = connect([this] { return is_closed_.load(std::memory_order_acquire); });
    {
      const std::lock_guard parts(mutex_);
      if (is_closed_) return;  // another thread has closed the group since then
      parts_.group = connected.group;
      parts_.connect = nullptr;
    }
    serve_with(std::move(connected));
  } catch (...) {
    connect_error_ = std::current_exception();
    throw;
  }
}

GroupState::~GroupState() = default;

void GroupState::look_at_cpu_backend(c10d::ProcessGroup& group, const c10::intrusive_ptr<c10d::Store>& own) {
  const auto backend = cpu_backend_of(group);
  has_cpu_backend_ = backend != nullptr;
  all_reduce_backend_ = dynamic_cast<AllReduceBackend*>(backend.get());
  if (all_reduce_backend_ == nullptr) return;
  all_reduce_traits_ = all_reduce_backend_->all_reduce_traits();
  if (all_reduce_traits_.in_call) {
    kept_backend_ = backend;
    in_call_backend_ = dynamic_cast<InCallBackend*>(backend.get());
  }
  // In a group of two ranks, a rank that runs Python expects gloo's own messages.
  const bool is_of_two = all_reduce_traits_.in_wait == AllReduceTraits::InWait::kSmallFloats;
  if (is_of_two && !(own && own->check({keys::present(1 - info_.rank)}))) {
    all_reduce_traits_.in_wait = AllReduceTraits::InWait::kNone;
  }
}

bool GroupState::is_open() const {
  return !is_closed_.load(std::memory_order_acquire);
}

c10::intrusive_ptr<c10d::ProcessGroup> GroupState::group(const char* operation) const {
  const std::lock_guard lock(mutex_);
  if (!parts_.group) refuse_closed(operation);
  return parts_.group;
}

void GroupState::refuse_closed(const char* operation) const {
  throw std::runtime_error(who(info_) + ": " + operation +
                           " on a process group that was closed. Keep the ProcessGroup alive, and close it last.");
}

c10::intrusive_ptr<c10d::Store> GroupState::store() const {
  const std::lock_guard lock(mutex_);
  return parts_.store;
}

GroupState::Parts GroupState::release(bool to_close) {
  const std::lock_guard lock(mutex_);
  if (to_close && parts_.group) closing_.emplace(parts_.group);
  Parts released{.info = info_,
                 .backends = backends_,
                 .device = device_,
                 .timeout = timeout_,
                 .store = std::move(parts_.store),
                 .group = std::move(parts_.group),
                 .hosts_store = parts_.hosts_store};
  parts_.store.reset();
  parts_.group.reset();
  parts_.connect = nullptr;
  is_closed_.store(true, std::memory_order_release);
  return released;
}

c10::intrusive_ptr<c10d::ProcessGroup> GroupState::group_being_closed() const {
  const std::lock_guard lock(mutex_);
  return closing_ ? closing_->lock() : nullptr;
}

void GroupState::close() {
  Parts parts = release(/*to_close=*/true);
  if (!parts.group) {
    // The group was not used, or is being connected. Members that use it from now on need not wait for this rank.
    if (parts.store) announce(*parts.store, keys::exited(info_.rank), keys::kClosed + std::string("\n"));
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto patience = std::min<std::chrono::milliseconds>(timeout_, std::chrono::seconds(30));
  auto deadline = Clock::now() + patience;
  const auto left = [&] { return std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()); };
  const bool in_job = path_.empty();
  const progress::PhaseScope phase(progress::Phase::kClosing);
  if (in_job) limit_store_calls();
  // Closing this rank's sockets would make a rank that is still connecting fail.
  if (parts.store) wait_for_ranks(info_, job_, *parts.store, {keys::connected, keys::exited, keys::failed}, left());
  if (parts.store) announce(*parts.store, keys::closing(info_.rank), keys::kClosed + std::string("\n"));
  parts.group->shutdown();
  parts.group.reset();
  deadline = Clock::now() + patience;  // running collectives may have used up the first deadline
  if (!parts.store) return;
  if (in_job) job_.desync_debugger->stop();
  announce(*parts.store, keys::exited(info_.rank), keys::kClosed + std::string("\n"));
  // Rank 0 may host the store, and NCCL's monitor threads on other ranks use the store until they shut down. They would
  // log errors if the store closed first.
  if (parts.hosts_store) {
    wait_for_ranks(info_, job_, *parts.store, {keys::exited, keys::learned, keys::silent}, left());
  }
}

void GroupState::abort(bool announce) noexcept {
  try {
    Parts parts = release(/*to_close=*/false);
    if (!parts.group) {
      if (const auto group = group_being_closed()) group->abort();  // another thread waits in close()
      return;
    }
    limit_store_calls();
    if (parts.store && announce) announce_failure(*parts.store);
    parts.group->abort();
    // gloo's destructor waits for collectives in flight, and their peers may never arrive. So it runs in another thread
    // and does not block this rank, which is giving up.
    std::thread([last = std::move(parts.group)] {}).detach();
    if (!parts.store || !path_.empty()) return;
    job_.desync_debugger->stop();
    if (parts.hosts_store) wait_until_failure_is_known(info_, job_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing can be done with it, and the first error is what matters
  }
}

// For the messages of ranks that are still waiting for this rank.
void GroupState::announce(c10d::Store& store, const std::string& key, const std::string& how) const {
  const std::string text = how + to_text(log_ ? log_->report() : RankReport{});
  try {
    store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the store is gone, so nothing can be reported
  }
}

// A rank that gives up because other ranks have failed is not the cause of the failure.
void GroupState::announce_failure(c10d::Store& store) const {
  if (!job_.desync_debugger->has_failed())
    return announce(store, keys::exited(info_.rank), keys::kLeftOnError + std::string("\n"));
  announce(store, keys::failed(info_.rank), "");
  announce(*job_.store, keys::learned(members_[static_cast<size_t>(info_.rank)]), "");
}

// Called in the thread whose exception ends the process. Publishes what this rank was doing.
void GroupState::publish_exception(const UncaughtException& exception) {
  const auto own = store();
  if (!own) return;
  if (!exception.is_mismatch) {
    limit_store_calls();
    return announce_failure(*own);
  }
  const RankReport calls = log_->report();
  // A group without a collective in progress is not affected.
  const auto open = std::ranges::find(calls.calls, false, &CallRecord::ended);
  if (open == calls.calls.end()) return;
  const std::string text =
      who(info_) + ": another rank has called a different collective, or with different sizes: " + exception.what +
      failure_cause(*this, open->number);
  static_cast<void>(report(std::runtime_error(text)));
  if (hosts_store_) wait_until_failure_is_known(info_, job_);
}

std::vector<int> GroupState::python_ranks(const std::function<std::vector<int>()>& ask) {
  const std::lock_guard lock(query_mutex_);
  if (!python_ranks_) python_ranks_ = ask();
  return *python_ranks_;
}

std::vector<ProcessIdentity> GroupState::processes(const std::function<std::vector<ProcessIdentity>()>& ask) {
  const std::lock_guard lock(query_mutex_);
  if (!processes_) processes_ = ask();
  return *processes_;
}

void GroupState::set_pending_seed(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  pending_seed_ = seed;
}

std::optional<uint64_t> GroupState::take_pending_seed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(pending_seed_, std::nullopt);
}

const BackendMap& backends_of(const GroupHandle& group) {
  return group.state().backends();
}

const BackendTraits* backend_for(const GroupHandle& group, c10::Device device) {
  const BackendMap& backends = backends_of(group);
  if (device.is_cpu()) return backends.cpu;
  return device.is_cuda() ? backends.cuda : nullptr;
}

}  // namespace ddp::detail
