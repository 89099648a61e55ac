#include "checkpoint/tool/tensor_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/core/sharded_index.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/tensor_walk.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/verified_files.h"

namespace ddp::tool {
namespace {

constexpr std::string_view kValuesFile = "trainer.json";

// Entries of `root` that are neither the model, which is below `model_key` unless that is empty, nor another part of
// the run nor a plain value, and what they are.
std::map<std::string, std::string> unread_entries(const pt::Value& root, const pt::StateDict& state,
                                                  const std::set<std::string>& read_keys, std::string_view model_key) {
  using pt::Kind;
  std::map<std::string, std::string> unread;
  if (!root.is(Kind::kDict) || pt::is_optimizer(root)) return unread;
  // What gave a tensor, or was skipped by name.
  const auto is_walked = [](const auto& names, const std::string& key) {
    const auto found = names.lower_bound(key);
    if (found != names.end() && found->first == key) return true;
    const auto below = names.lower_bound(key + ".");
    return below != names.end() && below->first.starts_with(key + ".");
  };
  for (const auto& [key, item] : pt::named_items(root)) {
    const bool is_plain =
        item->is(Kind::kBool) || item->is(Kind::kInt) || item->is(Kind::kFloat) || item->is(Kind::kText);
    if (is_plain || item->is(Kind::kNone) || key == model_key || read_keys.contains(key)) continue;
    if (model_key.empty() && (is_walked(state.tensors, key) || is_walked(state.skipped, key))) continue;
    const bool is_dict = item->is(Kind::kDict), is_list = item->is(Kind::kList) || item->is(Kind::kTuple);
    unread[key] = is_dict ? "a dict under an unknown key" : is_list ? "a list or tuple" : "not a plain value";
  }
  return unread;
}

// Whether the tensors are those of dicts below keys that are not usual: {"model_state": {…}, "loss": 0-dim tensor}. A
// state dict has tensors of its own; what get_extra_state() returns may be a dict in it.
bool is_nested(const pt::Value& root, const pt::StateDict& state) {
  using pt::Kind;
  if (!root.is(Kind::kDict) || pt::is_optimizer(root) || !state.found_under.empty() || state.tensors.empty()) {
    return false;
  }
  bool has_dict = false;
  for (const auto& [key, item] : pt::named_items(root)) {
    if (item->is(Kind::kTensor) && !item->tensor().sizes.empty()) return false;
    const bool gave_tensors = state.tensors.lower_bound(key + ".") != state.tensors.lower_bound(key + "/");
    has_dict = has_dict || (pt::as_dict(*item) != nullptr && gave_tensors && !key.ends_with("_extra_state"));
  }
  return has_dict;
}

// The same of the dict that `key` selects. Its optimizer is read with the model.
std::map<std::string, std::string> unread_below(const pt::Value& selected, const pt::StateDict& state,
                                                const std::string& key) {
  std::set<std::string> optimizers;
  for (const auto& [name, item] : pt::named_items(selected)) {
    if (pt::is_optimizer(pt::sole_item(*item))) optimizers.insert(name);
  }
  std::map<std::string, std::string> unread;
  for (const auto& [name, what] : unread_entries(selected, state, optimizers, state.found_under)) {
    unread.emplace(key + "." + name, what);
  }
  return unread;
}

// One that has a checkpoint's name is a checkpoint, though its manifest be lost.
bool is_checkpoint_folder(const std::filesystem::path& path) {
  const auto name = (path / "").lexically_normal().parent_path().filename().string();
  return std::filesystem::exists(path / storage::kManifestName) || storage::step_of(name).has_value();
}

// With the main optimizer, wherever the model is.
pt::StateDict find_model(const pt::PtFile& source, const std::string& key, const pt::RunState& run) {
  const auto read_scalar = pt::scalar_reader(source);
  if (key.empty()) return pt::find_state(source.root(), read_scalar);
  auto state = pt::find_state(pt::select(source.root(), key), read_scalar);
  for (auto& entry : state.entries) entry = key + "." + entry;
  const auto main = run.optimizers.find("");
  if (main == run.optimizers.end() || state.metadata.contains(pt::kOptimizerMetadata)) return state;
  state.tensors.insert(main->second.tensors.begin(), main->second.tensors.end());
  state.scalars.insert(main->second.scalars.begin(), main->second.scalars.end());
  state.metadata.insert(main->second.metadata.begin(), main->second.metadata.end());
  state.skipped.insert(main->second.skipped.begin(), main->second.skipped.end());
  return state;
}

}  // namespace

TensorSource::TensorSource(const std::filesystem::path& path, const std::string& key) {
  auto file = path;
  if (std::filesystem::is_directory(path)) {
    const auto found = find_model_in_folder(path);
    if (!found || is_checkpoint_folder(path)) {
      open_folder(path);
      select_model(path, key);
      return;
    }
    file = *found;
  }
  if (is_sharded_index(file)) {
    open_index(file);
    select_model(file, key);
  } else {
    open_file(file, key);
  }
}

void TensorSource::open_file(const std::filesystem::path& path, const std::string& key) {
  storage::FileSystem file_system;
  auto bytes = storage::map_file(file_system, path);
  if (pt::looks_like_pt(bytes.view)) {
    kind_ = "PyTorch file";
    open_pt(std::move(bytes), path, key);
  } else {
    kind_ = "safetensors file";
    open_safetensors(std::move(bytes), path, "");
    select_model(path, key);
  }
}

// The model's tensors below `key` under the rest of their names.
void TensorSource::select_model(const std::filesystem::path& path, const std::string& key) {
  if (key.empty()) return;
  const auto prefix = key + ".";
  bool is_found = false;
  for (auto& [name, file] : files_) {
    if (!name.empty() && name != kModelFile) continue;
    std::erase_if(file.tensors, [&](const auto& tensor) { return !tensor.name.starts_with(prefix); });
    for (auto& tensor : file.tensors) tensor.name.erase(0, prefix.size());
    is_found = is_found || !file.tensors.empty();
    Metadata metadata;
    for (const auto& [alias, first] : file.metadata) {
      if (alias.starts_with(prefix) && first.starts_with(prefix)) {
        metadata.emplace(alias.substr(prefix.size()), first.substr(prefix.size()));
      }
    }
    file.metadata = std::move(metadata);
  }
  if (!is_found) {
    throw std::runtime_error(path.string() + " holds nothing under the key " + safetensors::quote_name(key));
  }
}

void TensorSource::open_index(const std::filesystem::path& path) {
  kind_ = "model in several files";
  has_checksums_ = true;
  storage::FileSystem file_system;
  ShardedIndex index;
  try {
    index = parse_sharded_index(storage::map_file(file_system, path).view);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path.string() + " is not an index of a model's files: " + error.what());
  }
  auto& all = files_[""];
  for (const auto& [file, names] : index) {
    TensorSource shard;  // neither an index nor a folder, which could lead back here
    shard.open_file(path.parent_path() / file, "");
    has_checksums_ = has_checksums_ && shard.has_checksums_;
    const auto& content = shard.files_[""];
    std::set<std::string> found;
    for (const auto& tensor : content.tensors) {
      if (names.contains(tensor.name) && found.insert(tensor.name).second) all.tensors.push_back(tensor);
    }
    const auto missing = std::ranges::find_if(names, [&](const auto& name) { return !found.contains(name); });
    if (missing != names.end()) {
      throw std::runtime_error((path.parent_path() / file).string() + " lacks the tensor " +
                               safetensors::quote_name(*missing) + ", which " + path.string() + " says is there");
    }
    all.metadata.insert(content.metadata.begin(), content.metadata.end());
    all.skipped.insert(content.skipped.begin(), content.skipped.end());
    shards_.push_back(std::move(shard));
  }
}

