// The devices' memory: one file in memory, mapped twice. Tensors show addresses at which nobody may read or write;
// kernels, on the devices' threads, get the other ones. So a host access ends the process with a sentence.
#pragma once

#include <cstddef>
#include <string>

namespace ddp::test::device {

class Memory {
 public:
  /// `describe` tells what lies at a shown address; it is called by a signal handler that ends the process.
  Memory(int devices, size_t bytes_each, std::string (*describe)(const void* shown));
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* shown(int device) const { return shown_ + static_cast<size_t>(device) * bytes_each_; }
  size_t bytes_each() const { return bytes_each_; }
  /// The address for kernels.
  char* real(const void* shown) const { return real_ + (static_cast<const char*>(shown) - shown_); }
  /// The device on which an address lies; -1: none.
  int device_of(const void* shown) const;

  /// Catches host accesses from now on, also after others (Catch2, for each test case) took the signal. Cheap.
  static void catch_host_accesses();

 private:
  const size_t bytes_each_;
  const size_t total_;
  char* shown_ = nullptr;
  char* real_ = nullptr;
};

}  // namespace ddp::test::device
