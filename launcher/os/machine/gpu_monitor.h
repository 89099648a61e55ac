// What this machine's GPUs are doing, once a second, from a process of its own that asks the driver.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

// What NVIDIA's driver says of a GPU at one moment.
struct GpuState {
  std::string uuid{};
  int use_percent = 0;
  std::uint64_t memory_bytes = 0;  // in use, by whomever
  std::uint64_t memory_total = 0;
  int clock_mhz = 0;
  int celsius = 0;
  std::uint64_t limits = 0;  // nvmlClocksEventReasons
};

class GpuMonitor {
 public:
  // `loop` must outlive this. Begins after a moment, so that short jobs never ask.
  explicit GpuMonitor(EventLoop& loop);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // In the driver's order; none without a driver, or before it has answered.
  const std::vector<GpuState>& gpus() const { return gpus_; }
  // The one that an entry of CUDA_VISIBLE_DEVICES means: a number, a UUID or the beginning of one.
  std::optional<GpuState> gpu(std::string_view entry) const;

 private:
  void begin();
  void on_text();
  void end();

  EventLoop& loop_;
  EventLoop::Timer timer_{loop_};
  pid_t helper_ = 0;
  UniqueFd reader_;
  std::string text_;
  std::vector<GpuState> gpus_;
};

// From a line of the process that asks the driver. Pure.
std::optional<GpuState> parse_gpu_state(const std::string& line);

}  // namespace launcher