void TensorSource::open_folder(const std::filesystem::path& path) {
  kind_ = "checkpoint";
  has_checksums_ = true;
  storage::FileSystem file_system;
  auto opened = storage::open_checkpoint(file_system, path);
  manifest_ = std::make_unique<storage::Manifest>(std::move(opened.manifest));
  for (auto& [name, bytes] : opened.files) {
    if (name.ends_with(kSafetensorsEnding)) {
      open_safetensors(std::move(bytes), path / name, name);
    } else if (name == kValuesFile) {
      values_ = bytes.view;
    } else if (name.ends_with(kObjectEnding)) {
      objects_.emplace(name, bytes.view);
    }
  }
}

void TensorSource::open_safetensors(storage::Bytes bytes, const std::filesystem::path& path, const std::string& name) {
  RawFile file;
  try {
    const auto header_bytes =
        safetensors::parse_header_length(bytes.view.substr(0, safetensors::kLengthBytes), bytes.view.size());
    const auto data = bytes.view.substr(safetensors::kLengthBytes + header_bytes);
    auto header = safetensors::parse_header(bytes.view.substr(safetensors::kLengthBytes, header_bytes), data.size());
    for (const auto& entry : header.tensors) {
      file.tensors.push_back({.name = entry.name,
                              .dtype = std::string(safetensors::python_name(entry.dtype)),
                              .sizes = entry.shape,
                              .bytes = data.substr(entry.begin, entry.end - entry.begin)});
    }
    file.metadata = std::move(header.metadata);
  } catch (const safetensors::FormatError& error) {
    throw std::runtime_error(
        path.string() + " is not a valid safetensors file: " + unsupported_file_or(bytes.view, path, error.what()));
  }
  mapped_.push_back(std::move(bytes));
  files_[name] = std::move(file);
}

