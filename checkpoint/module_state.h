// A module's state by name, as Python's state_dict() lists it, and the check that a file holds exactly that state.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace torch::nn {
class Module;
}

namespace ddp {

/// Parameters and buffers of `module` by name, detached, in the module's own memory. A wrapper's `module.` in front of
/// every name is left out.
TensorMap module_state(const torch::nn::Module& module);

/// A value from a file and the tensor that it is meant for.
struct Assignment {
  at::Tensor target;
  at::Tensor value;
};

/// Checks that `file` holds every tensor of `expected` with its shape and dtype, and nothing else but `ignored`, and
/// only then reads the values. Names in the file may all begin with `module.`; tied weights may be stored under one of
/// their names. Throws std::runtime_error listing what is missing, unexpected and different.
std::vector<Assignment> read_matching(const SafetensorsFile& file, const TensorMap& expected,
                                      const std::set<std::string>& ignored);

/// Copies every value into its target, on the target's device.
void assign(const std::vector<Assignment>& assignments);

}  // namespace ddp
