#include "comm/group_state.h"

#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/pair_exchange.h"
#include "comm/store_keys.h"

namespace ddp::detail {

GroupState::GroupState(Parts parts)
    : info_(parts.info),
      backends_(parts.backends),
      backend_text_(parts.backends.text()),
      device_(parts.device),
      timeout_(parts.timeout),
      parts_(std::move(parts)) {
  if (!parts_.store) return;
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

void GroupState::close() {
  Parts parts = release();
  if (!parts.group) return;
  // Whoever is still connecting would fail when this rank's sockets close.
  await_all(parts.store, keys::connected);
  parts.group->shutdown();
  parts.pair_exchange.reset();
  parts.group.reset();
  leave_store_last(parts.store, parts.hosts_store);
}

namespace {

// For the messages of ranks that still wait for this one.
void announce_exit(const c10::intrusive_ptr<c10d::Store>& store, int rank) noexcept {
  try {
    if (store) store->set(keys::exited(rank), std::string("1"));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the store is gone, and nobody can be told
  }
}

}  // namespace

void GroupState::abort() noexcept {
  try {
    Parts parts = release();
    if (!parts.group) return;
    announce_exit(parts.store, info_.rank);
    parts.group->abort();
    // gloo's destructor waits for collectives in flight, and their peers may never come: it must not hold up the rank
    // that is giving up.
    std::thread([last = std::move(parts.group), exchange = std::move(parts.pair_exchange)] {}).detach();
  } catch (...) {  // NOLINT(bugprone-empty-catch): nothing can be done with it, and the first error is what matters
  }
}

// Rank 0 may be the store's server, and NCCL's monitor threads on other ranks ask the store until they shut down: they
// would log errors if it went away first.
void GroupState::leave_store_last(const c10::intrusive_ptr<c10d::Store>& store, bool hosts_store) const {
  if (!store) return;
  try {
    store->set(keys::exited(info_.rank), std::string("1"));
  } catch (const std::exception&) {  // a launcher may have taken the store down already
    return;
  }
  if (hosts_store) await_all(store, keys::exited);
}

// Ranks that are no ddprun programs (Python) do not announce themselves and are not awaited.
void GroupState::await_all(const c10::intrusive_ptr<c10d::Store>& store, std::string (*key)(int)) const {
  if (!store) return;
  constexpr auto kLongestWait = std::chrono::seconds(30);
  constexpr auto kPollInterval = std::chrono::milliseconds(5);
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  try {
    for (int rank = 0; rank < info_.world_size; ++rank) {
      if (!store->check({keys::present(rank)})) continue;
      while (!store->check({key(rank)}) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPollInterval);
      }
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
