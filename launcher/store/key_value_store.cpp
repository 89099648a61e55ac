#include "launcher/store/key_value_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "launcher/store/wire_format.h"

namespace launcher::store {
namespace {

// What the containers take for a key, a value or one who waits for a key, beside the bytes.
constexpr std::size_t kEntryBytes = 128;

constexpr std::uint8_t kReady = 0;
constexpr std::uint8_t kNotReady = 1;
constexpr std::uint8_t kStopWaiting = 0;
constexpr std::uint8_t kWaitCanceled = 1;

Value make_value(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

const Value& empty_value() {
  static const Value kEmpty = make_value("");
  return kEmpty;
}

}  // namespace

Value KeyValueStore::share(const std::shared_ptr<ChargedValue>& value) {
  return {value, &value->bytes};
}

std::shared_ptr<KeyValueStore::ChargedValue> KeyValueStore::charged(std::string bytes) const {
  auto value = std::make_shared<ChargedValue>(ChargedValue{.bytes = std::move(bytes)});
  value->charge = Charge(budget_, value->bytes.capacity() + kEntryBytes);
  return value;
}

Charge KeyValueStore::charge_key(const std::string& key) const {
  return {budget_, key.size() + kEntryBytes};
}

// Reading and deleting must go on in a full store.
bool KeyValueStore::has_room_for(const Request& request) const {
  switch (request.opcode) {
    case Opcode::kSet:
    case Opcode::kCompareSet:
    case Opcode::kAdd:
    case Opcode::kWait:
    case Opcode::kAppend:
    case Opcode::kMultiSet:
    case Opcode::kQueuePush:
    case Opcode::kBarrier:
      break;
    default:
      return true;
  }
  std::size_t needed = 0;
  for (const std::string& key : request.keys) needed += key.size() + kEntryBytes;
  for (const std::string& value : request.values) needed += value.capacity() + kEntryBytes;
  return budget_->has_room(needed);
}

Value KeyValueStore::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : share(found->second.value);
}

bool KeyValueStore::is_ready(const std::string& key) const {
  if (values_.contains(key)) return true;
  const auto queue = queues_.find(key);
  return queue != queues_.end() && !queue->second.values.empty();
}

// Always a new value: replies on their way may still share the old one.
void KeyValueStore::put(const std::string& key, std::string value) {
  auto stored = charged(std::move(value));
  const auto [entry, is_new] = values_.try_emplace(key);
  entry->second.value = std::move(stored);
  if (!is_new) return;
  entry->second.key_charge = charge_key(key);
  listed_keys_.reset();
}

void KeyValueStore::set(const std::string& key, std::string value, ReplySink& replies) {
  put(key, std::move(value));
  wake_all(key, replies);
}

void KeyValueStore::append(const std::string& key, const std::string& bytes, ReplySink& replies) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    put(key, bytes);
  } else if (ChargedValue& value = *found->second.value; found->second.value.use_count() == 1) {
    value.bytes.append(bytes);  // in place: many small appends must not copy a large value each time
    value.charge.resize(value.bytes.capacity() + kEntryBytes);
  } else {
    put(key, value.bytes + bytes);
  }
  wake_all(key, replies);
}

// False when there is no room for the list. Those who ask while no key changes share one.
bool KeyValueStore::list_keys(ConnectionId to, ReplySink& replies) {
  Value list = listed_keys_.lock();
  if (!list) {
    std::size_t size = sizeof(std::int64_t);
    for (const auto& entry : values_) size += sizeof(std::int64_t) + entry.first.size();
    if (!budget_->has_room(size)) return false;
    std::string bytes;
    bytes.reserve(size);
    append_integer(bytes, static_cast<std::int64_t>(values_.size()));
    for (const auto& entry : values_) append_text(bytes, entry.first);
    list = share(charged(std::move(bytes)));
    listed_keys_ = list;
  }
  replies.send_raw(to, list);
  return true;
}

// Counters are kept as decimal text, where a client can also read and write them.
std::string KeyValueStore::add(const std::string& key, std::int64_t increment, std::int64_t& sum) {
  sum = 0;
  if (const Value old = find(key)) {
    const char* end = old->data() + old->size();
    const auto [stop, error] = std::from_chars(old->data(), end, sum);
    if (error != std::errc() || stop != end) return "add to a value that is not a number";
  }
  if (__builtin_add_overflow(sum, increment, &sum)) return "add beyond 64 bits";
  return "";
}

void KeyValueStore::wait_for(ConnectionId from, const std::vector<std::string>& keys) {
  forget(from);
  Waiter waiter{.arrival = next_arrival_++};
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    if (is_ready(key)) continue;
    if (!waiting_for_[key].emplace(waiter.arrival, from).second) continue;  // named twice
    waiter.keys.push_back(key);
    bytes += 2 * (key.size() + kEntryBytes);
  }
  waiter.charge = Charge(budget_, bytes);
  waiter.missing = waiter.keys.size();
  waiters_[from] = std::move(waiter);
}

