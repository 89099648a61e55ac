#include "comm/group/store.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/core/store_address.h"
#include "comm/group/bounded_store.h"
#include "comm/group/desync_debugger.h"
#include "comm/group/failure_cause.h"
#include "comm/group/forwarding_store.h"
#include "comm/group/group_state.h"
#include "comm/group/store_keys.h"
#include "comm/group/torch_store.h"

namespace ddp::detail {
namespace {

// c10d's file store, on which a thread may wait for hours. It polls a key at growing intervals of up to a quarter of a
// second, and at once when this process sets a key.
class BackoffFileStore final : public ForwardingStore {
 public:
  explicit BackoffFileStore(c10::intrusive_ptr<c10d::Store> store) : ForwardingStore(std::move(store)) {}

  using ForwardingStore::wait;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  int64_t add(const std::string& key, int64_t value) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  void notify();

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0;
};

// c10d::FileStore at `path`, for `world_size` ranks; the last of them removes the file. Throws std::runtime_error when
// the folder does not exist (c10d would wait until the timeout), and the errors of c10d.
c10::intrusive_ptr<c10d::Store> open_file_store(const std::string& path, int world_size,
                                                std::chrono::milliseconds timeout) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw std::runtime_error("there is no folder " + folder.string() + " on this host");
  }
  if (std::filesystem::is_directory(path, error)) throw std::runtime_error("it is a folder, not a file");
  auto store = c10::make_intrusive<c10d::FileStore>(path, world_size);
  store->setTimeout(timeout);
  return store;
}

void BackoffFileStore::notify() {
  const std::lock_guard lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

c10::intrusive_ptr<c10d::Store> BackoffFileStore::clone() {
  return c10::make_intrusive<BackoffFileStore>(store());
}

void BackoffFileStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  store()->set(key, value);
  notify();
}

std::vector<uint8_t> BackoffFileStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                                  const std::vector<uint8_t>& desired) {
  auto value = store()->compareSet(key, expected, desired);
  notify();
  return value;
}

int64_t BackoffFileStore::add(const std::string& key, int64_t value) {
  const int64_t sum = store()->add(key, value);
  notify();
  return sum;
}

void BackoffFileStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  constexpr auto kMinPause = std::chrono::milliseconds(10);
  constexpr auto kMaxPause = std::chrono::milliseconds(250);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = kMinPause;
  for (;;) {
    std::unique_lock lock(mutex_);
    const uint64_t seen = changes_;
    lock.unlock();
    if (store()->check(keys)) return;
    lock.lock();
    if (std::chrono::steady_clock::now() > deadline) break;
    changed_.wait_for(lock, pause, [&] { return changes_ != seen; });
    pause = std::min(2 * pause, kMaxPause);
  }
  TORCH_CHECK_WITH(DistStoreError, false, "the keys were not set within ", timeout.count(), " ms: ", keys.front());
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown host";
  return name;
}

using Store = c10::intrusive_ptr<c10d::Store>;

[[noreturn]] void refuse_store(const RankInfo& info, bool hosted_here, const std::exception& error) {
  if (dynamic_cast<const StoreUnreachable*>(&error) != nullptr) {  // its message names the store already
    throw std::runtime_error(who(info) + ": cannot reach " + error.what());
  }
  const std::string address = info.master_addr + ":" + std::to_string(info.master_port);
  const std::string what =
      hosted_here ? "cannot run the job's store at " + address + " (address and port must be free on this host)"
                  : "cannot reach the job's store at " + address + ", which " + store_host(info) + " hosts";
  throw std::runtime_error(who(info) + ": " + what + ": " + message_of(error));
}

// torch's own client, with a server in this process if `hosted_here`.
Store connect(const RankInfo& info, bool hosted_here, std::chrono::milliseconds timeout) {
  const StoreAddress address = store_address(info);
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = hosted_here;
  options.numWorkers = static_cast<size_t>(info.world_size);
  // Clients only count themselves in. A server that runs Python waits for that count. Our own server does not: the
  // backends wait, after the ranks were compared, and can name the ranks that are missing.
  options.waitWorkers = !hosted_here;
  options.timeout = timeout;
  options.multiTenant = hosted_here;
  return c10::make_intrusive<c10d::TCPStore>(address.host, options);
}

// gloo asks the store with a timeout, but torch's client has no timeout for most answers: a store that freezes would
// block this rank forever. NCCL uses functions of the client that ours does not have.
Store connect_bounded(const RankInfo& info, std::chrono::milliseconds timeout) {
  const StoreAddress address = store_address(info);
  auto store =
      c10::make_intrusive<BoundedStore>(address.host, address.port, timeout, /*patient=*/true, store_host(info));
  if (info.agent_store || info.rank != 0) store->count_in();
  return store;
}

// A server in this process stays until the process exits. Otherwise, ranks that close their group and form another one
// could connect to a server that is closing.
void keep_until_exit(Store store) {
  static std::mutex mutex;
  static std::vector<Store> servers;
  const std::lock_guard lock(mutex);
  servers.push_back(std::move(store));
}

void claim_rank(c10d::Store& space, const RankInfo& info, const std::string& file) {
  const std::string me = host_name() + ", process " + std::to_string(getpid());
  const std::string holder = set_once(space, keys::holder(info.rank), me);
  if (holder != me) {
    throw std::runtime_error(
        who(info) + " (" + me + "): rank " + std::to_string(info.rank) + " is already taken by " + holder +
        ". Every process of the job needs its own RANK." +
        (file.empty() ? "" : " If that process belongs to an earlier job, remove the file " + file + "."));
  }
}

