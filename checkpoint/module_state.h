// A module's state by name, as Python's state_dict() lists it, and the check that a file holds exactly that state.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <ddprun/checkpoint/options.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/checkpoint/training_state.h>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Parameters and buffers of `module` by name, detached, in the module's own memory: of a fully sharded model this
/// rank's rows. A wrapper's `module.` in front of every name is left out.
TensorMap module_state(const torch::nn::Module& module);

/// The states of all models together; with a named model's name and a dot before its names.
TensorMap module_state(const ModelRefs& models);

/// The names of module_state() in the order in which the modules registered the tensors, parameters first.
std::vector<std::string> names_in_order(const ModelRefs& models);

/// Which names of module_state() are buffers. Their values differ between ranks where nothing makes them equal, as the
/// running statistics of a BatchNorm between two forwards.
std::set<std::string> buffer_names(const ModelRefs& models);

/// Whether a tensor of `model` is a shard of fully_shard().
bool has_shards(const TensorMap& model);

/// Throws std::invalid_argument where a tensor of `model` is a shard of fully_shard(), which `user` would treat as the
/// whole; `instead` says what to do.
void require_whole(const TensorMap& model, const std::string& user, const std::string& instead);

/// Throws std::invalid_argument naming the first tensor of `model` that no value can be loaded into: an expanded
/// tensor, whose elements share memory, an inference tensor, or one without memory. LibTorch's copy_() refuses the
/// first two.
void check_loadable(const TensorMap& model);

/// `stored` without the wrappers' prefixes that all names of a named model share: "generator.module.fc.weight" as
/// "generator.fc.weight".
StoredTensors without_wrappers(StoredTensors stored, const ModelRefs& models);

/// A value from a file and the tensor that it is meant for, which may be a shard of it: see assign().
struct Assignment {
  at::Tensor target;
  at::Tensor value;
};

/// What read_matching() found.
struct MatchResult {
  std::vector<Assignment> assignments{};
  std::vector<std::string> missing{};     ///< names of the model that are not stored
  std::vector<std::string> unexpected{};  ///< stored names that the model does not have
};

/// Checks that `stored` holds every tensor of `expected` with its shape and dtype, and nothing else but `ignored`, and
/// that a value can be written into each of them. A shard is compared by the shape of the whole. Reads values of no
/// dimensions alone: the others may be meta tensors. Stored names may all begin with
/// `module.` or `_orig_mod.`; tied weights may be stored under one of their names. `options.key` is the caller's, see
/// select_entry(). Throws std::runtime_error listing what is different and, when strict, what is missing and
/// unexpected; and when nothing at all would be loaded.
MatchResult read_matching(const StoredTensors& stored, const TensorMap& expected, const std::set<std::string>& ignored,
                          const LoadOptions& options = {});

/// The tensors below the entry `key`, without it: "ema.fc.weight" as "fc.weight". Throws std::runtime_error when there
/// are none. An empty key is all of them.
StoredTensors select_entry(StoredTensors stored, const std::string& key);

/// The end of an error about weights that are not found: "; the file has tensors under the keys …: choose one with
/// LoadOptions::key …". Empty without entries.
std::string hint_of_entries(const std::vector<std::string>& entries);

/// Copies every value, or of a whole value the rows of the shard that is its target, into its target, on the target's
/// device.
void assign(const std::vector<Assignment>& assignments);

}  // namespace ddp
