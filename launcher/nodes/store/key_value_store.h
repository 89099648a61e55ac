// The store's contents and who waits for which key. Takes requests, gives replies; no sockets. Pure.
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

  // `connection` waits for `missing` keys from now on, and for nothing else. False when none is missing: no need.
  bool wait(ConnectionId connection, const std::vector<std::string>& missing);
  // It waits for nothing any more.
  void forget(ConnectionId connection);
  // `key` is there now. Those who miss nothing else wait no longer: the first of them comes first.
  std::vector<ConnectionId> take_ready(const std::string& key);
  // `key` is there for one of them only: the first who misses nothing else, or nobody; then the others know of it.
  std::vector<ConnectionId> take_first_ready(const std::string& key);

 private:
  struct Waiter {
    std::uint64_t arrival = 0;        // its place in the order of waiting
    std::size_t missing = 0;          // keys not seen yet
    std::vector<std::string> keys{};  // those it was registered for
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

  // Answers `request` of connection `from`; it may also wake other connections. Returns what is wrong with a request
  // that cannot be answered (adding to a value that is not a number, no room in the budget), else an empty string.
  [[nodiscard]] std::string handle(ConnectionId from, Request request, ReplySink& replies);
  // The connection is gone: it waits for nothing any more.
  void forget(ConnectionId connection) { waiters_.forget(connection); }
  std::size_t size() const { return values_.size(); }
  // The value of `key`, or null.
  Value find(const std::string& key) const;
  void set(const std::string& key, std::string value, ReplySink& replies);

 private:
  // The budget is charged for a value as long as a reply on its way has it, too.
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
  // Each returns what is wrong with the request, as handle() does.
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
  std::weak_ptr<const std::string> listed_keys_;  // the reply, while somebody is being sent it and no key has changed
  std::unordered_map<std::string, Queue> queues_;
  Waiters waiters_{budget_};
};

}  // namespace launcher::store
