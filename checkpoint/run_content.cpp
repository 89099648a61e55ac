#include "checkpoint/run_content.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "checkpoint/core/sampler_position.h"
#include "checkpoint/failures.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/safetensors_bytes.h"
#include "checkpoint/storage/manifest.h"

namespace ddp {
namespace {

// A default random generator as an object with save and load.
class GeneratorState {
 public:
  explicit GeneratorState(at::Generator generator) : generator_(std::move(generator)) {}

  std::string save() const {
    const std::lock_guard lock(generator_.mutex());
    const auto state = generator_.get_state().cpu().contiguous();
    return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
  }

  void load(const std::string& bytes) {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(as_tensor(bytes));
  }

 private:
  mutable at::Generator generator_;
};

Stateful generator_ref(c10::Device device) {
  // A Stateful refers to its object, so the object must outlive this call.
  auto state = std::make_shared<GeneratorState>(at::globalContext().defaultGenerator(device));
  return Stateful::owning(std::move(state));
}

// This rank's part as the bytes of a safetensors file.
std::string rank_part(const TrainingState& state, const GroupHandle& group) {
  TensorMap tensors;
  for (const auto& [name, object] : rank_objects(state, group)) tensors.emplace(name, as_tensor(object.save()));
  TextSink sink;
  write_safetensors(sink, tensors);
  return std::move(sink.text);
}

// What each rank contributes to a save: its bytes, or why it failed.
struct RankPart {
  int64_t step = 0;
  std::optional<SamplerPosition> place{};
  Failure failure{};
  std::string bytes{};
};

// One line of JSON, then the bytes.
std::string encode_part(const RankPart& part) {
  const nlohmann::json head = {part.step, part.place ? to_json(*part.place) : "", part.failure.text};
  return head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n' + part.bytes;
}

RankPart decode_part(std::string text) {
  const auto end = text.find('\n');
  const auto head = nlohmann::json::parse(text.substr(0, end));
  RankPart part{.step = head.at(0), .place = sampler_position(head.at(1).get<std::string>())};
  if (const std::string failure = head.at(2); !failure.empty()) part.failure = {FailureKind::kError, failure};
  part.bytes = std::move(text.erase(0, end + 1));
  return part;
}

void check_file_name(const std::string& what, const std::string& name, const std::string& file) {
  if (storage::is_file_name(file)) return;
  throw std::invalid_argument(what + " has the name " + safetensors::quote_name(name) +
                              ", but names are parts of file names here: expected letters, digits, ., _ and -");
}

// Throws std::invalid_argument where a name is not part of a file name, or an object is missing.
void check_names(const TrainingState& state) {
  for (const auto& [name, optimizer] : optimizers_by_name(state)) {
    check_file_name("an optimizer", name, optimizer_file(name));
  }
  for (const auto& [name, object] : state.shared) {
    check_file_name("an object of .shared", name, "shared-" + name + ".state");
    if (!object) throw std::invalid_argument("the object " + safetensors::quote_name(name) + " of .shared is empty");
  }
  for (const auto& [name, object] : state.per_rank) {
    if (!object) throw std::invalid_argument("the object " + safetensors::quote_name(name) + " of .per_rank is empty");
  }
}

std::string saved_object(const std::string& file, const Stateful& object) {
  std::string bytes;
  const auto failure = failure_of([&] { bytes = object.save(); });
  if (failure) throw std::invalid_argument(file + " cannot be saved: " + failure.text);
  return bytes;
}

// Throws the same exception on every rank when one of them failed, or when their steps or samplers differ.
std::vector<RankPart> gather_parts(int64_t step, const TrainingState& state, const GroupHandle& group) {
  RankPart own{.step = step};
  own.failure = failure_of([&] {
    check_names(state);
    own.bytes = rank_part(state, group);
    if (state.sampler) own.place = sampler_position(saved_object("sampler.state", state.sampler));
  });
  std::vector<RankPart> parts;
  for (auto& text : all_gather_strings(encode_part(own), group)) parts.push_back(decode_part(std::move(text)));
  Failure failures;
  std::vector<std::optional<SamplerPosition>> places;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto& part = parts[rank];
    places.push_back(part.place);
    std::string problem = part.failure.text;
    if (!part.failure && part.step != parts[0].step) {
      problem =
          "it saves step " + std::to_string(part.step) + ", but rank 0 saves step " + std::to_string(parts[0].step);
    }
    if (!problem.empty()) failures += {FailureKind::kError, "on rank " + std::to_string(rank) + ": " + problem};
  }
  throw_if_failed(failures, "");
  const auto differing = different_positions(places);
  if (!differing.empty()) throw std::runtime_error(differing);
  return parts;
}

RunContent::Tensors merge_ranks(const std::vector<RankPart>& parts) {
  RunContent::Tensors merged;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const SafetensorsFile part(storage::own_bytes(parts[rank].bytes), "rank " + std::to_string(rank));
    for (const auto& entry : part.header().tensors) {
      merged.tensors.emplace("rank." + std::to_string(rank) + "." + entry.name, part.view(entry));
    }
  }
  return merged;
}