void compare_settings(c10d::Store& own, const RankInfo& info, const BackendMap& backends) {
  own.set(keys::present(info.rank), std::string("1"));
  const std::string expected = "WORLD_SIZE=" + std::to_string(info.world_size) + ", backend " + backends.text();
  const std::string agreed = set_once(own, keys::agreement(), expected);
  if (agreed != expected) {
    throw std::runtime_error(who(info) + ": the ranks disagree: rank " + std::to_string(info.rank) +
                             " was started with " + expected + ", the first one to arrive with " + agreed +
                             ". Give all ranks the same settings.");
  }
}

// The store for our own keys, and a second connection, on which long waits are allowed.
struct StoreConnections {
  Store first;
  Store waiting;
  c10::intrusive_ptr<BoundedStore> bounded;        // `first`, if it has timeouts
  c10::intrusive_ptr<BoundedStore> waits_bounded;  // `waiting`, if it has timeouts
};

StoreConnections stores_at(const RankInfo& info, std::chrono::milliseconds timeout) {
  const StoreAddress address = store_address(info);
  const auto connected = [&] {
    return c10::make_intrusive<BoundedStore>(address.host, address.port, timeout, /*patient=*/false, store_host(info));
  };
  const auto bounded = connected();
  const auto waiting = connected();
  return {bounded, waiting, bounded, waiting};
}

StoreConnections stores_in_file(const Store& file) {
  return {file, c10::make_intrusive<BackoffFileStore>(file), {}, {}};
}

// Registers this rank and compares its settings with those of earlier ranks.
void register_rank(JobStore& store, const RankInfo& info, const BackendMap& backends, const StoreConnections& stores,
                   const std::string& file) {
  const auto space = c10::make_intrusive<c10d::PrefixStore>(keys::space(info.restart_count), stores.first);
  claim_rank(*space, info, file);
  store.generation = space->add(keys::generation(info.rank), 1) - 1;
  store.own = c10::make_intrusive<c10d::PrefixStore>(keys::group(store.generation), space);
  compare_settings(*store.own, info, backends);
  const std::string prefix = keys::space(info.restart_count) + "/" + keys::group(store.generation);
  store.links = {.store = store.own,
                 .bounded = stores.bounded,
                 .desync_debugger = std::make_shared<DesyncDebugger>(
                     c10::make_intrusive<c10d::PrefixStore>(prefix, stores.waiting), stores.waits_bounded, info.rank)};
}

}  // namespace

std::string set_once(c10d::Store& store, const std::string& key, const std::string& value) {
  const auto held = store.compareSet(key, {}, to_bytes(value));
  return {held.begin(), held.end()};
}

std::string group_prefix(int64_t generation) {
  return generation == 0 ? "default_pg" : "default_pg#" + std::to_string(generation);
}

std::string message_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  text.resize(std::min(text.size(), text.find("\nException raised from")));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

namespace {

// When a launcher starts the ranks again it does not remove the file, so the file still has keys of the failed attempt.
JobStore join_file(const RankInfo& info, const BackendMap& backends, std::chrono::milliseconds timeout,
                   const std::string& file) {
  JobStore store;
  Store opened;
  try {
    opened = open_file_store(file, info.world_size, timeout);
    store.root = opened;
    if (info.restart_count > 0) {
      store.root = c10::make_intrusive<c10d::PrefixStore>("restart_" + std::to_string(info.restart_count),
                                                          std::move(store.root));
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(who(info) + ": cannot use the job's store, the file " + file + ": " + message_of(error));
  }
  register_rank(store, info, backends, stores_in_file(opened), file);
  return store;
}

}  // namespace

JobStore join_store(const RankInfo& info, const BackendMap& backends, std::chrono::milliseconds timeout,
                    const std::string& file) {
  JobStore store;
  if (info.world_size == 1) {
    store.root = c10::make_intrusive<c10d::HashStore>();
    return store;
  }
  if (!file.empty()) return join_file(info, backends, timeout, file);
  store.hosted_here = !info.agent_store && info.rank == 0;
  const bool needs_torch = backends.with(&BackendTraits::needs_torch_store) != nullptr;
  Store server;
  try {
    if (store.hosted_here) server = connect(info, true, timeout);
    if (needs_torch) {
      store.root = server ? server : connect(info, false, timeout);
    } else {
      store.root = connect_bounded(info, timeout);
    }
  } catch (const std::exception& error) {
    refuse_store(info, store.hosted_here, error);
  }
  try {
    register_rank(store, info, backends, stores_at(info, timeout), "");
  } catch (const StoreUnreachable& error) {
    throw std::runtime_error(who(info) + ": could not register in the store" + about_store(info, error.what()));
  }
  if (needs_torch) store.root = c10::make_intrusive<TorchStore>(std::move(store.root), store.links.bounded);
  if (server && store.generation == 0) keep_until_exit(std::move(server));
  return store;
}

std::string connect_failure_cause(const JobStore& store, const RankInfo& info) {
  std::vector<int> members(static_cast<size_t>(info.world_size));
  std::iota(members.begin(), members.end(), 0);
  std::string cause = connect_failure_cause(
      ConnectingGroup{.info = info,
                      .store = store.own,
                      .job = store.links,
                      .members = members,
                      // gloo's address of the rank, the only one of these keys that ranks with Python set.
                      .may_be_there = [&](int rank) {
                        c10d::Store& asked = store.links.bounded ? *store.links.bounded : *store.root;
                        return asked.check({group_prefix(store.generation) + "/0//cpu//0/" + std::to_string(rank)});
                      }});
  if (store.own && store.hosted_here) wait_until_failure_is_known(info, store.links);
  return cause;
}

}  // namespace ddp::detail