void KeyValueStore::forget(ConnectionId connection) {
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

void KeyValueStore::wake_all(const std::string& key, ReplySink& replies) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  const auto waiting = std::move(found->second);
  waiting_for_.erase(found);
  for (const auto& [arrival, connection] : waiting) {
    const auto waiter = waiters_.find(connection);
    if (--waiter->second.missing != 0) continue;
    waiters_.erase(waiter);
    replies.send_u8(connection, kStopWaiting);
  }
}

// An element of a queue can be taken once, so one connection is woken for it: the first that misses nothing else.
void KeyValueStore::wake_one(const std::string& key, ReplySink& replies) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  const auto only_this = std::find_if(found->second.begin(), found->second.end(),
                                      [&](const auto& entry) { return waiters_.at(entry.second).missing == 1; });
  if (only_this == found->second.end()) {
    wake_all(key, replies);
    return;
  }
  const ConnectionId connection = only_this->second;
  forget(connection);
  replies.send_u8(connection, kStopWaiting);
}

std::string KeyValueStore::handle(ConnectionId from, Request request, ReplySink& replies) {
  if (!has_room_for(request)) return budget_->full_message();
  const auto key = [&]() -> const std::string& { return request.keys.front(); };
  switch (request.opcode) {
    case Opcode::kValidate:
      break;
    case Opcode::kPing:
      replies.send_u32(from, static_cast<std::uint32_t>(request.number));
      break;
    case Opcode::kSet:
      set(key(), std::move(request.values[0]), replies);
      break;
    case Opcode::kCompareSet: {
      const Value old = find(key());
      if (old ? *old == request.values[0] : request.values[0].empty()) {
        set(key(), std::move(request.values[1]), replies);
        replies.send_bytes(from, find(key()));
      } else {
        // torch's server answers with what was expected when there is no such key; clients rely on it.
        replies.send_bytes(from, old ? old : make_value(request.values[0]));
      }
      break;
    }
    case Opcode::kGet: {
      const Value value = find(key());
      replies.send_bytes(from, value ? value : empty_value());
      break;
    }
    case Opcode::kAdd: {
      std::int64_t sum = 0;
      if (std::string problem = add(key(), request.number, sum); !problem.empty()) return problem;
      set(key(), std::to_string(sum), replies);
      replies.send_i64(from, sum);
      break;
    }
    case Opcode::kCheck: {
      const bool ready = std::all_of(request.keys.begin(), request.keys.end(),
                                     [&](const std::string& name) { return is_ready(name); });
      replies.send_u8(from, ready ? kReady : kNotReady);
      break;
    }
    case Opcode::kWait:
      wait_for(from, request.keys);
      if (waiters_.at(from).missing == 0) {
        forget(from);
        replies.send_u8(from, kStopWaiting);
      }
      break;
    case Opcode::kCancelWait:
      forget(from);
      replies.send_u8(from, kWaitCanceled);
      break;
    case Opcode::kNumKeys:
      replies.send_i64(from, static_cast<std::int64_t>(values_.size()));
      break;
    case Opcode::kDelete:
      listed_keys_.reset();
      replies.send_i64(from, static_cast<std::int64_t>(values_.erase(key())));
      break;
    case Opcode::kAppend:
      append(key(), request.values[0], replies);
      break;
    case Opcode::kMultiGet:
      for (const std::string& name : request.keys) {
        const Value value = find(name);
        replies.send_bytes(from, value ? value : empty_value());
      }
      break;
    case Opcode::kMultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        set(request.keys[i], std::move(request.values[i]), replies);
      }
      break;
    case Opcode::kQueuePush: {
      const auto [queue, is_new] = queues_.try_emplace(key());
      if (is_new) queue->second.key_charge = charge_key(key());
      queue->second.values.push_back(share(charged(std::move(request.values[0]))));
      wake_one(key(), replies);
      break;
    }
    case Opcode::kQueuePop: {
      const auto queue = queues_.find(key());
      const std::size_t length = queue == queues_.end() ? 0 : queue->second.values.size();
      replies.send_i64(from, static_cast<std::int64_t>(length));  // before taking: 0 means empty
      if (length == 0) break;
      replies.send_bytes(from, queue->second.values.front());
      queue->second.values.pop_front();
      if (queue->second.values.empty()) queues_.erase(queue);
      break;
    }
    case Opcode::kQueueLen: {
      const auto queue = queues_.find(key());
      replies.send_i64(from, queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.values.size()));
      break;
    }
    case Opcode::kListKeys:
      if (!list_keys(from, replies)) return budget_->full_message();
      break;
    case Opcode::kBarrier: {
      std::int64_t arrived = 0;
      if (std::string problem = add(key(), 1, arrived); !problem.empty()) return problem;
      put(key(), std::to_string(arrived));
      if (arrived >= request.number) {
        wake_all(key(), replies);
        replies.send_u8(from, kStopWaiting);
      } else {
        forget(from);
        const std::uint64_t arrival = next_arrival_++;
        waiting_for_[key()].emplace(arrival, from);
        waiters_[from] = Waiter{
            .arrival = arrival, .missing = 1, .keys = {key()}, .charge = {budget_, 2 * (key().size() + kEntryBytes)}};
      }
      break;
    }
  }
  return "";
}

}  // namespace launcher::store
