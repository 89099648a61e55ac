#include "launcher/nodes/store/key_value_store.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace launcher::store {
namespace {

using ddp::detail::store::kNotReady;
using ddp::detail::store::kReady;
using ddp::detail::store::kStopWaiting;
using ddp::detail::store::kWaitCanceled;

Value make_value(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

const Value& empty_value() {
  static const Value kEmpty = make_value("");
  return kEmpty;
}

}  // namespace

bool Waiters::wait(ConnectionId connection, const std::vector<std::string>& missing) {
  forget(connection);
  Waiter waiter{.arrival = next_arrival_++};
  std::size_t bytes = 0;
  for (const std::string& key : missing) {
    if (!waiting_for_[key].emplace(waiter.arrival, connection).second) continue;  // the same key twice in one request
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

Value KeyValueStore::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : share(found->second.value);
}

bool KeyValueStore::is_ready(const std::string& key) const {
  if (values_.contains(key)) return true;
  const auto queue = queues_.find(key);
  return queue != queues_.end() && !queue->second.values.empty();
}

// Always makes a new value, because replies that are not sent yet may share the old one.
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
  wake(waiters_.take_ready(key), replies);
}

void KeyValueStore::wake(const std::vector<ConnectionId>& connections, ReplySink& replies) {
  for (const ConnectionId connection : connections) replies.send_u8(connection, kStopWaiting);
}

// Counters are stored as decimal text, so that clients can also read and write them as values.
std::string KeyValueStore::count(const std::string& key, std::int64_t increment, std::int64_t& sum) {
  sum = 0;
  if (const Value old = find(key)) {
    const char* end = old->data() + old->size();
    const auto [stop, error] = std::from_chars(old->data(), end, sum);
    if (error != std::errc() || stop != end) return "add to a value that is not a number";
  }
  if (__builtin_add_overflow(sum, increment, &sum)) return "add beyond 64 bits";
  return "";
}

// Indexed by opcode. Operations that may need memory are refused when the store is full; reading and deleting must
// still work.
struct KeyValueStore::Operations {
  struct Handler {
    Operation answer;
    bool needs_room;
  };
  static constexpr bool kNeedsRoom = true;
  static constexpr bool kAlways = false;
  static constexpr std::array<Handler, kOpcodes> kByOpcode = {{
      {&KeyValueStore::validate, kAlways},         {&KeyValueStore::set, kNeedsRoom},
      {&KeyValueStore::compare_set, kNeedsRoom},   {&KeyValueStore::get, kAlways},
      {&KeyValueStore::add, kNeedsRoom},           {&KeyValueStore::check, kAlways},
      {&KeyValueStore::wait, kNeedsRoom},          {&KeyValueStore::count_keys, kAlways},
      {&KeyValueStore::remove, kAlways},           {&KeyValueStore::append, kNeedsRoom},
      {&KeyValueStore::multi_get, kAlways},        {&KeyValueStore::multi_set, kNeedsRoom},
      {&KeyValueStore::cancel_wait, kAlways},      {&KeyValueStore::ping, kAlways},
      {&KeyValueStore::push_to_queue, kNeedsRoom}, {&KeyValueStore::pop_from_queue, kAlways},
      {&KeyValueStore::queue_length, kAlways},     {&KeyValueStore::list_keys, kAlways},
      {&KeyValueStore::barrier, kNeedsRoom},
  }};
};

std::string KeyValueStore::handle(ConnectionId from, Request request, ReplySink& replies) {
  const Operations::Handler& operation = Operations::kByOpcode[static_cast<std::size_t>(request.opcode)];
  if (operation.needs_room && !has_room_for(request)) return budget_->full_message();
  Call call{from, request, replies};
  return (this->*operation.answer)(call);
}

bool KeyValueStore::has_room_for(const Request& request) const {
  std::size_t needed = 0;
  for (const std::string& key : request.keys) needed += key.size() + kEntryBytes;
  for (const std::string& value : request.values) needed += value.capacity() + kEntryBytes;
  return budget_->has_room(needed);
}

std::string KeyValueStore::validate(Call& /*call*/) {
  return "";
}

std::string KeyValueStore::ping(Call& call) {
  call.replies.send_u32(call.from, static_cast<std::uint32_t>(call.request.number));
  return "";
}

std::string KeyValueStore::set(Call& call) {
  set(call.key(), std::move(call.request.values[0]), call.replies);
  return "";
}

std::string KeyValueStore::compare_set(Call& call) {
  auto& expected = call.request.values[0];
  const Value old = find(call.key());
  if (old ? *old == expected : expected.empty()) {
    set(call.key(), std::move(call.request.values[1]), call.replies);
    call.replies.send_bytes(call.from, find(call.key()));
  } else {
    // If the key does not exist, torch's server answers with the expected value, and clients rely on that.
    call.replies.send_bytes(call.from, old ? old : make_value(expected));
  }
  return "";
}

std::string KeyValueStore::get(Call& call) {
  const Value value = find(call.key());
  call.replies.send_bytes(call.from, value ? value : empty_value());
  return "";
}

std::string KeyValueStore::add(Call& call) {
  std::int64_t sum = 0;
  if (std::string problem = count(call.key(), call.request.number, sum); !problem.empty()) return problem;
  set(call.key(), std::to_string(sum), call.replies);
  call.replies.send_i64(call.from, sum);
  return "";
}

std::string KeyValueStore::check(Call& call) {
  const auto& keys = call.request.keys;
  const bool ready = std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return is_ready(key); });
  call.replies.send_u8(call.from, ready ? kReady : kNotReady);
  return "";
}