RawTensor TensorSource::raw(const pt::PtFile& source, const std::string& name, const pt::TensorEntry& entry,
                            pt::CopyAllowance& allowance) {
  auto data = source.bytes_of(entry);
  if (!pt::is_plain(entry)) {
    allowance.spend(entry);
    data = made_.emplace_back(pt::gather_elements(entry, data));
  }
  return {.name = name, .dtype = entry.dtype, .sizes = entry.sizes, .bytes = data};
}

RawFile TensorSource::raw_file(const pt::PtFile& source, pt::StateDict state, pt::CopyAllowance& allowance) {
  RawFile file{.tensors = {},
               .metadata = std::move(state.metadata),
               .skipped = std::move(state.skipped),
               .entries = std::move(state.entries)};
  file.skipped.merge(state.left_out);
  for (const auto& [name, entry] : state.tensors) {
    source.bytes_of(entry);  // a damaged file is refused as a whole
    try {
      file.tensors.push_back(raw(source, name, entry, allowance));
    } catch (const pt::FormatError& error) {
      file.skipped.emplace(name, error.what());
    }
  }
  for (const auto& [name, value] : state.scalars) {
    const auto number = static_cast<float>(value);
    const bool is_float = !(number != value);  // also NaN
    auto& made = made_.emplace_back(is_float ? sizeof(number) : sizeof(value), '\0');
    std::memcpy(made.data(), is_float ? static_cast<const void*>(&number) : &value, made.size());
    file.tensors.push_back({.name = name, .dtype = is_float ? "float32" : "float64", .sizes = {}, .bytes = made});
  }
  return file;
}

// What a .pt file holds besides a model and its optimizer.
void TensorSource::add_run(const pt::PtFile& source, pt::RunState run, pt::CopyAllowance& allowance) {
  for (auto& [name, optimizer] : run.optimizers) {
    if (name.empty()) continue;
    files_[std::string(kNamedOptimizer) + name + std::string(kSafetensorsEnding)] =
        raw_file(source, std::move(optimizer), allowance);
  }
  RawFile ranks;
  for (size_t rank = 0; rank < run.rng.size(); ++rank) {
    for (const auto& [device, entry] : run.rng[rank]) {
      ranks.tensors.push_back(raw(source, "rank." + std::to_string(rank) + ".rng." + device, entry, allowance));
    }
  }
  for (size_t rank = 0; rank < run.per_rank.size(); ++rank) {
    for (auto& [name, bytes] : run.per_rank[rank]) {
      const auto& made = made_.emplace_back(std::move(bytes));
      ranks.tensors.push_back({.name = "rank." + std::to_string(rank) + ".object." + name,
                               .dtype = "uint8",
                               .sizes = {static_cast<int64_t>(made.size())},
                               .bytes = made});
    }
  }
  if (!ranks.tensors.empty()) files_[std::string(kRanksFile)] = std::move(ranks);
  for (auto& [name, text] : run.shared) objects_[std::string(kShared) + name + std::string(kObjectEnding)] = text;
  for (const auto& [name, text] :
       {std::pair("scaler.state", &run.scaler), {"schedule.state", &run.schedule}, {"sampler.state", &run.sampler}}) {
    if (!text->empty()) objects_[name] = *text;
  }
  plain_ = run.plain == "{}" ? "" : run.plain;
  values_ = run.own_values;
}

void TensorSource::open_pt(storage::Bytes bytes, const std::filesystem::path& path, const std::string& key) {
  const pt::PtFile source(std::move(bytes), path);
  has_checksums_ = source.has_checksums();
  owners_.push_back(source.owner());
  pt::CopyAllowance allowance(source.size());
  try {
    auto run = pt::find_run(source, key);
    pt::StateDict state;
    try {
      state = find_model(source, key, run);
    } catch (const pt::FormatError&) {
      if (run.optimizers.empty() || !key.empty()) throw;  // else those are all that there is
    }
    const std::string top = key.empty() ? state.found_under : key.substr(0, key.find('.'));
    auto unread = unread_entries(source.root(), state, run.read_keys, top);
    const auto& model_root = key.empty() ? source.root() : pt::select(source.root(), key);
    if (!key.empty()) unread.merge(unread_below(model_root, state, key));
    const bool nested = !pt::is_model_key(key.substr(key.rfind('.') + 1)) && is_nested(model_root, state);
    files_[""] = raw_file(source, std::move(state), allowance);
    files_[""].is_nested = nested;
    files_[""].skipped.merge(unread);
    add_run(source, std::move(run), allowance);
  } catch (const pt::FormatError& error) {
    throw std::runtime_error(path.string() + " cannot be read as a .pt file: " + error.what());
  }
}

}  // namespace ddp::tool
