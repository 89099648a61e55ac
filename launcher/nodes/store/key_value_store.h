// The contents of the store, and which connections wait for which keys. Receives requests and returns replies; no
// sockets. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/nodes/store/memory_budget.h"
#include "launcher/nodes/store/reply_queue.h"
#include "launcher/nodes/store/request_parser.h"

namespace launcher::store {

class Waiters {
 public:
  explicit Waiters(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // From now on `connection` waits for the `missing` keys and for no others. Returns false when `missing` is empty.
  bool wait(ConnectionId connection, const std::vector<std::string>& missing);
  // The connection no longer waits.
  void forget(ConnectionId connection);
  // `key` now exists. Returns the connections that wait for no other key, in the order in which they began to wait;
  // they wait no longer.
  std::vector<ConnectionId> take_ready(const std::string& key);
  // `key` is available to one connection only. Returns the first connection that waits for no other key; the rest
  // continue to wait. If every connection waits for other keys, `key` counts as seen for all that wait for it.
  std::vector<ConnectionId> take_first_ready(const std::string& key);

 private:
  struct Waiter {
    std::uint64_t arrival = 0;        // its position in the order of waiting
    std::size_t missing = 0;          // keys not seen yet
    std::vector<std::string> keys{};  // all keys for which it waits or has waited
    Charge charge{};
  };

  std::shared_ptr<MemoryBudget> budget_;
  std::unordered_map<ConnectionId, Waiter> waiters_;
  std::unordered_map<std::string, std::map<std::uint64_t, ConnectionId>> waiting_for_;  // in order of arrival
  std::uint64_t next_arrival_ = 0;
};

class KeyValueStore {
 public:
  KeyValueStore() : KeyValueStore(std::make_shared<MemoryBudget>()) {}
  explicit KeyValueStore(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // Answers `request` of connection `from`; may also wake other connections. Returns an empty string, or why the
  // request cannot be answered (an addition to a value that is not a number, no room in the budget).
  [[nodiscard]] std::string handle(ConnectionId from, Request request, ReplySink& replies);
  // The connection is closed, so it no longer waits.
  void forget(ConnectionId connection) { waiters_.forget(connection); }
  std::size_t size() const { return values_.size(); }
  // The value of `key`, or null.
  Value find(const std::string& key) const;
  void set(const std::string& key, std::string value, ReplySink& replies);

 private:
  // A value counts against the budget as long as a reply that is not sent yet shares it.
  struct ChargedValue {
    std::string bytes;
    Charge charge{};
  };
  struct Entry {
    std::shared_ptr<ChargedValue> value{};
    Charge key_charge{};
  };
  struct Queue {
    std::deque<Value> values{};
    Charge key_charge{};
  };
  static Value share(const std::shared_ptr<ChargedValue>& value);
  std::shared_ptr<ChargedValue> charged(std::string bytes) const;
  Charge charge_key(const std::string& key) const;
  bool has_room_for(const Request& request) const;
  bool is_ready(const std::string& key) const;
  void put(const std::string& key, std::string value);
  std::string count(const std::string& key, std::int64_t increment, std::int64_t& sum);
  void wake(const std::vector<ConnectionId>& connections, ReplySink& replies);

  struct Call {
    ConnectionId from;
    Request& request;
    ReplySink& replies;
    const std::string& key() const { return request.keys.front(); }
  };
  // Each returns why the request cannot be answered, as handle() does.
  using Operation = std::string (KeyValueStore::*)(Call&);
  struct Operations;
  std::string validate(Call& call);
  std::string ping(Call& call);
  std::string set(Call& call);
  std::string compare_set(Call& call);
  std::string get(Call& call);
  std::string add(Call& call);
  std::string check(Call& call);
  std::string wait(Call& call);
  std::string cancel_wait(Call& call);
  std::string count_keys(Call& call);
  std::string remove(Call& call);
  std::string append(Call& call);
  std::string multi_get(Call& call);
  std::string multi_set(Call& call);
  std::string push_to_queue(Call& call);
  std::string pop_from_queue(Call& call);
  std::string queue_length(Call& call);
  std::string list_keys(Call& call);
  std::string barrier(Call& call);

  std::shared_ptr<MemoryBudget> budget_;
  std::unordered_map<std::string, Entry> values_;
  std::weak_ptr<const std::string>
      listed_keys_;  // the reply with all keys, while it is being sent and no key has changed
  std::unordered_map<std::string, Queue> queues_;
  Waiters waiters_{budget_};
};

}  // namespace launcher::store
