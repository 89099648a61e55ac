// Measurements that the checkpoint benchmarks need for comparison: the memory of this process, and a plain write.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace bench {

// Returns the kilobytes in the line `name` of /proc/self/status.
inline double memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size() + 1));
  }
  return 0;
}

// Samples how much memory this process has beyond what it had at the beginning. Pages of mapped files do not count: the
// kernel drops and reads them as it likes, also those of LibTorch's code.
class ExtraMemory {
 public:
  // The peak, in kilobytes.
  double stop() {
    sampler_.request_stop();
    sampler_.join();
    return peak_ - before_;
  }

 private:
  static double now() { return memory("RssAnon") + memory("RssShmem"); }

  double before_ = now();
  double peak_ = before_;
  std::jthread sampler_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      peak_ = std::max(peak_, now());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }};
};

// Returns the seconds of a sequential write with fsync, as in `dd bs=1M conv=fsync`.
inline double plain_write(const std::filesystem::path& path, int64_t megabytes) {
  const std::vector<char> piece(size_t{1} << 20, 'x');
  const auto begin = std::chrono::steady_clock::now();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  for (int64_t i = 0; i < megabytes; ++i) {
    if (::write(file, piece.data(), piece.size()) != static_cast<ssize_t>(piece.size())) {
      throw std::runtime_error("write failed");
    }
  }
  if (::fsync(file) != 0) throw std::runtime_error("fsync failed");
  ::close(file);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace bench
