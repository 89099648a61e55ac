// Internal: torch's own client of the job's store, for backends that need it, with waits that do not block other
// threads' calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/group/bounded_store.h"
#include "comm/group/forwarding_store.h"

namespace ddp::detail {

/// c10d::TCPStore holds a lock while it waits for a key. During the wait no other thread of the process can call it,
/// not even to set the key for which another rank waits. Therefore this class sends every wait(), and every get(),
/// which may wait, to `waits`, a client of the same store that does not block other calls. All other calls go to
/// `torch`. Throws c10d's errors: DistStoreError when a key was not set in time, DistNetworkError when the store does
/// not answer.
class TorchStore final : public ForwardingStore {
 public:
  TorchStore(c10::intrusive_ptr<c10d::Store> torch, c10::intrusive_ptr<BoundedStore> waits);

  using ForwardingStore::wait;
  c10::intrusive_ptr<c10d::Store> clone() override;
  std::vector<uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override;

 private:
  const c10::intrusive_ptr<BoundedStore> waits_;
};

}  // namespace ddp::detail
