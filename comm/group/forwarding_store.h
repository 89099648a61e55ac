// Internal: a store that passes every call on to another one, as the base of stores that change some of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

class ForwardingStore : public c10d::Store {
 public:
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  /// With getTimeout().
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 protected:
  explicit ForwardingStore(c10::intrusive_ptr<c10d::Store> store);

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace ddp::detail
