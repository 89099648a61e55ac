#include <ATen/core/grad_mode.h>

#include <exception>
#include <utility>

#include "amp/amp_state.h"
#include "amp/unscale.h"
#include "ddprun/amp/amp.h"

namespace ddp::amp {

ScaledLoss::ScaledLoss(std::shared_ptr<detail::AmpState> state, const at::Tensor& loss,
                       std::vector<detail::OptimizerRecord*> records, const ScaleLossOptions& options)
    : state_(std::move(state)),
      records_(std::move(records)),
      options_(options),
      exceptions_at_construction_(std::uncaught_exceptions()) {
  if (!state_->properties.enabled) {
    loss_ = loss;
    pass_through_ = true;
    return;
  }
  auto& scaler = state_->scalers[static_cast<size_t>(options_.loss_id)];
  loss_ = scaler.apply(loss);
  pass_through_ = !state_->properties.master_weights && scaler.is_one();
  if (pass_through_) return;
  for (detail::OptimizerRecord* record : records_) {
    record->begin_training();
    record->prepare_backward();
  }
}

ScaledLoss::~ScaledLoss() {
  if (finished_ || pass_through_) return;
  if (std::uncaught_exceptions() > exceptions_at_construction_) {
    for (detail::OptimizerRecord* record : records_) record->abandon_backward();
    return;
  }
  try {
    finish();
  } catch (...) {
    state_->failure = std::current_exception();
  }
}

void ScaledLoss::finish() {
  if (finished_ || pass_through_) return;
  finished_ = true;
  if (options_.delay_unscale) {
    for (detail::OptimizerRecord* record : records_) record->keep_scaled_gradients();
    return;
  }
  const at::NoGradGuard no_grad;
  const auto id = static_cast<size_t>(options_.loss_id);
  auto& scaler = state_->scalers[id];
  const at::Tensor inverse = scaler.inverse(loss_.device());
  std::vector<at::Tensor> found_infs;
  for (detail::OptimizerRecord* record : records_) {
    for (at::Tensor& found : record->finish_backward(inverse)) found_infs.push_back(std::move(found));
  }
  if (!scaler.is_dynamic()) return scaler.update({});  // with a static scale, no step is skipped
  at::Tensor overflow = detail::combine(found_infs, inverse.device());
  for (detail::OptimizerRecord* record : records_) record->note(overflow);
  if (at::Tensor& earlier = state_->unreported[id]; earlier.defined()) {
    overflow = overflow.add(earlier);
    earlier.reset();
  }
  if (options_.delay_overflow_check) {
    state_->unreported[id] = overflow;
  } else {
    scaler.update(overflow);
  }
}

}  // namespace ddp::amp
