// What of a source belongs to the model, what to which optimizer, and what else there is. No LibTorch.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <string>
#include <vector>

#include "checkpoint/tool/tensor_source.h"

namespace ddp::tool {

/// Names of what a target lacks, by what they are: "values, which need a .pt file".
using LeftOut = std::map<std::string, std::vector<std::string>>;

inline constexpr const char* kTakenNames = "values whose names are already used by other entries of the file";

struct OptimizerPart {
  std::string groups{};  ///< JSON, see saved_optimizer.h
  std::vector<RawTensor> tensors{};
};

struct Parts {
  std::vector<RawTensor> model{};
  Metadata metadata{};                                ///< the model's, which names tied weights
  std::map<std::string, OptimizerPart> optimizers{};  ///< by name; the main one's is empty
  LeftOut left_out{};
};

/// Throws std::invalid_argument when the source has no model under the usual keys, but tensors elsewhere, and, with
/// `weights_only`, when it has no model at all; std::runtime_error for a damaged source.
Parts parts_of(const TensorSource& source, bool weights_only);

/// The tied weights under their other names, each with the elements of the first.
std::vector<RawTensor> tied_weights(const Parts& parts);

/// The groups of the optimizer `name`, with what Python's schedulers keep in those of the main one.
std::string groups_of(const TensorSource& source, const std::string& name, const OptimizerPart& optimizer);

/// A JSON object: those of a .pt file or a DCP folder, a checkpoint's step, world_size and metrics, and under "values"
/// the program's own. Throws nlohmann::json::exception or std::invalid_argument when a file's JSON is damaged.
nlohmann::json plain_values(const TensorSource& source);

/// What `source` holds beside its model and optimizers. Throws what its damaged JSON makes.
LeftOut other_contents(const TensorSource& source);

/// One line for each of `left_out`: what, how many, and the first of their names, as a terminal may have them.
std::vector<std::string> describe(const LeftOut& left_out);

}  // namespace ddp::tool
