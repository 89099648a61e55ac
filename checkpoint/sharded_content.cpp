#include "checkpoint/sharded_content.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/optim/fused_optimizer.h>

#include "base/crc32c.h"
#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/failures.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/run_content.h"
#include "checkpoint/safetensors_bytes.h"
#include "checkpoint/shards/even_share.h"

namespace ddp {
namespace {

using safetensors::quote_name;

struct Held {
  std::string part{};
  std::string name{};
  at::Tensor tensor{};
};

// Tensors of all parts, and their description by names that no two parts share.
struct HeldList {
  std::vector<Held> tensors{};
  std::vector<shards::HeldTensor> described{};

  void add(Held held, const std::optional<ShardPlace>& place) {
    const auto& tensor = held.tensor;
    const auto sizes = tensor.sizes().vec();
    shards::HeldTensor description{.name = held.part + " " + held.name,
                                   .dtype = std::string(safetensors::python_name(storable_dtype(held.name, tensor))),
                                   .shape = place ? place->whole_sizes : sizes,
                                   .box = shards::whole(sizes)};
    if (place) description.box.offsets[0] = place->first_row;
    described.push_back(std::move(description));
    tensors.push_back(std::move(held));
  }
};

struct HeldState {
  HeldList common{};   // whole tensors that every rank has, with equal values
  HeldList buffers{};  // whole tensors that every rank has; the checkpoint gets rank 0's values
  HeldList rows{};     // rows of tensors that all ranks have together
  HeldList alone{};    // whole tensors that other ranks need not have
  std::map<std::string, Metadata> metadata{};
};

std::map<std::string, ShardPlace> shards_by_name(const torch::optim::Optimizer& optimizer,
                                                 const ParameterNames& names) {
  std::map<std::string, ShardPlace> places;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (auto place = shard_place_of(parameter)) places.emplace(names.of(parameter), std::move(*place));
    }
  }
  return places;
}

// The place of the parameter whose state `name` is; none for parameters that are not shards.
const std::pair<const std::string, ShardPlace>* place_of_state(const std::map<std::string, ShardPlace>& places,
                                                               const std::string& name) {
  constexpr std::string_view kState = "state.";
  const auto dot = name.rfind('.');
  const auto found = places.find(name.substr(kState.size(), dot - kState.size()));
  return found == places.end() ? nullptr : &*found;
}

void hold_optimizer(const std::string& name, const torch::optim::Optimizer& optimizer, const TensorMap& model,
                    const std::vector<std::string>& order, HeldState& state) {
  const auto part = optimizer_file(name);
  const auto title = optimizer_title(name);
  TensorMap tensors;
  state.metadata[part][kOptimizerKey] =
      save_optimizer_state(optimizer, model, tensors, order, title, StateOf::kThisRank);
  const auto* fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer);
  const bool is_alone = fused != nullptr && fused->is_state_divided();
  const auto places = shards_by_name(optimizer, ParameterNames(model, order));
  for (const auto& [key, tensor] : tensors) {
    const auto* place = place_of_state(places, key);
    if (is_alone) {
      state.alone.add({part, key, tensor}, std::nullopt);
    } else if (place == nullptr || tensor.dim() == 0) {
      state.common.add({part, key, tensor}, std::nullopt);
    } else if (tensor.sizes() == model.at(place->first).sizes()) {
      state.rows.add({part, key, tensor}, place->second);
    } else {
      std::ostringstream text;
      text << title << " cannot be saved: its tensor " << quote_name(key) << " of shape " << tensor.sizes()
           << ", expected no dimensions or the shape of its parameter's shard, " << model.at(place->first).sizes();
      throw std::invalid_argument(text.str());
    }
  }
}

HeldState hold(const TrainingState& state) {
  HeldState held;
  const auto model = module_state(state.model);
  check_loadable(model);
  if (state.model) held.metadata[kModelFile];
  const auto buffers = buffer_names(state.model);
  for (const auto& [name, tensor] : model) {
    const auto place = shard_place_of(tensor);
    auto& list = place ? held.rows : buffers.contains(name) ? held.buffers : held.common;
    list.add({kModelFile, name, tensor}, place);
  }
  for (const auto& [name, optimizer] : optimizers_by_name(state)) {
    check_has_model(state, name);
    hold_optimizer(name, optimizer, model, names_in_order(state.model), held);
  }
  return held;
}

