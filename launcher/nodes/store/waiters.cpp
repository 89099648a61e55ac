#include "launcher/nodes/store/waiters.h"

#include <algorithm>

namespace launcher::store {

bool Waiters::wait(ConnectionId connection, const std::vector<std::string>& missing) {
  forget(connection);
  Waiter waiter{.arrival = next_arrival_++};
  std::size_t bytes = 0;
  for (const std::string& key : missing) {
    if (!waiting_for_[key].emplace(waiter.arrival, connection).second) continue;  // named twice
    waiter.keys.push_back(key);
    bytes += 2 * (key.size() + kEntryBytes);
  }
  if (waiter.keys.empty()) return false;
  waiter.charge = Charge(budget_, bytes);
  waiter.missing = waiter.keys.size();
  waiters_[connection] = std::move(waiter);
  return true;
}

void Waiters::forget(ConnectionId connection) {
  const auto found = waiters_.find(connection);
  if (found == waiters_.end()) return;
  for (const std::string& key : found->second.keys) {
    const auto waiting = waiting_for_.find(key);
    if (waiting == waiting_for_.end()) continue;
    waiting->second.erase(found->second.arrival);
    if (waiting->second.empty()) waiting_for_.erase(waiting);
  }
  waiters_.erase(found);
}

std::vector<ConnectionId> Waiters::take_ready(const std::string& key) {
  std::vector<ConnectionId> ready;
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return ready;
  const auto waiting = std::move(found->second);
  waiting_for_.erase(found);
  for (const auto& [arrival, connection] : waiting) {
    const auto waiter = waiters_.find(connection);
    if (--waiter->second.missing != 0) continue;
    waiters_.erase(waiter);
    ready.push_back(connection);
  }
  return ready;
}

std::vector<ConnectionId> Waiters::take_first_ready(const std::string& key) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return {};
  const auto only_this = std::find_if(found->second.begin(), found->second.end(),
                                      [&](const auto& entry) { return waiters_.at(entry.second).missing == 1; });
  if (only_this == found->second.end()) return take_ready(key);
  const ConnectionId connection = only_this->second;
  forget(connection);
  return {connection};
}

}  // namespace launcher::store
