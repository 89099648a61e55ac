// Internal: torch's own client of the job's store, for backends that need it, with waits that exclude nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/group/bounded_store.h"

namespace ddp::detail {

/// c10d::TCPStore holds a lock while it waits for a key, and no other thread of the process can call it meanwhile, not
/// even to set the key for which another rank waits. Here every wait, and every get() with its wait, goes over `waits`,
/// a client of the same store, which makes room for other calls; all else is `torch`'s. Throws c10d's errors:
/// DistStoreError when a key has not come in time, DistNetworkError when the store does not answer.
class TorchStore final : public c10d::Store {
 public:
  TorchStore(c10::intrusive_ptr<c10d::Store> torch, c10::intrusive_ptr<BoundedStore> waits);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override;

 private:
  const c10::intrusive_ptr<c10d::Store> torch_;
  const c10::intrusive_ptr<BoundedStore> waits_;
};

}  // namespace ddp::detail
