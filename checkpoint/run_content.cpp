#include "checkpoint/run_content.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/from_blob.h>

#include <stdexcept>
#include <utility>

#include <ddprun/comm/collectives.h>

#include "checkpoint/bytes_as_tensors.h"
#include "checkpoint/core/sampler_place.h"
#include "checkpoint/failures.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
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
  // The reference outlives this call: the object goes with it.
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

constexpr char kOk = '+';
constexpr char kFailed = '-';

// "<step> <its sampler's place> <+ or -><bytes or failure>" of each rank. The same exception on every rank when one
// failed or they do not stand at the same place of the run.
std::vector<std::string> gather_parts(int64_t step, const TrainingState& state, const GroupHandle& group) {
  std::string part;
  std::optional<SamplerPlace> place;
  const auto failure = failure_of([&] {
    part = rank_part(state, group);
    if (state.sampler) place = sampler_place(state.sampler.save());
  });
  const auto step_text = std::to_string(step);
  auto parts = all_gather_strings(
      step_text + " " + (place ? to_json(*place) : "none") + " " + (failure.empty() ? kOk + part : kFailed + failure),
      group);
  std::string failures;
  std::vector<std::optional<SamplerPlace>> places;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto space = parts[rank].find(' ');
    const auto second_space = parts[rank].find(' ', space + 1);
    const auto its_step = parts[rank].substr(0, space);
    places.push_back(sampler_place(parts[rank].substr(space + 1, second_space - space - 1)));
    const bool failed = parts[rank].at(second_space + 1) == kFailed;
    parts[rank].erase(0, second_space + 2);
    const auto who = (failures.empty() ? "on rank " : "; on rank ") + std::to_string(rank) + ": ";
    if (failed) {
      failures += who + parts[rank];
    } else if (its_step != step_text) {
      failures +=
          who + "it saves step " + its_step + ", but rank " + std::to_string(group.rank()) + " step " + step_text;
    }
  }
  if (failures.empty()) failures = different_places(places);
  if (!failures.empty()) throw std::runtime_error(failures);
  return parts;
}

RunContent::Tensors merge_ranks(const std::vector<std::string>& parts) {
  RunContent::Tensors merged;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const SafetensorsFile part(storage::own_bytes(parts[rank]), "rank " + std::to_string(rank));
    for (const auto& entry : part.header().tensors) {
      merged.tensors.emplace("rank." + std::to_string(rank) + "." + entry.name, part.view(entry));
    }
  }
  return merged;
}

void check_has_model(const TrainingState& state, const std::string& optimizer) {
  if (state.model) return;
  throw std::invalid_argument(optimizer_title(optimizer) +
                              " is saved by its model's names: give the model too, as TrainingState::model");
}

void check_file_name(const std::string& what, const std::string& name, const std::string& file) {
  if (storage::is_file_name(file)) return;
  throw std::invalid_argument(what + " has the name " + safetensors::quote_name(name) +
                              ", but names are parts of file names here: expected letters, digits, ., _ and -");
}

// Throws what would go wrong with this rank's part of a save.
void check_own_part(const TrainingState& state, const GroupHandle& group) {
  const auto model = module_state(state.model);
  check_safetensors(model);
  check_loadable(model);
  for (const auto& [name, optimizer] : optimizers_by_name(state)) {
    check_has_model(state, name);
    check_file_name("an optimizer", name, optimizer_file(name));
    check_optimizer(optimizer, model, optimizer_title(name));
  }
  for (const auto& [name, object] : state.shared) {
    check_file_name("an object of .shared", name, "shared-" + name + ".state");
    if (!object) throw std::invalid_argument("the object " + safetensors::quote_name(name) + " of .shared is empty");
  }
  for (const auto& [name, object] : state.per_rank) {
    if (!object) throw std::invalid_argument("the object " + safetensors::quote_name(name) + " of .per_rank is empty");
  }
  for (const auto& [file, object] : shared_objects(state)) {
    if (group.rank() != 0 && file != "sampler.state") continue;  // as in a save
    const auto failure = failure_of([&] { static_cast<void>(object.save()); });
    if (!failure.empty()) throw std::invalid_argument(file + " cannot be saved: " + failure);
  }
  static_cast<void>(rank_part(state, group));
  static_cast<void>(state.values.to_json());
}

}  // namespace

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

void check_run(const TrainingState& state, const GroupHandle& group) {
  const auto failure = combined_failures(failure_of([&] { check_own_part(state, group); }), group);
  if (!failure.empty()) throw std::runtime_error(failure);
}

RunContent collect_run(int64_t step, const TrainingState& state, const GroupHandle& group) {
  const auto parts = gather_parts(step, state, group);
  RunContent content;
  std::string failure;
  if (group.rank() == 0) {
    failure = failure_of([&] {
      const auto model = module_state(state.model);
      check_loadable(model);
      if (state.model) content.safetensors[kModelFile].tensors = model;
      for (const auto& [name, optimizer] : optimizers_by_name(state)) {
        check_has_model(state, name);
        auto& part = content.safetensors[optimizer_file(name)];
        part.metadata[kOptimizerKey] = save_optimizer_state(optimizer, model, part.tensors, optimizer_title(name));
      }
      for (const auto& [file, object] : shared_objects(state)) content.texts[file] = object.save();
      content.safetensors[kRanksFile] = merge_ranks(parts);
      content.texts[kValuesFile] = state.values.to_json() + "\n";
    });
  }
  failure = broadcast_string(failure, 0, group);
  if (!failure.empty()) throw std::runtime_error(failure);
  return content;
}

}  // namespace ddp
