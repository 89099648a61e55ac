// Memory that the ranks of one host share; gloo where they cannot.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

#include "comm/backends/backend_type.h"
#include "comm/backends/gloo.h"
#include "comm/backends/shm_backend.h"

namespace ddp::detail {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

constexpr int kMostRanks = 256;
constexpr const char* kTicket = "shm";
const std::string kNone = "none: ";

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

std::string get(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  store.wait({key}, timeout);
  const std::vector<uint8_t> bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::string key_of(int rank) {
  return std::string(kTicket) + "/" + std::to_string(rank);
}

// What this rank has, and why it has nothing.
struct Attempt {
  std::optional<shm::Segment> segment{};
  std::string why{};
};

Attempt attempt(const GroupPlan& plan, c10d::Store& store) {
  const bool is_first = plan.info.rank == 0;
  const std::string ticket = is_first ? "" : get(store, kTicket, plan.timeout);
  try {
    if (plan.info.world_size > kMostRanks) {
      throw std::runtime_error("it serves up to " + std::to_string(kMostRanks) + " ranks");
    }
    if (ticket.starts_with(kNone)) throw std::runtime_error(ticket.substr(kNone.size()));
    auto segment = is_first ? shm::Segment::create(plan.info.world_size) : shm::Segment::attach(ticket);
    if (is_first) put(store, kTicket, segment.ticket());
    return {.segment = std::move(segment)};
  } catch (const std::exception& error) {
    if (is_first) put(store, kTicket, kNone + error.what());
    return {.why = who(plan.info) + ": " + error.what()};
  }
}

// Python's bits for any number of ranks; all ranks need the same.
shm::Order order_of_sums() {
  const char* order = std::getenv("DDPRUN_SHM_ORDER");
  const std::string text = order == nullptr ? "" : order;
  if (text.empty() || text == "rank") return shm::Order::kByRank;
  if (text == "ring") return shm::Order::kRing;
  throw std::invalid_argument("DDPRUN_SHM_ORDER: expected 'rank' or 'ring', got '" + text + "'");
}

c10::intrusive_ptr<c10d::Backend> make_shm(const GroupPlan& plan, const Store& store) {
  const shm::Order order = order_of_sums();
  Attempt own = attempt(plan, *store);
  put(*store, key_of(plan.info.rank), own.why);
  std::string why;
  for (int rank = 0; rank < plan.info.world_size; ++rank) {
    const std::string theirs = get(*store, key_of(rank), plan.timeout);
    if (why.empty()) why = theirs;
  }
  if (!why.empty()) {
    if (plan.info.rank == 0) {
      std::fprintf(stderr, "ddprun: the ranks share no memory and use gloo: %s\n", why.c_str());
    }
    return with_checks(make_gloo(plan, store), plan, store);
  }
  own.segment->forget_ticket();
  const bool shares_processors = plan.info.world_size > shm::usable_processors();
  auto engine = shm::Engine::make(*own.segment, plan.info.rank, shares_processors);
  auto backend =
      c10::make_intrusive<ShmBackend>(plan.info.rank, plan.info.world_size, std::move(engine), plan.timeout, order);
  return with_checks(backend, plan, store);
}

}  // namespace

BackendType shm_backend() {
  return {.traits = {.name = "shm",
                     .title = "shared memory",
                     .serves_cpu = true,
                     .receives_from_any = true,
                     .dtypes = gloo_dtypes()},
          .make = make_shm};
}

}  // namespace ddp::detail
