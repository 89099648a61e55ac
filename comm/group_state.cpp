#include "comm/group_state.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/pair_exchange.h"
#include "comm/roll_call.h"
#include "comm/store_keys.h"

namespace ddp::detail {
namespace {

// Once something has failed, or this rank leaves.
constexpr auto kLongestCall = std::chrono::milliseconds(800);

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

GroupState::GroupState(Parts parts)
    : info_(parts.info),
      backends_(parts.backends),
      backend_text_(parts.backends.text()),
      device_(parts.device),
      timeout_(parts.timeout),
      job_(parts.job),
      path_(parts.path),
      members_(parts.members.empty() ? all_ranks(parts.info.world_size) : parts.members),
      parts_(std::move(parts)) {
  if (!parts_.store) return;
  job_.roll_call->add(path_, log_);
  parts_.store->set(keys::connected(info_.rank), std::string("1"));
  parts_.pair_exchange = PairExchange::make(info_, *parts_.group, *parts_.store);
}

GroupState::~GroupState() = default;

bool GroupState::is_open() const {
  const std::lock_guard lock(mutex_);
  return parts_.group != nullptr;
}

c10::intrusive_ptr<c10d::ProcessGroup> GroupState::group(const char* operation) const {
  const std::lock_guard lock(mutex_);
  if (!parts_.group) {
    throw std::runtime_error(who(info_) + ": " + operation +
                             " on a process group that was closed. Keep the ProcessGroup alive, and close it last.");
  }
  return parts_.group;
}

c10::intrusive_ptr<c10d::Store> GroupState::store() const {
  const std::lock_guard lock(mutex_);
  return parts_.store;
}

std::shared_ptr<PairExchange> GroupState::pair_exchange() const {
  const std::lock_guard lock(mutex_);
  return parts_.pair_exchange;
}

GroupState::Parts GroupState::release() {
  const std::lock_guard lock(mutex_);
  Parts released{.info = info_,
                 .backends = backends_,
                 .device = device_,
                 .timeout = timeout_,
                 .store = std::move(parts_.store),
                 .group = std::move(parts_.group),
                 .hosts_store = parts_.hosts_store,
                 .pair_exchange = std::move(parts_.pair_exchange)};
  parts_.pair_exchange.reset();
  parts_.store.reset();
  parts_.group.reset();
  return released;
}

void GroupState::hurry() const {
  if (job_.bounded) job_.bounded->set_limit(kLongestCall);
}

uint64_t GroupState::next_operation(std::string signature) {
  const std::lock_guard lock(order_);
  log_->begin(operations_, std::move(signature));
  return operations_++;
}

void GroupState::close() {
  Parts parts = release();
  if (!parts.group) return;
  constexpr auto kLongestConnect = std::chrono::seconds(30);
  const bool in_job = path_.empty();
  if (in_job) hurry();
  // Whoever is still connecting would fail when this rank's sockets close.
  if (parts.store) await_others(*parts.store, {keys::connected, keys::exited, keys::failed}, kLongestConnect);
  parts.group->shutdown();
  parts.pair_exchange.reset();
  parts.group.reset();
  if (!parts.store) return;
  if (in_job) job_.roll_call->stop();
  announce_exit(*parts.store, keys::kClosed);
  // Rank 0 may be the store's server, and NCCL's monitor threads on other ranks ask the store until they shut down:
  // they would log errors if it went away first.
  if (parts.hosts_store) await_others(*parts.store, {keys::exited, keys::failed}, kLongestConnect);
}

void GroupState::abort(bool announce) noexcept {
  try {
    Parts parts = release();
    if (!parts.group) return;
    hurry();
    if (parts.store && announce) announce_exit(*parts.store, keys::kGaveUp);
    parts.group->abort();
    // gloo's destructor waits for collectives in flight, and their peers may never come: it must not hold up the rank
    // that is giving up.
    std::thread([last = std::move(parts.group), exchange = std::move(parts.pair_exchange)] {}).detach();
    if (!parts.store || !path_.empty()) return;
    job_.roll_call->stop();
    // The others learn from the store why.
    constexpr auto kLongestFarewell = std::chrono::milliseconds(500);
    if (parts.hosts_store) await_others(*parts.store, {keys::exited, keys::failed}, kLongestFarewell);
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing can be done with it, and the first error is what matters
  }
}

// For the messages of ranks that still wait for this one. A rank that gives up because of others is no cause.
void GroupState::announce_exit(c10d::Store& store, const char* how) const {
  const bool is_victim = how == keys::kGaveUp && job_.roll_call->has_failed();
  std::string text = to_text(log_->report());
  if (!is_victim) text = std::string(how) + "\n" + text;
  try {
    store.set(is_victim ? keys::failed(info_.rank) : keys::exited(info_.rank),
              std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the store is gone, and nobody can be told
  }
}

// Until every other rank has one of the marks, or the store does not answer. Ranks that are no ddprun programs (Python)
// do not announce themselves and are not awaited.
void GroupState::await_others(c10d::Store& store, const std::vector<std::string (*)(int)>& marks,
                              std::chrono::milliseconds longest) const {
  constexpr auto kPollInterval = std::chrono::milliseconds(5);
  const auto deadline = std::chrono::steady_clock::now() + longest;
  const auto has_one = [&](int rank) {
    return std::ranges::any_of(marks, [&](const auto& mark) { return store.check({mark(rank)}); });
  };
  try {
    for (int rank = 0; rank < info_.world_size; ++rank) {
      if (rank == info_.rank || job_.roll_call->is_silent(members_[static_cast<size_t>(rank)])) continue;
      if (!store.check({keys::present(rank)})) continue;
      while (!has_one(rank) && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kPollInterval);
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the store is gone, and with it whoever hosted it
  }
}

void GroupState::set_pending_seed(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  pending_seed_ = seed;
}

std::optional<uint64_t> GroupState::take_pending_seed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(pending_seed_, std::nullopt);
}

}  // namespace ddp::detail
