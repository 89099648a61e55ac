// The store's contents and who waits for which key. Takes requests, gives replies; no sockets. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/store/memory_budget.h"
#include "launcher/store/request_parser.h"

namespace launcher::store {

using ConnectionId = std::uint64_t;
// Values are shared with the replies that carry them, so a slow reader costs no copy.
using Value = std::shared_ptr<const std::string>;

// What the store says to a connection.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void send_u8(ConnectionId to, std::uint8_t value) = 0;
  virtual void send_u32(ConnectionId to, std::uint32_t value) = 0;
  virtual void send_i64(ConnectionId to, std::int64_t value) = 0;
  virtual void send_bytes(ConnectionId to, const Value& value) = 0;  // u64 length, bytes
  virtual void send_raw(ConnectionId to, const Value& bytes) = 0;    // as they are
};

class KeyValueStore {
 public:
  KeyValueStore() : KeyValueStore(std::make_shared<MemoryBudget>()) {}
  explicit KeyValueStore(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  // Answers `request` of connection `from`; it may also wake other connections. Returns what is wrong with a request
  // that cannot be answered (adding to a value that is no number, no room in the budget), else an empty string.
  [[nodiscard]] std::string handle(ConnectionId from, Request request, ReplySink& replies);
  // The connection is gone: it waits for nothing any more.
  void forget(ConnectionId connection);
  std::size_t size() const { return values_.size(); }
  // The value of `key`, null when there is none.
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
  struct Waiter {
    std::uint64_t arrival = 0;        // its place in the order of waiting
    std::size_t missing = 0;          // keys not seen yet
    std::vector<std::string> keys{};  // those it was registered for
    Charge charge{};
  };
  static Value share(const std::shared_ptr<ChargedValue>& value);
  std::shared_ptr<ChargedValue> charged(std::string bytes) const;
  Charge charge_key(const std::string& key) const;
  bool has_room_for(const Request& request) const;
  void put(const std::string& key, std::string value);
  bool list_keys(ConnectionId to, ReplySink& replies);

  bool is_ready(const std::string& key) const;
  std::string add(const std::string& key, std::int64_t increment, std::int64_t& sum);
  void append(const std::string& key, const std::string& bytes, ReplySink& replies);
  void wait_for(ConnectionId from, const std::vector<std::string>& keys);
  void wake_all(const std::string& key, ReplySink& replies);
  void wake_one(const std::string& key, ReplySink& replies);

  std::shared_ptr<MemoryBudget> budget_;
  std::unordered_map<std::string, Entry> values_;
  std::weak_ptr<const std::string> listed_keys_;  // the reply, while somebody is being sent it and no key has changed
  std::unordered_map<std::string, Queue> queues_;
  std::unordered_map<ConnectionId, Waiter> waiters_;
  std::unordered_map<std::string, std::map<std::uint64_t, ConnectionId>> waiting_for_;  // in order of arrival
  std::uint64_t next_arrival_ = 0;
};

}  // namespace launcher::store
