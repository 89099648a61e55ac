#include "checkpoint/run_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <ddprun/checkpoint/tensor_files.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>

#include "base/crc32c.h"
#include "checkpoint/core/rank_names.h"
#include "checkpoint/core/unsupported_file.h"
#include "checkpoint/failures.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt_tensors.h"
#include "checkpoint/safetensors_bytes.h"
#include "checkpoint/storage/damage.h"
#include "checkpoint/storage/folder_names.h"
#include "checkpoint/storage/inventory.h"
#include "checkpoint/storage/verified_files.h"

namespace ddp {
namespace {

class FileBuilder {
 public:
  explicit FileBuilder(ReceivedRun& run) : run_(run) {}

  void text(const std::string& name, std::string text) {
    if (text.empty()) return;
    run_.manifest.files[name] = {.size = text.size(), .crc32c = crc32c(text.data(), text.size())};
    run_.files[name] = storage::own_bytes(std::move(text));
  }

  void tensors(const std::string& name, const TensorMap& tensors, const Metadata& metadata = {}) {
    TextSink sink;
    write_safetensors(sink, tensors, metadata);
    text(name, std::move(sink.text));
  }

 private:
  ReceivedRun& run_;
};

TensorMap rank_tensors(const pt::PtFile& file, const pt::RunState& state) {
  TensorMap tensors;
  for (size_t rank = 0; rank < state.rng.size(); ++rank) {
    for (const auto& [device, entry] : state.rng[rank]) {
      const auto name = "rank." + std::to_string(rank) + ".rng." + device;
      tensors.emplace(name, view_pt(file, name, entry));
    }
  }
  for (size_t rank = 0; rank < state.per_rank.size(); ++rank) {
    for (const auto& [name, bytes] : state.per_rank[rank]) {
      tensors.emplace("rank." + std::to_string(rank) + ".object." + name, as_tensor(bytes));
    }
  }
  return tensors;
}

// Reads the parts that pt::find_run() finds into memory. `key` is LoadOptions::key; `world_size` stands for the number
// of ranks that saved the file where that does not name it. Throws std::system_error or std::runtime_error naming the
// file. One process.
ReceivedRun read_pt_run(const std::filesystem::path& path, const std::string& key, int world_size) {
  storage::FileSystem file_system;
  auto bytes = storage::map_file(file_system, path);
  if (!pt::looks_like_pt(bytes.view)) {
    throw std::runtime_error(
        path.string() + " is neither a checkpoint folder nor a .pt file: " +
        unsupported_file_or(bytes.view, path, "only load_weights() reads files that hold nothing but tensors"));
  }
  const pt::PtFile file(std::move(bytes), path);
  ReceivedRun run;
  run.is_selected = true;
  try {
    const auto state = pt::find_run(file, key);
    const auto ranks = state.world_size.value_or(state.rng.empty() ? world_size : int64_t(state.rng.size()));
    if (!state.foreign_step.empty()) {
      throw std::runtime_error(
          "its " + safetensors::quote_name(state.foreign_step) +
          ", which says how far the run is, is an object, which is not supported: save it with int()");
    }
    if (ranks < 1 || ranks > storage::kMaxWorldSize) {
      throw std::runtime_error("its world_size is " + std::to_string(ranks) + ", expected 1 to " +
                               std::to_string(storage::kMaxWorldSize));
    }
    run.manifest.step = state.step.value_or(0);
    run.manifest.world_size = static_cast<int>(ranks);
    FileBuilder files(run);
    // A tensor of the model that cannot be read is skipped, and is then reported as missing. An optimizer's state that
    // cannot be read in full is an error.
    auto skipped = state.model.skipped;
    if (state.has_model) files.tensors(kModelFile, view_pt(file, state.model, skipped), state.model.metadata);
    if (!state.has_model) run.entries = state.model.entries;
    run.skipped = skipped;
    for (const auto& [name, optimizer] : state.optimizers) {
      auto odd = optimizer.skipped;
      const auto tensors = view_pt(file, optimizer, odd);
      if (!odd.empty())
        throw std::runtime_error("the optimizer's " + odd.begin()->first + " is " + odd.begin()->second);
      files.tensors(optimizer_file(name), tensors, optimizer.metadata);
    }
    files.text("scaler.state", state.scaler);
    files.text("schedule.state", state.schedule);
    files.text("sampler.state", state.sampler);
    for (const auto& [name, text] : state.shared) files.text("shared-" + name + ".state", text);
    files.tensors(kRanksFile, rank_tensors(file, state));
    files.text(kValuesFile, state.values);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(path.string() + " cannot be read as a training run: " + error.what());
  }
  return run;
}

void map_run(storage::FileSystem& file_system, const std::filesystem::path& folder, const std::string& key,
             int world_size, ReceivedRun& run) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(folder, ignored)) {
    run = read_pt_run(folder, key, world_size);
    return;
  }
  if (std::filesystem::status(folder, ignored).type() == std::filesystem::file_type::not_found)
    throw std::runtime_error("there is no " + folder.string());
  const auto what = storage::is_there(folder / storage::kManifestName) ? "" : describe_unsupported_folder(folder);
  if (!what.empty()) throw std::runtime_error(folder.string() + " is not a checkpoint of ddprun: " + what);
  auto opened = storage::open_checkpoint(file_system, folder);
  run = {.manifest = std::move(opened.manifest), .files = std::move(opened.files)};
}

