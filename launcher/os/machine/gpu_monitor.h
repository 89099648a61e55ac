// The state of this machine's GPUs, once a second, from a separate process that asks the driver.
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

// What NVIDIA's driver reports about a GPU at one moment.
struct GpuState {
  std::string uuid{};
  int use_percent = 0;
  std::uint64_t memory_bytes = 0;  // used by any process
  std::uint64_t memory_total = 0;
  int clock_mhz = 0;
  int celsius = 0;
  std::uint64_t limits = 0;  // the bits of nvmlClocksEventReasons
};

class GpuMonitor {
 public:
  // `loop` must outlive this. The helper starts after a pause, so that short jobs need none.
  explicit GpuMonitor(EventLoop& loop);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // In the driver's order; empty without a driver, or before it has answered.
  const std::vector<GpuState>& gpus() const { return gpus_; }
  // The GPU to which an entry of CUDA_VISIBLE_DEVICES refers: a number, a UUID or the beginning of one.
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

// Parses a line of the helper. Pure.
std::optional<GpuState> parse_gpu_state(const std::string& line);

}  // namespace launcher
