#include "comm/group/forwarding_store.h"

#include <utility>

namespace ddp::detail {

ForwardingStore::ForwardingStore(c10::intrusive_ptr<c10d::Store> store)
    : Store(store->getTimeout()), store_(std::move(store)) {}

void ForwardingStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  store_->set(key, value);
}

std::vector<uint8_t> ForwardingStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                                 const std::vector<uint8_t>& desired) {
  return store_->compareSet(key, expected, desired);
}

std::vector<uint8_t> ForwardingStore::get(const std::string& key) {
  return store_->get(key);
}

int64_t ForwardingStore::add(const std::string& key, int64_t value) {
  return store_->add(key, value);
}

bool ForwardingStore::deleteKey(const std::string& key) {
  return store_->deleteKey(key);
}

bool ForwardingStore::check(const std::vector<std::string>& keys) {
  return store_->check(keys);
}

int64_t ForwardingStore::getNumKeys() {
  return store_->getNumKeys();
}

void ForwardingStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

void ForwardingStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  store_->wait(keys, timeout);
}

}  // namespace ddp::detail