// The number under "step" of a JSON object; 0 for none.
int64_t step_in(const std::string& values) {
  const auto root = nlohmann::json::parse(values, nullptr, /*allow_exceptions=*/false);
  const auto found = root.is_object() ? root.find("step") : root.end();
  return root.is_object() && found != root.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

void open_chunked(storage::FileSystem& file_system, const std::filesystem::path& folder, const GroupHandle& group,
                  ReceivedRun& run) {
  auto opened = open_sharded_folder(file_system, folder);
  // A rank that needs rows of an item reads no others, and the checksum is of all.
  static_cast<void>(verify_dcp_items(file_system, opened, group.rank(), group.size()));
  run.files = std::move(opened.files);
  run.chunked = std::move(opened.parts);
  run.skipped = std::move(opened.skipped);
  if (opened.manifest) {
    run.manifest = std::move(*opened.manifest);
    return;
  }
  FileBuilder files(run);
  files.text(kValuesFile, "{}");  // such folders have no values; that is not an error
  for (auto& [name, text] : opened.texts) files.text(name, text);
  files.tensors(kRanksFile, {});
  const auto values = opened.texts.find(kValuesFile);
  run.manifest.step = values == opened.texts.end() ? 0 : step_in(values->second);
  run.manifest.world_size = group.size();
}

// One file from rank 0 to all, in pieces, so that only one of them is in memory twice.
void send_file(const std::string& name, ReceivedRun& run, const GroupHandle& group) {
  constexpr uint64_t kPiece = uint64_t{32} << 20;
  const auto& record = run.manifest.files.at(name);
  const bool sends = group.rank() == 0;
  std::string received;
  if (!sends) received.reserve(record.size);
  for (uint64_t position = 0; position < record.size; position += kPiece) {
    const auto size = std::min(kPiece, record.size - position);
    const auto piece = sends ? std::string(run.files.at(name).view.substr(position, size)) : std::string();
    const auto arrived = broadcast_string(piece, 0, group);
    if (!sends) received += arrived;
  }
  if (sends) return;
  if (crc32c(received.data(), received.size()) != record.crc32c || received.size() != record.size) {
    throw std::runtime_error(name + " was damaged while rank 0 sent it");
  }
  run.files[name] = storage::own_bytes(std::move(received));
}

// Fails when the checkpoint was replaced between the reads of two ranks.
Failure compare_manifests(const std::filesystem::path& folder, const ReceivedRun& run, const GroupHandle& group) {
  const auto manifest = storage::format_manifest(run.manifest);
  if (broadcast_string(manifest, 0, group) == manifest) return combined_failures({}, group);
  return combined_failures(
      {.kind = FailureKind::kError, .text = folder.string() + " holds a different checkpoint here than on rank 0"},
      group);
}

Failure receive_files(storage::FileSystem& file_system, const std::filesystem::path& folder, CheckpointReader reader,
                      const GroupHandle& group, const std::string& key, ReceivedRun& run) {
  const auto read = [&] { map_run(file_system, folder, key, group.size(), run); };
  if (reader == CheckpointReader::kEveryRank) {
    auto failure = combined_failures(failure_of(read), group);
    return failure ? failure : compare_manifests(folder, run, group);
  }
  auto failure = failure_of_rank_0(group.rank() == 0 ? failure_of(read) : Failure(), group);
  if (failure || group.size() == 1) return failure;
  const auto manifest = broadcast_string(group.rank() == 0 ? storage::format_manifest(run.manifest) : "", 0, group);
  run.manifest = storage::parse_manifest(manifest);
  run.is_selected = broadcast_string(run.is_selected ? "+" : "-", 0, group) == "+";
  for (const auto& [name, record] : run.manifest.files) {
    // A failure here must not keep this rank from the broadcasts that follow.
    auto problem = failure_of([&] { send_file(name, run, group); });
    if (!failure) failure = std::move(problem);
  }
  return combined_failures(failure, group);
}

}  // namespace

