#include "comm/group/file_store.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace ddp::detail {

// c10d would wait for the folder until the timeout.
c10::intrusive_ptr<c10d::Store> open_file_store(const std::string& path, int world_size,
                                                std::chrono::milliseconds timeout) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw std::runtime_error("there is no folder " + folder.string() + " on this host");
  }
  if (std::filesystem::is_directory(path, error)) throw std::runtime_error("it is a folder, not a file");
  auto store = c10::make_intrusive<c10d::FileStore>(path, world_size);
  store->setTimeout(timeout);
  return store;
}

void BackoffFileStore::notify() {
  const std::lock_guard lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

c10::intrusive_ptr<c10d::Store> BackoffFileStore::clone() {
  return c10::make_intrusive<BackoffFileStore>(store());
}

void BackoffFileStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  store()->set(key, value);
  notify();
}

std::vector<uint8_t> BackoffFileStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                                  const std::vector<uint8_t>& desired) {
  auto value = store()->compareSet(key, expected, desired);
  notify();
  return value;
}

int64_t BackoffFileStore::add(const std::string& key, int64_t value) {
  const int64_t sum = store()->add(key, value);
  notify();
  return sum;
}

void BackoffFileStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  constexpr auto kShortest = std::chrono::milliseconds(10);
  constexpr auto kLongest = std::chrono::milliseconds(250);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = kShortest;
  for (;;) {
    std::unique_lock lock(mutex_);
    const uint64_t seen = changes_;
    lock.unlock();
    if (store()->check(keys)) return;
    lock.lock();
    if (std::chrono::steady_clock::now() > deadline) break;
    changed_.wait_for(lock, pause, [&] { return changes_ != seen; });
    pause = std::min(2 * pause, kLongest);
  }
  TORCH_CHECK_WITH(DistStoreError, false, "the keys were not set within ", timeout.count(), " ms: ", keys.front());
}

}  // namespace ddp::detail
