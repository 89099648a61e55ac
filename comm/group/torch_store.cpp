#include "comm/group/torch_store.h"

#include <c10/util/Exception.h>

#include <utility>

namespace ddp::detail {
namespace {

// With the types of errors that torch's client has.
template <typename Call>
auto with_errors_of_torch(const Call& call) {
  try {
    return call();
  } catch (const StoreUnreachable& error) {
    C10_THROW_ERROR(DistNetworkError, error.what());
  } catch (const StoreOutOfTime& error) {
    C10_THROW_ERROR(DistStoreError, error.what());
  } catch (const c10::Error& error) {
    C10_THROW_ERROR(DistStoreError, error.what_without_backtrace());
  }
}

}  // namespace

TorchStore::TorchStore(c10::intrusive_ptr<c10d::Store> torch, c10::intrusive_ptr<BoundedStore> waits)
    : Store(torch->getTimeout()), torch_(std::move(torch)), waits_(std::move(waits)) {}

c10::intrusive_ptr<c10d::Store> TorchStore::clone() {
  return c10::make_intrusive<TorchStore>(torch_->clone(), waits_);
}

void TorchStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  torch_->set(key, value);
}

std::vector<uint8_t> TorchStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                            const std::vector<uint8_t>& desired) {
  return torch_->compareSet(key, expected, desired);
}

std::vector<uint8_t> TorchStore::get(const std::string& key) {
  return with_errors_of_torch([&] { return waits_->get(key, getTimeout()); });
}

int64_t TorchStore::add(const std::string& key, int64_t value) {
  return torch_->add(key, value);
}

bool TorchStore::deleteKey(const std::string& key) {
  return torch_->deleteKey(key);
}

bool TorchStore::check(const std::vector<std::string>& keys) {
  return torch_->check(keys);
}

int64_t TorchStore::getNumKeys() {
  return torch_->getNumKeys();
}

void TorchStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

void TorchStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  with_errors_of_torch([&] { waits_->wait(keys, timeout); });
}

const std::chrono::milliseconds& TorchStore::getTimeout() const noexcept {
  return torch_->getTimeout();
}

void TorchStore::setTimeout(const std::chrono::milliseconds& timeout) {
  torch_->setTimeout(timeout);
}

void TorchStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  torch_->append(key, value);
}

// The keys are there when torch's client asks for them, so that it does not wait.
std::vector<std::vector<uint8_t>> TorchStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return torch_->multiGet(keys);
}

void TorchStore::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) {
  torch_->multiSet(keys, values);
}

bool TorchStore::hasExtendedApi() const {
  return torch_->hasExtendedApi();
}

}  // namespace ddp::detail
