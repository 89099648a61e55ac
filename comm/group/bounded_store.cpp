#include "comm/group/bounded_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace ddp::detail {
namespace {

constexpr std::chrono::seconds kMaxGrace{10};
constexpr const char* kTooSlow = "the job's store answers too slowly";

// The key's bytes as TCPStore's clients send them.
std::string wire_key(const std::string& key) {
  return "/" + key;
}

std::vector<std::string> wire_keys(const std::vector<std::string>& keys) {
  std::vector<std::string> all;
  all.reserve(keys.size());
  for (const std::string& key : keys) all.push_back(wire_key(key));
  return all;
}

std::string_view text(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

BoundedStore::BoundedStore(std::string host, uint16_t port, std::chrono::milliseconds timeout, bool patient,
                           std::string hosted_by)
    : Store(timeout),
      host_(std::move(host)),
      port_(port),
      hosted_by_(std::move(hosted_by)),
      limit_(timeout),
      connection_(host_, port_, timeout, patient, hosted_by_) {}

std::chrono::milliseconds BoundedStore::limit() const {
  return within_budget(limit_.load(std::memory_order_relaxed));
}

std::chrono::milliseconds BoundedStore::within_budget(std::chrono::milliseconds limit) const {
  const std::lock_guard lock(mutex_);
  const auto budget = budgets_.find(std::this_thread::get_id());
  if (budget == budgets_.end()) return limit;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(budget->second - Clock::now());
  if (left.count() <= 0) throw StoreOutOfTime(kTooSlow);
  return std::min(limit, left);
}

BoundedStore::Budget::Budget(c10::intrusive_ptr<BoundedStore> store, std::chrono::milliseconds budget)
    : store_(std::move(store)) {
  if (!store_) return;
  const std::lock_guard lock(store_->mutex_);
  const auto [own, is_new] = store_->budgets_.try_emplace(std::this_thread::get_id(), Clock::time_point::max());
  outer_ = own->second;
  own->second = std::min(outer_, Clock::now() + budget);
}

BoundedStore::Budget::~Budget() {
  if (!store_) return;
  const std::lock_guard lock(store_->mutex_);
  if (outer_ == Clock::time_point::max()) {
    store_->budgets_.erase(std::this_thread::get_id());
  } else {
    store_->budgets_[std::this_thread::get_id()] = outer_;
  }
}

c10::intrusive_ptr<c10d::Store> BoundedStore::clone() {
  return c10::make_intrusive<BoundedStore>(host_, port_, limit(), /*patient=*/false, hosted_by_);
}

void BoundedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  connection_.set(wire_key(key), text(value), limit());
}

std::vector<uint8_t> BoundedStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                              const std::vector<uint8_t>& desired) {
  return to_bytes(connection_.compare_set(wire_key(key), text(expected), text(desired), limit()));
}

std::vector<uint8_t> BoundedStore::get(const std::string& key) {
  return get(key, limit());
}

std::vector<uint8_t> BoundedStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  wait({key}, timeout);
  return to_bytes(connection_.get(wire_key(key), limit()));
}

int64_t BoundedStore::add(const std::string& key, int64_t value) {
  return connection_.add(wire_key(key), value, limit());
}

bool BoundedStore::deleteKey(const std::string& key) {
  return connection_.delete_key(wire_key(key), limit()) != 0;
}

bool BoundedStore::check(const std::vector<std::string>& keys) {
  return connection_.check(wire_keys(keys), limit());
}

int64_t BoundedStore::getNumKeys() {
  return connection_.number_of_keys(limit());
}

void BoundedStore::wait(const std::vector<std::string>& keys) {
  wait(keys, limit());
}

void BoundedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  if (keys.empty()) return;
  const auto allowed = within_budget(timeout);
  // A busy store answers late. A late answer to one of many short waits is not a reason to give up.
  const auto grace = std::clamp<std::chrono::milliseconds>(limit(), StoreConnection::kGrace, kMaxGrace);
  const auto outcome = connection_.wait(wire_keys(keys), allowed, grace);
  if (outcome == StoreConnection::Wait::kTimeout && allowed < timeout) throw StoreOutOfTime(kTooSlow);
  TORCH_CHECK(outcome != StoreConnection::Wait::kTimeout, "no value for ", keys.front(), " in the job's store after ",
              timeout.count(), " ms");
  TORCH_CHECK(outcome == StoreConnection::Wait::kReady, "the wait for ", keys.front(), " was cancelled");
}

}  // namespace ddp::detail