std::string KeyValueStore::wait(Call& call) {
  auto& missing = call.request.keys;
  std::erase_if(missing, [&](const std::string& key) { return is_ready(key); });
  if (!waiters_.wait(call.from, missing)) call.replies.send_u8(call.from, kStopWaiting);
  return "";
}

std::string KeyValueStore::cancel_wait(Call& call) {
  forget(call.from);
  call.replies.send_u8(call.from, kWaitCanceled);
  return "";
}

std::string KeyValueStore::count_keys(Call& call) {
  call.replies.send_i64(call.from, static_cast<std::int64_t>(values_.size()));
  return "";
}

std::string KeyValueStore::remove(Call& call) {
  listed_keys_.reset();
  call.replies.send_i64(call.from, static_cast<std::int64_t>(values_.erase(call.key())));
  return "";
}

std::string KeyValueStore::append(Call& call) {
  const std::string& bytes = call.request.values[0];
  const auto found = values_.find(call.key());
  if (found != values_.end() && found->second.value->bytes.size() + bytes.size() > kMaxValueBytes) {
    return "append to a value that would be longer than the limit of " + std::to_string(kMaxValueBytes) + " bytes";
  }
  if (found == values_.end()) {
    put(call.key(), bytes);
  } else if (ChargedValue& value = *found->second.value; found->second.value.use_count() == 1) {
    value.bytes.append(bytes);  // in place: many small appends must not copy a large value each time
    value.charge.resize(value.bytes.capacity() + kEntryBytes);
  } else {
    put(call.key(), value.bytes + bytes);
  }
  wake(waiters_.take_ready(call.key()), call.replies);
  return "";
}

std::string KeyValueStore::multi_get(Call& call) {
  for (const std::string& key : call.request.keys) {
    const Value value = find(key);
    call.replies.send_bytes(call.from, value ? value : empty_value());
  }
  return "";
}

std::string KeyValueStore::multi_set(Call& call) {
  for (std::size_t i = 0; i < call.request.keys.size(); ++i) {
    set(call.request.keys[i], std::move(call.request.values[i]), call.replies);
  }
  return "";
}

// Each element of a queue can be taken only once, so only one connection is woken for it.
std::string KeyValueStore::push_to_queue(Call& call) {
  const auto [queue, is_new] = queues_.try_emplace(call.key());
  if (is_new) queue->second.key_charge = charge_key(call.key());
  queue->second.values.push_back(share(charged(std::move(call.request.values[0]))));
  wake(waiters_.take_first_ready(call.key()), call.replies);
  return "";
}

std::string KeyValueStore::pop_from_queue(Call& call) {
  const auto queue = queues_.find(call.key());
  const std::size_t length = queue == queues_.end() ? 0 : queue->second.values.size();
  call.replies.send_i64(call.from,
                        static_cast<std::int64_t>(length));  // the length before an element is taken: 0 means empty
  if (length == 0) return "";
  call.replies.send_bytes(call.from, queue->second.values.front());
  queue->second.values.pop_front();
  if (queue->second.values.empty()) queues_.erase(queue);
  return "";
}

std::string KeyValueStore::queue_length(Call& call) {
  const auto queue = queues_.find(call.key());
  call.replies.send_i64(call.from, queue == queues_.end() ? 0 : static_cast<std::int64_t>(queue->second.values.size()));
  return "";
}

// Connections that ask while no key changes share one list.
std::string KeyValueStore::list_keys(Call& call) {
  Value list = listed_keys_.lock();
  if (!list) {
    std::size_t size = sizeof(std::int64_t);
    for (const auto& entry : values_) size += sizeof(std::int64_t) + entry.first.size();
    if (!budget_->has_room(size)) return budget_->full_message();
    std::string bytes;
    bytes.reserve(size);
    append_integer(bytes, static_cast<std::int64_t>(values_.size()));
    for (const auto& entry : values_) append_text(bytes, entry.first);
    list = share(charged(std::move(bytes)));
    listed_keys_ = list;
  }
  call.replies.send_raw(call.from, list);
  return "";
}

std::string KeyValueStore::barrier(Call& call) {
  std::int64_t arrived = 0;
  if (std::string problem = count(call.key(), 1, arrived); !problem.empty()) return problem;
  put(call.key(), std::to_string(arrived));
  if (arrived >= call.request.number) {
    wake(waiters_.take_ready(call.key()), call.replies);
    call.replies.send_u8(call.from, kStopWaiting);
  } else {
    waiters_.wait(call.from, {call.key()});
  }
  return "";
}

}  // namespace launcher::store