constexpr const char* kSharded = "Set CheckpointOptions::sharded, or leave it out.";

// Throws the errors that this rank's part of a save would cause.
void check_own_part(const TrainingState& state, const GroupHandle& group, bool is_sharded) {
  check_names(state);
  const auto model = module_state(state.model);
  if (!is_sharded) require_whole(model, "a checkpoint that rank 0 writes", kSharded);
  check_safetensors(model);
  check_loadable(model);
  for (const auto& [name, optimizer] : optimizers_by_name(state)) {
    check_has_model(state, name);
    check_optimizer(optimizer, model, optimizer_title(name));
  }
  for (const auto& [file, object] : shared_objects(state)) {
    if (group.rank() != 0 && file != "sampler.state") continue;  // as in a save
    static_cast<void>(saved_object(file, object));
  }
  static_cast<void>(rank_part(state, group));
  static_cast<void>(state.values.to_json());
}

}  // namespace

void check_has_model(const TrainingState& state, const std::string& name) {
  if (state.model) return;
  throw std::invalid_argument(optimizer_title(name) +
                              " is saved by its model's names: give the model too, as TrainingState::model");
}

std::string optimizer_file(const std::string& name) {
  return (name.empty() ? "optim" : "optim-" + name) + ".safetensors";
}

std::map<std::string, Stateful> shared_objects(const TrainingState& state) {
  std::map<std::string, Stateful> objects;
  if (state.scaler) objects.emplace("scaler.state", state.scaler);
  if (state.schedule) objects.emplace("schedule.state", state.schedule);
  if (state.sampler) objects.emplace("sampler.state", state.sampler);
  for (const auto& [name, object] : state.shared) objects.emplace("shared-" + name + ".state", object);
  return objects;
}

std::map<std::string, OptimizerRef> optimizers_by_name(const TrainingState& state) {
  auto optimizers = state.optimizers;
  if (optimizers.contains("")) throw std::invalid_argument("one of the optimizers has an empty name");
  if (state.optimizer) optimizers.emplace("", *state.optimizer);
  return optimizers;
}

std::map<std::string, Stateful> rank_objects(const TrainingState& state, const GroupHandle& group) {
  std::map<std::string, Stateful> objects;
  if (state.rng) {
    objects.emplace("rng.cpu", generator_ref(c10::Device(c10::kCPU)));
    const auto device = group.device();
    if (!device.is_cpu()) objects.emplace("rng." + c10::DeviceTypeName(device.type(), true), generator_ref(device));
  }
  for (const auto& [name, object] : state.per_rank) objects.emplace("object." + name, object);
  return objects;
}

void check_run(const TrainingState& state, const GroupHandle& group, bool is_sharded) {
  throw_if_failed(combined_failures(failure_of([&] { check_own_part(state, group, is_sharded); }), group), "");
}

RunContent collect_run(int64_t step, const TrainingState& state, const GroupHandle& group, bool with_tensors) {
  const auto parts = gather_parts(step, state, group);
  RunContent content;
  Failure failure;
  if (group.rank() == 0) {
    failure = failure_of([&] {
      const auto model = with_tensors ? module_state(state.model) : TensorMap();
      require_whole(model, "a checkpoint that rank 0 writes", kSharded);
      check_safetensors(model);
      check_loadable(model);
      if (state.model && with_tensors) content.safetensors[kModelFile].tensors = model;
      for (const auto& [name, optimizer] : optimizers_by_name(state)) {
        if (!with_tensors) break;
        check_has_model(state, name);
        auto& part = content.safetensors[optimizer_file(name)];
        part.metadata[kOptimizerKey] =
            save_optimizer_state(optimizer, model, part.tensors, names_in_order(state.model), optimizer_title(name));
      }
      for (const auto& [file, object] : shared_objects(state)) content.texts[file] = saved_object(file, object);
      content.safetensors[kRanksFile] = merge_ranks(parts);
      content.texts[kValuesFile] = state.values.to_json() + "\n";
    });
  }
  throw_if_failed(failure_of_rank_0(failure, group), "");
  return content;
}

}  // namespace ddp
