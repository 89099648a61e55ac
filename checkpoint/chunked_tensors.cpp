#include "checkpoint/chunked_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/optim/fused_optimizer.h>

#include "checkpoint/core/saved_optimizer.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/pt_tensors.h"
#include "checkpoint/regrouped_optimizer.h"
#include "checkpoint/storage/damage.h"

namespace ddp {

using safetensors::quote_name;

ChunkedTensors::ChunkedTensors(storage::FileSystem& file_system, const ChunkedPart& part, std::filesystem::path folder,
                               const std::string& part_name)
    : file_system_(file_system), part_(part), folder_(std::move(folder)) {
  described_.source = folder_.string() + " (" + part_name + ")";
  described_.metadata = part.catalog.metadata;
  for (const auto& [name, tensor] : part.catalog.tensors) {
    const auto dtype = scalar_type_of_python_name(tensor.dtype);
    if (!dtype) {
      throw std::runtime_error(described_.source + ": the tensor " + quote_name(name) + " has the dtype " +
                               tensor.dtype + ", which is not supported");
    }
    const auto meta = at::empty(tensor.shape, at::TensorOptions(*dtype).device(c10::kMeta));
    by_value_.emplace(meta.unsafeGetTensorImpl(), Described{.value = meta, .name = name, .tensor = &tensor});
    described_.tensors.emplace(name, tensor.shape.empty() ? request(meta) : meta);
  }
  read();
}

at::Tensor ChunkedTensors::request(const at::Tensor& value) {
  return request_box(value, shards::whole(value.sizes().vec()));
}

at::Tensor ChunkedTensors::request_rows(const at::Tensor& value, int64_t first_row, int64_t rows) {
  auto box = shards::whole(value.sizes().vec());
  box.offsets[0] = first_row;
  box.sizes[0] = rows;
  if (!value.is_meta()) return value.narrow(0, first_row, rows);
  return request_box(value, std::move(box));
}

at::Tensor ChunkedTensors::request_box(const at::Tensor& value, shards::Box box) {
  const auto found = by_value_.find(value.unsafeGetTensorImpl());
  if (found == by_value_.end()) return value;
  auto wanted = at::empty(std::vector<int64_t>(box.sizes), at::TensorOptions(value.scalar_type()));
  requests_.push_back({.name = found->second.name,
                       .tensor = found->second.tensor,
                       .box = std::move(box),
                       .target = static_cast<char*>(wanted.mutable_data_ptr())});
  if (value.scalar_type() == at::kBool) bools_.push_back(wanted);
  return wanted;
}

void ChunkedTensors::read() {
  const auto requests = std::exchange(requests_, {});
  try {
    shards::read_chunks(file_system_, part_.catalog, *part_.checksums, requests);
  } catch (const std::system_error& error) {
    storage::throw_read_failure(folder_, error);
  }
  for (const auto& tensor : std::exchange(bools_, {})) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
    // Any other value in a C++ bool is undefined behaviour.
    if (std::all_of(bytes, bytes + tensor.numel(), [](uint8_t byte) { return byte <= 1; })) continue;
    throw storage::DamagedCheckpoint(described_.source + ": a bool tensor holds a byte that is neither 0 nor 1");
  }
}

void take_values(const StoredPart& part, std::vector<Assignment>& assignments) {
  if (part.chunks == nullptr) return;  // assign() takes the rows
  for (auto& [target, value] : assignments) {
    const auto place = shard_place_of(target);
    value = place ? part.chunks->request_rows(value, place->first_row, target.size(0)) : part.chunks->request(value);
  }
}

namespace {

// The parameters to which the names in the file belong.
std::map<std::string, at::Tensor> parameters_by_key(const StoredTensors& stored,
                                                    const torch::optim::Optimizer& optimizer, const TensorMap& model,
                                                    const NameMap& rename) {
  std::map<std::string, at::Tensor> parameters;
  const auto text = stored.metadata.find(kOptimizerKey);
  if (text == stored.metadata.end()) return parameters;
  SavedOptimizer saved;
  try {
    saved = regrouped(parse_saved_optimizer(text->second), optimizer, ParameterNames(model), rename);
  } catch (const std::invalid_argument&) {
    return parameters;  // read_optimizer_state() reports it
  }
  const auto& groups = optimizer.param_groups();
  for (size_t i = 0; i < std::min(groups.size(), saved.groups.size()); ++i) {
    const auto& keys = saved.groups[i].parameters;
    const auto& own = groups[i].params();
    for (size_t j = 0; j < std::min(keys.size(), own.size()); ++j) parameters.emplace(keys[j], own[j]);
  }
  return parameters;
}

}  // namespace

StoredTensors optimizer_values(const StoredPart& part, const torch::optim::Optimizer& optimizer, const TensorMap& model,
                               const NameMap& rename) {
  const auto parameters = parameters_by_key(part.stored, optimizer, model, rename);
  const auto* fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer);
  const auto parameter_of = [&](std::string_view name) -> const at::Tensor* {
    constexpr std::string_view kState = "state.";
    if (!name.starts_with(kState)) return nullptr;
    name.remove_prefix(kState.size());
    // A field may have a dot in its name, as LBFGS's "old_dirs.0".
    for (auto dot = name.rfind('.'); dot != std::string_view::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
      const auto found = parameters.find(std::string(name.substr(0, dot)));
      if (found != parameters.end()) return &found->second;
    }
    return nullptr;
  };
  auto values = part.stored;
  for (auto& [name, value] : values.tensors) {
    const auto* parameter = parameter_of(name);
    if (parameter != nullptr && value.dim() > 0) {
      if (fused != nullptr && !fused->keeps_state_of(*parameter)) {
        value = at::zeros({}, value.options().device(c10::kCPU)).expand(value.sizes());
        continue;
      }
      const auto place = shard_place_of(*parameter);
      if (place && value.sizes() == place->whole_sizes) {
        const auto rows = parameter->size(0);
        value = part.chunks != nullptr ? part.chunks->request_rows(value, place->first_row, rows)
                                       : value.narrow(0, place->first_row, rows);
        continue;
      }
    }
    if (part.chunks != nullptr) value = part.chunks->request(value);
  }
  if (part.chunks != nullptr) part.chunks->read();
  return values;
}

}  // namespace ddp
