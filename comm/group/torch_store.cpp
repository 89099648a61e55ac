#include "comm/group/torch_store.h"

#include <c10/util/Exception.h>

#include <utility>

namespace ddp::detail {
namespace {

// Throws the types of errors that torch's client throws.
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
    : ForwardingStore(std::move(torch)), waits_(std::move(waits)) {}

c10::intrusive_ptr<c10d::Store> TorchStore::clone() {
  return c10::make_intrusive<TorchStore>(store()->clone(), waits_);
}

std::vector<uint8_t> TorchStore::get(const std::string& key) {
  return with_errors_of_torch([&] { return waits_->get(key, getTimeout()); });
}

void TorchStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  with_errors_of_torch([&] { waits_->wait(keys, timeout); });
}

const std::chrono::milliseconds& TorchStore::getTimeout() const noexcept {
  return store()->getTimeout();
}

void TorchStore::setTimeout(const std::chrono::milliseconds& timeout) {
  store()->setTimeout(timeout);
}

void TorchStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  store()->append(key, value);
}

// By then the keys exist, so torch's client does not wait.
std::vector<std::vector<uint8_t>> TorchStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return store()->multiGet(keys);
}

void TorchStore::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) {
  store()->multiSet(keys, values);
}

bool TorchStore::hasExtendedApi() const {
  return store()->hasExtendedApi();
}

}  // namespace ddp::detail
