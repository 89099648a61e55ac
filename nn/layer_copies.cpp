#include "nn/layer_copies.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace ddp::nn::detail {

GeneratorGuard::GeneratorGuard() : generator_(at::detail::getDefaultCPUGenerator()) {
  const std::lock_guard lock(generator_.mutex());
  state_ = generator_.get_state();
}

GeneratorGuard::~GeneratorGuard() {
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(state_);
}

}  // namespace ddp::nn::detail
