// What NVIDIA's driver says of a GPU at one moment.
#pragma once

#include <cstdint>
#include <string>

namespace launcher {

struct GpuState {
  std::string uuid{};
  int use_percent = 0;
  std::uint64_t memory_bytes = 0;  // in use, by whomever
  std::uint64_t memory_total = 0;
  int clock_mhz = 0;
  int celsius = 0;
  std::uint64_t limits = 0;  // nvmlClocksEventReasons
};

}  // namespace launcher