Failure receive_run(storage::FileSystem& file_system, const std::filesystem::path& folder, CheckpointReader reader,
                    const GroupHandle& group, const std::string& key, ReceivedRun& run) {
  bool chunked = false;
  auto failure = group.rank() == 0 ? failure_of([&] { chunked = is_sharded_folder(file_system, folder); }) : Failure();
  failure = failure_of_rank_0(failure, group);
  if (failure) return failure;
  if (broadcast_string(chunked ? "+" : "-", 0, group) == "-") {
    return receive_files(file_system, folder, reader, group, key, run);
  }
  failure = combined_failures(failure_of([&] { open_chunked(file_system, folder, group, run); }), group);
  return failure ? failure : compare_manifests(folder, run, group);
}

PreparedRun::PreparedRun(storage::FileSystem& file_system, const ReceivedRun& run, const std::filesystem::path& folder,
                         const TrainingState& state, const LoadOptions& options, const GroupHandle& group)
    : file_system_(file_system), folder_(folder), group_(group), strict_(options.strict) {
  result_.step = run.manifest.step;
  result_.world_size = run.manifest.world_size;
  result_.folder = folder;
  result_.metrics = run.manifest.metrics;
  if (const auto* bytes = find(run, kValuesFile)) {
    try {
      result_.values = CheckpointValues::from_json(bytes->view);
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error((folder_ / kValuesFile).string() + ": " + error.what());
    }
  }
  prepare_model(run, state, options);
  prepare_objects(run, state);
  prepare_rank_objects(run, state);
}

const storage::Bytes* PreparedRun::find(const ReceivedRun& run, const std::string& file, bool may_be_missing) {
  const auto found = run.files.find(file);
  if (found != run.files.end()) return &found->second;
  if (strict_ && !may_be_missing) refuse_missing(run, file);
  result_.missing.push_back(file);
  return nullptr;
}

void PreparedRun::refuse_missing(const ReceivedRun& run, const std::string& file) {
  throw std::runtime_error(folder_.string() + " holds no " + file +
                           ": it was saved without that part of the state; leave it out here too, or load with "
                           ".strict = false" +
                           (file == kModelFile ? hint_of_entries(run.entries) : ""));
}

// The tensors of a part, whole or in chunks.
std::optional<StoredPart> PreparedRun::find_part(const ReceivedRun& run, const std::string& file) {
  if (const auto found = run.chunked.find(file); found != run.chunked.end()) {
    auto& chunks = chunks_.emplace_back(file_system_, *found->second, folder_, file);
    return StoredPart{.stored = chunks.described(), .chunks = &chunks};
  }
  const auto* bytes = find(run, file);
  if (bytes == nullptr) return std::nullopt;
  return StoredPart{.stored = view_safetensors(*bytes, folder_ / file)};
}

