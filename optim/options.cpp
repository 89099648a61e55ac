#include <torch/serialize/archive.h>

#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "base/rank_prefix.h"
#include "ddprun/optim/optimizers.h"
#include "optim/groups.h"

namespace ddp::optim {

void require_value(bool is_valid, const char* what, double value) {
  if (is_valid && std::isfinite(value)) return;
  throw std::invalid_argument(rank_prefix() + what + ": " + number_text(value));
}

void require_betas(const std::tuple<double, double>& betas) {
  const auto [beta1, beta2] = betas;
  require_value(beta1 >= 0 && beta1 < 1, "Invalid beta parameter at index 0", beta1);
  require_value(beta2 >= 0 && beta2 < 1, "Invalid beta parameter at index 1", beta2);
}

namespace {

template <typename Options>
void check_adam(const Options& options, bool may_ascend) {
  require_value(may_ascend || options.lr() >= 0, "Invalid learning rate", options.lr());
  require_value(options.eps() >= 0, "Invalid epsilon value", options.eps());
  require_betas(options.betas());
  require_value(options.weight_decay() >= 0, "Invalid weight_decay value", options.weight_decay());
}

}  // namespace

template <typename Self, typename TorchOptions>
void FusedOptions<Self, TorchOptions>::serialize(torch::serialize::InputArchive& archive) {
  TorchOptions::serialize(archive);
  const auto flag = [&](const char* name) {
    c10::IValue value;
    return archive.try_read(name, value) && value.toBool();
  };
  maximize_ = flag("maximize");
  if constexpr (std::is_base_of_v<CapturableOption, Self>) {
    static_cast<Self&>(*this).capturable(flag("capturable"));
  }
}

template <typename Self, typename TorchOptions>
void FusedOptions<Self, TorchOptions>::serialize(torch::serialize::OutputArchive& archive) const {
  auto copy = static_cast<const Self&>(*this);
  copy.tensor_to_number();
  static_cast<TorchOptions&>(copy).TorchOptions::serialize(archive);
  archive.write("maximize", c10::IValue(maximize_));
  if constexpr (std::is_base_of_v<CapturableOption, Self>) {
    archive.write("capturable", c10::IValue(copy.capturable()));
  }
}

template class FusedOptions<SGDOptions, torch::optim::SGDOptions>;
template class FusedOptions<AdamOptions, torch::optim::AdamOptions>;
template class FusedOptions<AdamWOptions, torch::optim::AdamWOptions>;
template class FusedOptions<AdagradOptions, torch::optim::AdagradOptions>;

void check_options(const SGDOptions& options, bool may_ascend) {
  require_value(may_ascend || options.lr() >= 0, "Invalid learning rate", options.lr());
  require_value(options.momentum() >= 0, "Invalid momentum value", options.momentum());
  require_value(true, "Invalid dampening value", options.dampening());
  require_value(options.weight_decay() >= 0, "Invalid weight_decay value", options.weight_decay());
  if (options.nesterov() && (options.momentum() <= 0 || options.dampening() != 0)) {
    throw std::invalid_argument(rank_prefix() + "Nesterov momentum requires a momentum and zero dampening");
  }
}

void check_options(const AdamOptions& options, bool may_ascend) {
  check_adam(options, may_ascend);
}
void check_options(const AdamWOptions& options, bool may_ascend) {
  check_adam(options, may_ascend);
}

void check_options(const AdagradOptions& options, bool may_ascend) {
  require_value(may_ascend || options.lr() >= 0, "Invalid learning rate", options.lr());
  require_value(options.lr_decay() >= 0, "Invalid lr_decay value", options.lr_decay());
  require_value(options.weight_decay() >= 0, "Invalid weight_decay value", options.weight_decay());
  require_value(options.initial_accumulator_value() >= 0, "Invalid initial_accumulator_value value",
                options.initial_accumulator_value());
  require_value(options.eps() >= 0, "Invalid epsilon value", options.eps());
}

}  // namespace ddp::optim
