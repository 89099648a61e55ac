#include "comm/core/cuda_presence.h"

namespace ddp::detail {

std::string why_no_cuda(const EnvironmentLookup& lookup, const std::function<bool(const char*)>& path_exists) {
  if (lookup("DDPRUN_CUDA") == "0") return "DDPRUN_CUDA=0";
  if (lookup("DDPRUN_CUDA") == "1") return "";
  // CUDA ignores everything from the first invalid entry on, so a list that begins with -1 names no device.
  const auto visible = lookup("CUDA_VISIBLE_DEVICES");
  if (visible && (visible->empty() || visible->starts_with("-1") || *visible == "NoDevFiles")) {
    return "CUDA_VISIBLE_DEVICES='" + *visible + "' hides every GPU";
  }
  // Device nodes of the Linux driver, of WSL and of Jetson boards.
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-gpu"}) {
    if (path_exists(node)) return "";
  }
  return "no NVIDIA device node under /dev";
}

}  // namespace ddp::detail
