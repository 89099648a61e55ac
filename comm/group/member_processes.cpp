#include "comm/group/member_processes.h"

#include <unistd.h>

#include <sstream>
#include <stdexcept>

#include "comm/core/host_identity.h"
#include "comm/group/bounded_store.h"
#include "comm/group/group_state.h"
#include "comm/group/store.h"
#include "comm/group/store_keys.h"
#include "comm/group/verify_across_ranks.h"

namespace ddp::detail {
namespace {

// Each process has a line: "<process> <host>".
std::vector<ProcessIdentity> parse(const std::string& text) {
  std::vector<ProcessIdentity> processes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' ');
    processes.push_back({.host = line.substr(blank + 1), .pid = std::stoi(line.substr(0, blank))});
  }
  return processes;
}

std::string awaited(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  store.wait({key}, timeout);
  return get_text(store, key);
}

std::vector<ProcessIdentity> exchange(const GroupHandle& group, c10d::Store& store, std::chrono::milliseconds timeout) {
  const std::string own = std::to_string(getpid()) + " " + host_identity() + "\n";
  store.set(keys::process(group.rank()), to_bytes(own));
  if (group.rank() == 0) {
    std::string all;
    for (int rank = 0; rank < group.size(); ++rank) all += awaited(store, keys::process(rank), timeout);
    store.set(keys::processes(), to_bytes(all));
  }
  return parse(awaited(store, keys::processes(), timeout));
}

}  // namespace

std::vector<ProcessIdentity> member_processes(const GroupHandle& group, std::chrono::milliseconds timeout) {
  GroupState& state = group.state();
  const auto store = state.store();
  if (!store || !ranks_running_python(group).empty()) return {};
  return state.processes([&] {
    try {
      return exchange(group, *store, timeout);
    } catch (const std::exception& error) {
      throw std::runtime_error(who(group.info()) +
                               ": the ranks could not exchange their hosts through the store: " + message_of(error));
    }
  });
}

}  // namespace ddp::detail
