// Measurements that the checkpoint benchmarks need for comparison: the memory of this process, and a plain write.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
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

// Resets VmHWM, so that it shows the peak memory from now on.
inline void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

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
