// A module's state by name, as Python's state_dict() lists it, and the check that a file holds exactly that state.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checkpoint/stored_tensors.h"

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

/// How names of a file and of a model are brought together.
struct MatchOptions {
  bool strict = true;               ///< every name of the model must be stored, and none else
  std::vector<std::string> only{};  ///< patterns (name_pattern.h) of names to take; empty for all
  std::vector<std::string> skip{};  ///< patterns of names to leave out, on both sides
};

/// What read_matching() found.
struct MatchResult {
  std::vector<Assignment> assignments{};
  std::vector<std::string> missing{};     ///< names of the model that are not stored
  std::vector<std::string> unexpected{};  ///< stored names that the model does not have
};

/// Checks that `stored` holds every tensor of `expected` with its shape and dtype, and nothing else but `ignored`, and
/// only then reads the values. Stored names may all begin with `module.`; tied weights may be stored under one of their
/// names. Throws std::runtime_error listing what is different and, when strict, what is missing and unexpected; and
/// when nothing at all would be loaded.
MatchResult read_matching(const StoredTensors& stored, const TensorMap& expected, const std::set<std::string>& ignored,
                          const MatchOptions& options = {});

/// Copies every value into its target, on the target's device.
void assign(const std::vector<Assignment>& assignments);

}  // namespace ddp