void PreparedRun::prepare_model(const ReceivedRun& run, const TrainingState& state, const LoadOptions& options) {
  if (!state.model) {
    if (state.optimizer || !state.optimizers.empty()) {
      throw std::invalid_argument("an optimizer is loaded by its model's names: give the model too");
    }
    return;
  }
  const auto model = module_state(state.model);
  if (auto part = find_part(run, kModelFile)) {
    auto stored = select_entry(std::move(part->stored), run.is_selected ? "" : options.key);
    stored.skipped = run.skipped;
    stored = without_wrappers(std::move(stored), state.model);
    model_ = read_matching(stored, model, {}, options);
    take_values(*part, model_.assignments);
    if (part->chunks != nullptr) part->chunks->read();
    result_.missing.insert(result_.missing.end(), model_.missing.begin(), model_.missing.end());
    result_.unexpected = model_.unexpected;
  }
  for (const auto& [name, optimizer] : optimizers_by_name(state)) {
    const auto file = optimizer_file(name);
    const auto part = find_part(run, file);
    if (!part) continue;
    optimizer_files_.push_back(optimizer_values(*part, optimizer, model, options.rename));
    optimizers_.push_back(read_optimizer_state(optimizer_files_.back(), optimizer, model, options));
  }
}

void PreparedRun::prepare_objects(const ReceivedRun& run, const TrainingState& state) {
  for (const auto& [file, object] : shared_objects(state)) {
    const auto* bytes = find(run, file, object.may_be_missing());
    if (bytes != nullptr)
      objects_.push_back({.target = object, .source = (folder_ / file).string(), .value = std::string(bytes->view)});
  }
}

void PreparedRun::prepare_rank_objects(const ReceivedRun& run, const TrainingState& state) {
  const auto wanted = rank_objects(state, group_);
  if (wanted.empty()) return;
  const auto* bytes = find(run, kRanksFile);
  if (bytes == nullptr) return;
  const auto stored = view_safetensors(*bytes, folder_ / kRanksFile);
  for (const auto& [name, tensor] : stored.tensors) check_rank_name(stored.source, name, run.manifest.world_size);
  // A form that stores no streams, such as DCP, leads to a file without any.
  if (run.manifest.world_size != group_.size() && !stored.tensors.empty()) {
    new_stream_ = state.rng;
    stream_seed_ = crc32c(bytes->view.data(), bytes->view.size()) + static_cast<uint64_t>(result_.step);
    return;
  }
  for (const auto& [name, object] : wanted) {
    const auto full_name = "rank." + std::to_string(group_.rank()) + "." + name;
    const auto found = stored.tensors.find(full_name);
    if (found == stored.tensors.end() || found->second.scalar_type() != at::kByte) {
      // Saved on the CPU and loaded on a GPU, for example.
      const bool is_generator = name.starts_with("rng.");
      if (strict_ && !is_generator && !object.may_be_missing()) {
        throw std::runtime_error(stored.source + " holds no " + full_name);
      }
      result_.missing.push_back(full_name);
      continue;
    }
    const auto& value = found->second;
    objects_.push_back({.target = object,
                        .source = stored.source + ": " + full_name,
                        .value = std::string(static_cast<const char*>(value.const_data_ptr()), value.nbytes())});
    if (name == "rng.cpu") result_.rng_restored = true;
  }
}

void PreparedRun::apply_objects() {
  // The constructor of DistributedDataParallel seeds a rank's generators once. That happens here, so that a wrapper
  // which is constructed later does not overwrite the restored states.
  if (result_.rng_restored || new_stream_) take_rank_stream(group_);
  for (auto& object : objects_) object.before = object.target.save();
  for (auto& object : objects_) {
    ++objects_touched_;  // counted first: a load() that fails may have changed the object
    const auto failure = failure_of([&] { object.target.load(object.value); });
    throw_if_failed(failure, object.source + ": ");
  }
}

void PreparedRun::roll_back() noexcept {
  for (size_t i = 0; i < objects_touched_; ++i) {
    try {
      objects_[i].target.load(objects_[i].before);
    } catch (const std::exception&) {
      // The object cannot be restored. There is nothing else to try.
    }
  }
}

void PreparedRun::apply_tensors() {
  assign(model_.assignments);
  for (auto& optimizer : optimizers_) optimizer->apply();
  if (new_stream_) seed_per_rank(stream_seed_, group_);
}

}  // namespace ddp
