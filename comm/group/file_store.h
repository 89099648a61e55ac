// Internal: the job's store in a file that all ranks can reach, as c10d's interface.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/backends/c10d_compat.h"
#include "comm/group/forwarding_store.h"

namespace ddp::detail {

/// c10d::FileStore at `path`, for `world_size` ranks; the last of them removes the file. Throws std::runtime_error when
/// there is no such folder, or what c10d throws.
c10::intrusive_ptr<c10d::Store> open_file_store(const std::string& path, int world_size,
                                                std::chrono::milliseconds timeout);

/// The same store, which a thread may wait on for hours: it looks ever more seldom whether a key has come, four times a
/// second at last, and at once when this process sets one.
class BackoffFileStore final : public ForwardingStore {
 public:
  explicit BackoffFileStore(c10::intrusive_ptr<c10d::Store> store) : ForwardingStore(std::move(store)) {}

  using ForwardingStore::wait;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  int64_t add(const std::string& key, int64_t value) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  void notify();

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0;
};

}  // namespace ddp::detail
