// An optimizer's groups and states from the entries of a DCP folder, nested or flattened. No LibTorch and no I/O.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

#include "checkpoint/dcp/metadata.h"
#include "checkpoint/dcp/run_layout.h"

namespace ddp::dcp {

/// The numbers of one optimizer's entries, in the folder's order.
struct OptimizerEntries {
  std::vector<size_t> groups{};
  std::vector<size_t> states{};
};

struct OptimizerParts {
  std::string groups{};                     ///< JSON, see core/saved_optimizer.h
  std::map<std::string, size_t> tensors{};  ///< entries by name: "state.fc.weight.exp_avg"
  std::map<std::string, std::string> skipped{};
};

/// `options` has the values of `entries.groups` that are read; of what is neither number, text nor list of those
/// (discarded JSON) the name goes to `skipped`, and None, JSON's null, is left out. Throws pt::FormatError for a group
/// without a list of parameters.
OptimizerParts assemble_optimizer(const FolderMetadata& metadata, const std::vector<Place>& places,
                                  const OptimizerEntries& entries, const std::map<size_t, nlohmann::json>& options);

}  // namespace ddp::dcp
