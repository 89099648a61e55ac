#include "amp/amp_state.h"

#include <stdexcept>
#include <utility>

namespace ddp::amp::detail {

OptimizerRecord& AmpState::record_of(const torch::optim::Optimizer& optimizer) const {
  for (const auto& record : records) {
    if (&record->optimizer() == &optimizer) return *record;
  }
  throw std::invalid_argument(rank +
                              "amp: this optimizer was not initialized: model and optimizer must be passed to "
                              "amp.initialize before scale_loss() and step()");
}

void AmpState::throw_failure() {
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

void before_forward(const AmpState& state) {
  for (const auto& record : state.records) record->update_model();
}

}  // namespace ddp::amp::detail
