#include "comm/store.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/group_state.h"
#include "comm/store_keys.h"

namespace ddp::detail {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown host";
  return name;
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// Sets `key` unless it has a value; returns the value it has afterwards.
std::string set_once(c10d::Store& store, const std::string& key, const std::string& value) {
  const auto held = store.compareSet(key, {}, bytes(value));
  return {held.begin(), held.end()};
}

}  // namespace

std::string brief(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  text.resize(std::min(text.size(), text.find("\nException raised from")));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

JobStore connect_store(const RankInfo& info, std::chrono::milliseconds timeout) {
  JobStore store;
  if (info.world_size == 1) {
    store.root = c10::make_intrusive<c10d::HashStore>();
    return store;
  }
  store.hosted_here = !info.agent_store && info.rank == 0;
  c10d::TCPStoreOptions options;
  options.port = info.master_port;
  options.isServer = store.hosted_here;
  options.numWorkers = static_cast<size_t>(info.world_size);
  options.timeout = timeout;
  options.multiTenant = store.hosted_here;
  const std::string address = info.master_addr + ":" + std::to_string(info.master_port);
  try {
    store.root = c10::make_intrusive<c10d::TCPStore>(info.master_addr, options);
  } catch (const std::exception& error) {
    const std::string what = store.hosted_here ? "cannot run the job's store at " + address +
                                                     " (the address and port must be free on this host, "
                                                     "and every rank must arrive in time)"
                                               : "cannot reach the job's store at " + address +
                                                     " (is rank 0 or the launcher running there?)";
    throw std::runtime_error(who(info) + ": " + what + ": " + brief(error));
  }
  store.own = c10::make_intrusive<c10d::PrefixStore>(keys::space(info.restart_count), store.root);
  return store;
}

int64_t register_rank(const JobStore& store, const RankInfo& info, const BackendMap& backends) {
  if (!store.own) return 0;
  const std::string me = host_name() + ", process " + std::to_string(getpid());
  const std::string holder = set_once(*store.own, keys::present(info.rank), me);
  if (holder != me) {
    throw std::runtime_error(who(info) + " (" + me + "): this rank is already taken by " + holder +
                             ". Every process of the job needs a RANK of its own.");
  }
  const std::string expected = "WORLD_SIZE=" + std::to_string(info.world_size) + ", backend " + backends.text();
  const std::string agreed = set_once(*store.own, keys::agreement(), expected);
  if (agreed != expected) {
    throw std::runtime_error(who(info) + ": the ranks disagree: this one was started with " + expected +
                             ", the first one to arrive with " + agreed + ". Give all ranks the same settings.");
  }
  return store.own->add(keys::generation(info.rank), 1) - 1;
}

void claim_gpu(const JobStore& store, const RankInfo& info, const std::string& uuid) {
  if (!store.own) return;
  const std::string me = "rank " + std::to_string(info.rank);
  const std::string holder = set_once(*store.own, keys::gpu(uuid), me);
  if (holder != me) {
    throw std::runtime_error(
        who(info) + ": " + holder + " uses the same GPU (" + uuid +
        "), and NCCL needs one GPU per rank. Start fewer ranks on this node, make more GPUs visible, or "
        "use backend 'gloo' to share GPUs.");
  }
}

std::string missing_ranks(const JobStore& store, const RankInfo& info) {
  if (!store.own) return "";
  std::string missing;
  try {
    for (int rank = 0; rank < info.world_size; ++rank) {
      if (!store.own->check({keys::present(rank)})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  } catch (const std::exception&) {
    return "";
  }
  return missing.empty() ? "" : "; never arrived: rank " + missing;
}

}  // namespace ddp::detail