std::vector<shards::HeldTensor> described_in(const HeldList& first, const HeldList& second) {
  auto all = first.described;
  all.insert(all.end(), second.described.begin(), second.described.end());
  return all;
}

// Checksums of some elements of some tensors, by name. They are enough to notice ranks that train different models.
nlohmann::json checksum_sample(const HeldList& list) {
  constexpr size_t kTensors = 8;
  auto samples = nlohmann::json::array();
  const auto& tensors = list.tensors;
  const size_t stride = std::max<size_t>(1, tensors.size() / kTensors);
  for (size_t i = 0; i < tensors.size(); i += stride) {
    const auto& tensor = tensors[i].tensor;
    if (tensor.numel() == 0) continue;
    uint32_t checksum = 0;
    for (const bool is_last : {false, true}) {
      auto element = tensor.detach();
      while (element.dim() > 0) element = element.select(0, is_last ? element.size(0) - 1 : element.size(0) / 2);
      element = element.cpu();
      checksum = crc32c(element.const_data_ptr(), element.nbytes(), checksum);
    }
    samples.push_back({tensors[i].name, checksum});
  }
  return samples;
}

// What the ranks compare with each other.
nlohmann::json summary(const HeldState& held) {
  return {{"common", shards::digest(described_in(held.common, held.buffers))},
          {"common_sample", checksum_sample(held.common)},
          {"own", shards::digest(described_in(held.rows, held.alone))},
          {"own_sample", checksum_sample(held.rows)},
          {"parts", shards::weight_of_parts(held.rows.described)},
          {"wholes", shards::weight_of_wholes(held.rows.described)}};
}

// Lines such as "'fc.bias' (float32 [3])", by the tensor's name.
std::map<std::string, std::string> lines_by_name(const std::string& text) {
  std::map<std::string, std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.emplace(line.substr(0, line.rfind(" (")), line);
  return lines;
}

// Describes the first difference between the common tensors of rank `rank` and those of rank 0.
std::string first_difference(const HeldState& held, int rank, const GroupHandle& group) {
  std::ostringstream lines;
  for (const auto* list : {&held.common, &held.buffers}) {
    for (size_t i = 0; i < list->tensors.size(); ++i) {
      const auto& described = list->described[i];
      lines << quote_name(list->tensors[i].name) << " (" << described.dtype << " " << c10::IntArrayRef(described.shape)
            << ")\n";
    }
  }
  const auto all = all_gather_strings(lines.str(), group);
  const auto left = lines_by_name(all.front());
  const auto right = lines_by_name(all[static_cast<size_t>(rank)]);
  const auto other = "rank " + std::to_string(rank);
  for (const auto& [name, line] : left) {
    const auto found = right.find(name);
    if (found == right.end()) return "rank 0 has " + line + ", which " + other + " has not";
    if (found->second != line) return "rank 0 has " + line + ", " + other + " " + found->second;
  }
  for (const auto& [name, line] : right) {
    if (!left.contains(name)) return other + " has " + line + ", which rank 0 does not have";
  }
  return "rank 0 and " + other + " have them in a different order";
}

// This rank's index among the ranks that hold the same tensors, and the number of these ranks.
struct Holders {
  int index = 0;
  int count = 0;
};

// The name of the first tensor whose values differ between two ranks; nothing if their samples are equal.
std::optional<std::string> other_values(const nlohmann::json& left, const nlohmann::json& right) {
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (left[i] != right[i]) return left[i].at(0).get<std::string>();
  }
  return std::nullopt;
}

