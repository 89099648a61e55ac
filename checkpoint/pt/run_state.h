// Finds the parts of a training run in what a .pt file holds: what Python's ddprun.checkpoint and ddprun-checkpoint
// write, and the dicts that Python programs save by hand. No LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/state_dict.h"

namespace ddp::pt {

/// A run's parts; absent ones are empty. States are JSON under Python's names.
struct RunState {
  StateDict model{};
  bool has_model = false;
  std::map<std::string, StateDict> optimizers{};  ///< by name; the main one's is empty
  std::string scaler{};
  std::string schedule{};
  std::string sampler{};
  std::map<std::string, std::string> shared{};                 ///< objects, as they saved themselves
  std::vector<std::map<std::string, TensorEntry>> rng{};       ///< of each rank, by device: uint8
  std::vector<std::map<std::string, std::string>> per_rank{};  ///< objects of each rank
  std::optional<int64_t> step{};
  std::string foreign_step{};  ///< without a step: the key of an object that is not read
  std::optional<int64_t> world_size{};
  std::string values{};  ///< a JSON object: every plain value beside the parts, and those of `own_values`; without
                         ///< the run's own step and world_size where ddprun.checkpoint or the tool wrote them
  std::string plain{};   ///< the former alone
  std::set<std::string> read_keys{};  ///< of the root: whose values are parts of the run, whole or in part
  std::string own_values{};           ///< what is under `values`; empty for nothing
};

/// Looks under the keys that are usual in Python: model, state_dict, model_state_dict …; optimizer, optim,
/// optimizer_state_dict, optimizer_<name>, optimizers, optimizer_states; scaler, grad_scaler, scaler_state_dict;
/// scheduler, lr_scheduler, scheduler_state_dict, lr_schedulers; sampler; rng, rng_state; step, global_step, iteration,
/// or else epoch. `model_key` names the model's entry, see select(). Throws FormatError when there is neither a model
/// nor an optimizer, and when parts are of another form.
RunState find_run(const PtFile& file, const std::string& model_key = {});

/// Adds to `run` what find_run() looks for beside the model and the optimizers in the dict `root`.
void add_rest(const Value& root, const ScalarReader& read_scalar, RunState& run);

/// Whether add_rest() looks for a part of a run that is a dict, such as a scheduler's state, under `key`.
bool is_rest_key(std::string_view key);

/// The name of the optimizer whose state is under `key`: "" (the main one) of "optimizer", "optim",
/// "optimizer_state_dict" and "optimizer_state", "g" of "optimizer_g" and "g_optimizer"; nothing for other keys.
std::optional<std::string> optimizer_name(std::string_view key);

/// The entry `key` of nested dicts: "ema", or "state.ema" with dots between the levels. Throws FormatError naming the
/// keys that there are.
const Value& select(const Value& root, const std::string& key);

/// The number in the bytes of one element of float32, float64, int64 or int32; nothing for other dtypes.
std::optional<double> number_in(std::string_view dtype, std::string_view bytes);

/// The number in a tensor of one element of the file; see ScalarReader.
ScalarReader scalar_reader(const PtFile& file);

}  // namespace ddp::pt
