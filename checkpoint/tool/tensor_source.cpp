#include "checkpoint/tool/tensor_source.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/core/rank_names.h"
#include "checkpoint/core/safetensors_dtypes.h"
#include "checkpoint/core/sharded_index.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/folders/uncommitted_folder.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/shards/chunk_reader.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/verified_files.h"
#include "checkpoint/tool/pt_entries.h"

namespace ddp::tool {
namespace {

std::optional<int64_t> step_of_folder(const std::filesystem::path& path) {
  return storage::step_of((path / "").lexically_normal().parent_path().filename().string());
}

// One that has a checkpoint's name is a checkpoint, though its manifest be lost.
bool is_checkpoint_folder(const std::filesystem::path& path) {
  return storage::is_there(path / storage::kManifestName) || step_of_folder(path);
}

}  // namespace

TensorSource::TensorSource(const std::filesystem::path& path, const std::string& key) : path_(path) {
  auto file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    if (!dcp::is_dcp_folder(path)) refuse_uncommitted(path);
    const auto found = find_model_in_folder(path);
    if (!found || is_checkpoint_folder(path)) {
      open_any_folder(path);
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

void TensorSource::open_any_folder(const std::filesystem::path& path) {
  storage::FileSystem file_system;
  if (!is_checkpoint_folder(path)) {
    if (dcp::is_dcp_folder(path)) return open_sharded(open_dcp_folder(file_system, path));
    if (is_folder_of_shards(path)) return open_sharded(open_folder_of_shards(file_system, path));
  }
  auto manifest = storage::read_manifest_only(file_system, path);
  if (has_shards(manifest)) return open_sharded(open_sharded_checkpoint(file_system, path, std::move(manifest)));
  open_folder(path);
}

void TensorSource::open_folder(const std::filesystem::path& path) {
  kind_ = "checkpoint";
  has_checksums_ = true;
  storage::FileSystem file_system;
  auto opened = storage::open_checkpoint(file_system, path);
  manifest_ = std::make_unique<storage::Manifest>(std::move(opened.manifest));
  for (auto& [name, bytes] : opened.files) add_checkpoint_file(name, std::move(bytes), path / name);
}

void TensorSource::add_checkpoint_file(const std::string& name, storage::Bytes bytes,
                                       const std::filesystem::path& path) {
  if (name.ends_with(kSafetensorsEnding)) {
    open_safetensors(std::move(bytes), path, name);
  } else if (name == kValuesFile) {
    values_ = bytes.view;
  } else if (name.ends_with(kObjectEnding)) {
    objects_.emplace(name, bytes.view);
  }
}

void TensorSource::open_sharded(ShardedFolder folder) {
  kind_ = folder.kind;
  if (folder.manifest) manifest_ = std::make_unique<storage::Manifest>(*folder.manifest);
  sharded_ = std::make_unique<ShardedFolder>(std::move(folder));
  for (const auto& [name, part] : sharded_->parts) add_part(name, *part);
  for (const auto& [name, bytes] : sharded_->files) add_checkpoint_file(name, bytes, path_ / name);
  for (const auto& [name, text] : sharded_->texts) {
    if (name == kValuesFile) {
      plain_ = text;
    } else {
      objects_[name] = text;
    }
  }
  if (!sharded_->skipped.empty()) files_[std::string(kModelFile)].skipped = sharded_->skipped;
  read_small_tensors();
}

void TensorSource::add_part(const std::string& name, const ChunkedPart& part) {
  auto& file = files_[name];
  file.metadata = part.catalog.metadata;
  for (const auto& [tensor_name, tensor] : part.catalog.tensors) {
    const auto bytes = static_cast<uint64_t>(shards::numel(shards::whole(tensor.shape)));
    file.tensors.push_back({.name = tensor_name,
                            .dtype = tensor.dtype,
                            .sizes = tensor.shape,
                            .part = &part,
                            .chunked = &tensor,
                            .chunked_bytes = bytes * pt::dtype_by_name(tensor.dtype)->bytes});
  }
}

// Numbers, such as the steps of an optimizer's parameters, become bytes in memory: there may be many, and some are
// looked at.
void TensorSource::read_small_tensors() {
  constexpr uint64_t kMaxBytes = 16;
  storage::FileSystem file_system;
  for (auto& [name, file] : files_) {
    std::vector<shards::ReadRequest> requests;
    const ChunkedPart* part = nullptr;
    for (auto& tensor : file.tensors) {
      if (tensor.part == nullptr || tensor.size() > kMaxBytes) continue;
      auto& made = owned_bytes_.emplace_back(tensor.size(), '\0');
      part = tensor.part;
      requests.push_back(
          {.name = tensor.name, .tensor = tensor.chunked, .box = shards::whole(tensor.sizes), .target = made.data()});
      tensor = {.name = tensor.name, .dtype = tensor.dtype, .sizes = tensor.sizes, .bytes = made};
    }
    if (part != nullptr) shards::read_chunks(file_system, part->catalog, *part->checksums, requests);
  }
}

void TensorSource::check_manifest() const {
  if (manifest_ == nullptr) return;
  if (const auto step = step_of_folder(path_); step && *step != manifest_->step) {
    storage::throw_damaged(path_, "its manifest belongs to step " + std::to_string(manifest_->step));
  }
  if (const auto ranks = files_.find(std::string(kRanksFile)); ranks != files_.end()) {
    const auto path = (path_ / kRanksFile).string();
    for (const auto& tensor : ranks->second.tensors) check_rank_name(path, tensor.name, manifest_->world_size);
  }
}

void TensorSource::verify() {
  check_manifest();
  if (sharded_ == nullptr) return;
  storage::FileSystem file_system;
  if (manifest_ != nullptr) {
    verify_sharded_checkpoint(file_system, path_, *manifest_);
    has_checksums_ = true;
  } else if (dcp::is_dcp_folder(path_)) {
    has_checksums_ = verify_dcp_items(file_system, *sharded_);
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
    refuse_tensor_file(bytes.view, path, error.what());
  }
  mapped_.push_back(std::move(bytes));
  files_[name] = std::move(file);
}

RawTensor TensorSource::raw(const pt::PtFile& source, const std::string& name, const pt::TensorEntry& entry,
                            pt::CopyAllowance& allowance) {
  auto data = source.bytes_of(entry);
  if (!pt::is_plain(entry)) {
    allowance.spend(entry);
    data = owned_bytes_.emplace_back(pt::gather_elements(entry, data));
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
    auto& made = owned_bytes_.emplace_back(is_float ? sizeof(number) : sizeof(value), '\0');
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
      const auto& made = owned_bytes_.emplace_back(std::move(bytes));
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
    if (!key.empty()) unread.merge(unread_entries_below(model_root, state, key));
    const bool nested = !pt::is_model_key(key.substr(key.rfind('.') + 1)) && is_nested(model_root, state, !key.empty());
    files_[""] = raw_file(source, std::move(state), allowance);
    files_[""].is_nested = nested;
    files_[""].skipped.merge(unread);
    add_run(source, std::move(run), allowance);
  } catch (const pt::FormatError& error) {
    throw std::runtime_error(path.string() + " cannot be read as a .pt file: " + error.what());
  }
}

}  // namespace ddp::tool
