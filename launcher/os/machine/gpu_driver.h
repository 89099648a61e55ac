// What NVIDIA's driver reports about this machine, without linking CUDA.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace launcher {

struct GpuDriver {
  std::optional<std::vector<std::string>> gpus{};  // their UUIDs ("GPU-..."), in the driver's order; nothing: no answer
  std::string version{};                           // such as "580.95.05"; empty when it does not say
  std::string problem{};                           // why there is no answer
};

// Asks the driver's management library in a separate process: the library leaves threads that receive the program's
// signals, and it can hang or crash. Waits for at most `limit`; waking many GPUs takes seconds.
GpuDriver ask_gpu_driver(std::chrono::milliseconds limit = std::chrono::seconds(30));

}  // namespace launcher
