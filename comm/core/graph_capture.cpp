#include "comm/core/graph_capture.h"

#include <atomic>
#include <stdexcept>

namespace ddp::detail {
namespace {

// The only state that the CUDA part shares with folders that do not depend on CUDA.
std::atomic<CaptureProbe>& current_probe() {
  static std::atomic<CaptureProbe> probe{nullptr};
  return probe;
}

}  // namespace

CaptureProbe set_capture_probe(CaptureProbe probe) {
  return current_probe().exchange(probe);
}

bool is_capturing() {
  const CaptureProbe probe = current_probe().load(std::memory_order_acquire);
  return probe != nullptr && probe();
}

void refuse_capture(const std::string& what, const std::string& why) {
  if (is_capturing()) throw std::runtime_error(what + " cannot be captured in a CUDA graph: " + why);
}

}  // namespace ddp::detail
