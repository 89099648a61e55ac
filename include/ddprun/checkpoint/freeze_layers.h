// Fine-tuning: which parameters are trained. Call these before the model is wrapped and its optimizer is made. Patterns
// are those of LoadOptions::only: `*` any text; a plain name means it and all below it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include <ddprun/comm/any_module_ref.h>

namespace ddp {

/// Stops training the parameters of `model` whose names match any of `patterns`. Returns the names; throws
/// std::invalid_argument when a pattern matches none.
std::vector<std::string> freeze_layers(AnyModuleRef model, const std::vector<std::string>& patterns);

/// Stops training all others: `freeze_all_but(net, {"fc"})` leaves the classifier. Returns the names of the frozen;
/// throws as above, and then freezes nothing.
std::vector<std::string> freeze_all_but(AnyModuleRef model, const std::vector<std::string>& patterns);

/// The parameters that are trained, for an optimizer.
std::vector<at::Tensor> trainable_parameters(AnyModuleRef model);

}  // namespace ddp
