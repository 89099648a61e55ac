// Which parameters of a model form which unit. Reference: _get_managed_modules and _get_managed_states of PyTorch's
// fully_shard(), which decide the order of parameters in messages.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include <ddprun/fsdp/options.h>

#include "fsdp/core/unit_schedule.h"
#include "fsdp/unit.h"

namespace ddp::fsdp {

/// A unit and its place among the others; the first of a list is the root.
struct SelectedUnit {
  std::string name;  ///< of its modules: "blocks.3", "norm, head", "the root"
  int parent = -1;   ///< the number of the unit that contains it, which is smaller than its own; -1 for the root
  std::vector<std::string> modules{};  ///< their names; "" is the model itself
  std::vector<UnitParameter> parameters{};
};

/// Divides `model` into units, in the order of named_modules(). No unit contains the parameters `ignored`. Throws
/// std::invalid_argument, beginning with `who`, for a selector that selects nothing, modules that two selectors select,
/// a parameter of two units, and parameters that cannot be sharded.
std::vector<SelectedUnit> select_units(const torch::nn::Module& model, const std::vector<UnitSelector>& selectors,
                                       const std::vector<at::Tensor>& ignored, const std::string& who);

/// The order of the units of a model.
UnitSchedule schedule_of(const std::vector<SelectedUnit>& units);

}  // namespace ddp::fsdp
