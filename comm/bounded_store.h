// Internal: the job's store for our own keys, as c10d's interface, over a connection that keeps to its timeout.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "comm/c10d_compat.h"
#include "comm/store_connection.h"

namespace ddp::detail {

/// Keys and values are those of c10d::TCPStore on the same host and port. Every call returns or throws
/// StoreUnreachable within the limit, at first the timeout; wait() throws c10::Error at its own.
class BoundedStore final : public c10d::Store {
 public:
  BoundedStore(std::string host, uint16_t port, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  /// Waits for the key, as TCPStore does.
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

  /// From now on for every call, in any thread.
  void set_limit(std::chrono::milliseconds limit) { limit_.store(limit, std::memory_order_relaxed); }

  /// Ends every wait() under way; the store is of no use afterwards.
  void interrupt() noexcept { connection_.interrupt(); }

 private:
  std::chrono::milliseconds limit() const { return limit_.load(std::memory_order_relaxed); }

  const std::string host_;
  const uint16_t port_;
  std::atomic<std::chrono::milliseconds> limit_;
  StoreConnection connection_;
};

}  // namespace ddp::detail