// Ranks with equal shapes write rows of one tensor. Not an error: the last bits may differ between devices.
void report_other_values(const std::vector<nlohmann::json>& all, const Notify& notify) {
  for (size_t rank = 1; rank < all.size(); ++rank) {
    size_t first = 0;
    auto name = other_values(all[0].at("common_sample"), all[rank].at("common_sample"));
    if (!name) {
      while (all[first].at("own") != all[rank].at("own")) ++first;
      name = other_values(all[first].at("own_sample"), all[rank].at("own_sample"));
    }
    if (!name) continue;
    return notify("rank " + std::to_string(rank) + " has different values of " + quote_name(*name) + " than rank " +
                  std::to_string(first) +
                  ", and the checkpoint has rows of both. Make the ranks' values equal before a sharded save, or save "
                  "those of rank 0 with CheckpointOptions::sharded = false");
  }
}

Holders compare(const HeldState& held, const GroupHandle& group, const Notify& notify) {
  std::vector<nlohmann::json> all;
  for (const auto& text : all_gather_strings(summary(held).dump(), group)) all.push_back(nlohmann::json::parse(text));
  const auto& own = all[static_cast<size_t>(group.rank())];
  uint64_t parts = 0;
  std::vector<nlohmann::json> different;
  Holders holders;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto& each = all[rank];
    if (each.at("common") != all[0].at("common")) {
      throw std::runtime_error(
          "the ranks' tensors differ: " + first_difference(held, static_cast<int>(rank), group) +
          "; a sharded checkpoint needs the same tensors on all ranks, apart from those that are sharded");
    }
    if (each.at("wholes") != all[0].at("wholes")) {
      throw std::runtime_error("rank " + std::to_string(rank) + " has shards of other tensors than rank 0");
    }
    if (each.at("own") == own.at("own")) {
      if (static_cast<int>(rank) < group.rank()) ++holders.index;
      ++holders.count;
    }
    if (std::ranges::find(different, each.at("own")) != different.end()) continue;
    different.push_back(each.at("own"));
    parts += each.at("parts").get<uint64_t>();
  }
  if (parts != all[0].at("wholes").get<uint64_t>()) {
    throw std::runtime_error(
        "the shards of all ranks together are not the whole tensors: give the group (or the mesh's group) over which "
        "the model is sharded to the CheckpointManager");
  }
  if (group.rank() == 0) report_other_values(all, notify);
  return holders;
}

void add_share(const HeldList& list, Holders holders, ShardedContent& content) {
  for (auto& item : shards::even_share(list.described, holders.index, holders.count)) {
    const auto& described = list.described[item.tensor];
    const auto& held = list.tensors[item.tensor];
    auto rows = held.tensor;
    if (item.box != described.box) {
      rows = rows.narrow(0, item.box.offsets[0] - described.box.offsets[0], item.box.sizes[0]);
    }
    const bool has_elements = shards::numel(shards::whole(described.shape)) > 0;
    if (has_elements && rows.numel() == 0) continue;  // this rank has no row of the tensor
    content[held.part].pieces.push_back(
        {.chunk = {.name = held.name, .dtype = described.dtype, .shape = described.shape, .box = std::move(item.box)},
         .rows = std::move(rows)});
  }
}

}  // namespace

bool is_divided(const TrainingState& state) {
  if (has_shards(module_state(state.model))) return true;
  return std::ranges::any_of(optimizers_by_name(state), [](const auto& each) {
    const auto* fused = dynamic_cast<const optim::FusedOptimizer*>(&each.second.get());
    return fused != nullptr && fused->is_state_divided();
  });
}

void check_shards(const TrainingState& state) {
  static_cast<void>(hold(state));
}

ShardedContent collect_shards(const TrainingState& state, const GroupHandle& group, const Notify& notify) {
  HeldState held;
  throw_if_failed(combined_failures(failure_of([&] { held = hold(state); }), group), "");
  const auto holders = compare(held, group, notify);
  ShardedContent content;
  for (auto& [part, metadata] : held.metadata) {
    content[part];  // every rank writes a file of each part, maybe without tensors
    if (group.rank() == 0) content[part].metadata = std::move(metadata);
  }
  add_share(held.common, {.index = group.rank(), .count = group.size()}, content);
  if (group.rank() == 0) add_share(held.buffers, {.index = 0, .count = 1}, content);
  add_share(held.rows, holders, content);
  add_share(held.alone, holders, content);
  return content;
}

}  // namespace ddp
