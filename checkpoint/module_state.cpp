#include "checkpoint/module_state.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <ddprun/detail/comm/shard_group.h>

#include "base/joined.h"
#include "checkpoint/core/name_pattern.h"
#include "checkpoint/core/printable_text.h"
#include "checkpoint/skipped_items.h"

namespace ddp {
namespace {

using safetensors::quote_name;

// Prefixes that wrappers and torch.compile add to names.
constexpr std::array<std::string_view, 2> kWrapperPrefixes = {"module.", "_orig_mod."};

constexpr size_t kShownNames = 6;

// The length of the wrapper prefixes that all names begin with: a model that was wrapped n times has n prefixes.
template <typename Names>
size_t shared_wrapper_prefix(const Names& names) {
  size_t length = 0;
  const auto one_more = [&](std::string_view prefix) {
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.compare(length, prefix.size(), prefix) == 0; });
  };
  for (bool found = !names.empty(); found;) {
    const auto* prefix = std::find_if(kWrapperPrefixes.begin(), kWrapperPrefixes.end(), one_more);
    found = prefix != kWrapperPrefixes.end();
    if (found) length += prefix->size();
  }
  return length;
}

// The stored tensors that may belong to the model, under the names that they have in the model.
struct Candidates {
  std::map<std::string, at::Tensor> tensors{};
  std::map<std::string, std::string> aliases{};  // of tied weights, which are stored once: other name -> stored name
};

Candidates candidates_in(const StoredTensors& stored, const std::set<std::string>& ignored, const NameMap& rename) {
  Candidates candidates;
  for (const auto& [name, tensor] : stored.tensors) {
    if (ignored.count(name) != 0) continue;
    const auto renamed = rename(name);
    if (renamed.empty()) continue;
    if (!candidates.tensors.emplace(renamed, tensor).second) {
      throw std::runtime_error(stored.source + ": the given renaming maps two names to " + quote_name(renamed));
    }
  }
  // The metadata lists the names that share a tensor. These names may have the wrappers' prefix too.
  for (const auto& [alias, name] : stored.metadata) {
    if (stored.tensors.count(name) != 0) candidates.aliases.emplace(rename(alias), rename(name));
  }
  return candidates;
}

// The shape of the tensor in a file.
std::vector<int64_t> whole_sizes(const at::Tensor& model) {
  const auto place = shard_place_of(model);
  return place ? place->whole_sizes : model.sizes().vec();
}

bool fits(const at::Tensor& model, const at::Tensor& value, bool cast) {
  if (value.sizes() != whole_sizes(model)) return false;
  if (model.scalar_type() == value.scalar_type()) return true;
  if (!cast) return false;
  if (model.is_floating_point() && value.is_floating_point()) return true;
  // LibTorch's Module::to(kHalf) makes a BatchNorm's counter of batches a half too.
  return model.dim() == 0 && !model.is_complex() && !value.is_complex() &&
         value.to(model.scalar_type()).to(value.scalar_type()).equal(value);
}

// Why copy_() cannot write a value into `tensor`; empty when it can.
std::string copy_problem(const at::Tensor& tensor) {
  if (tensor.is_meta()) return "is a meta tensor, which has no memory: move the model to a device first";
  if (tensor.is_inference() && !c10::InferenceMode::is_enabled()) {
    return "is an inference tensor, which nothing can be loaded into: create it outside of InferenceMode, or clone() "
           "it";
  }
  if (tensor.layout() == c10::kStrided && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    return "is an expanded tensor, whose elements share memory, so nothing can be loaded into it: store a clone() with "
           "memory for each element";
  }
  return "";
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << " " << c10::IntArrayRef(whole_sizes(tensor));
  return text.str();
}

// The wrapper prefixes that all names begin with.
std::string wrapper_prefix(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  const auto length = shared_wrapper_prefix(names);
  return length > 0 ? names.front().substr(0, length) : "";
}

// The differences between a file and the model.
struct Mismatches {
  std::vector<std::string> missing{};
  std::vector<std::string> unexpected{};
  std::vector<std::string> different{};

  // "missing 'a', 'b' and 3 more; different: …"; the first two only where all names must be in both.
  std::string text(bool all_names) const {
    std::string text;
    if (all_names) append(text, "missing", missing);
    if (all_names) append(text, "unexpected", unexpected);
    append(text, "different:", different);
    return text;
  }

 private:
  static void append(std::string& text, const char* title, const std::vector<std::string>& items) {
    if (items.empty()) return;
    detail::append_item(text, std::string(title) + " " + detail::joined_some(items, kShownNames), "; ");
  }
};

// The entries of the file that hold everything the model has. If no entry holds all, and the model takes nothing from
// the file: all entries.
std::vector<std::string> entries_for(const StoredTensors& stored, const TensorMap& expected, bool takes_nothing) {
  std::vector<std::string> entries;
  if (!expected.empty()) {
    const auto ending = "." + expected.begin()->first;
    for (const auto& [name, tensor] : stored.tensors) {
      if (!name.ends_with(ending)) continue;
      const auto entry = name.substr(0, name.size() - ending.size());
      const auto is_there = [&](const auto& item) { return stored.tensors.contains(entry + "." + item.first); };
      if (std::ranges::all_of(expected, is_there)) entries.push_back(entry);
    }
  }
  return entries.empty() && takes_nothing ? stored.entries : entries;
}

}  // namespace

std::string hint_of_entries(const std::vector<std::string>& entries) {
  if (entries.empty()) return "";
  return "; the file has tensors under the keys " + detail::joined_some(entries, kShownNames, quote_name) +
         ": choose one with LoadOptions::key, as in {.key = \"" + printable_text(entries.front()) + "\"}";
}

namespace {

struct ModuleTensor {
  std::string name{};
  at::Tensor tensor{};
  bool is_buffer = false;
};

std::vector<ModuleTensor> named_tensors(const torch::nn::Module& module) {
  std::vector<ModuleTensor> named;
  const auto collect = [&](const auto& items, bool is_buffer) {
    for (const auto& item : items) {
      if (item.value().defined()) named.push_back({item.key(), item.value().detach(), is_buffer});
    }
  };
  collect(module.named_parameters(), false);
  collect(module.named_buffers(), true);
  std::vector<std::string> names;
  for (const auto& each : named) names.push_back(each.name);
  const auto prefix = shared_wrapper_prefix(names);
  for (auto& each : named) each.name.erase(0, prefix);
  return named;
}

}  // namespace

TensorMap module_state(const torch::nn::Module& module) {
  TensorMap state;
  for (auto& each : named_tensors(module)) state.emplace(std::move(each.name), std::move(each.tensor));
  return state;
}

TensorMap module_state(const ModelRefs& models) {
  TensorMap all;
  for (const auto& [model_name, model] : models.all()) {
    const auto prefix = model_name.empty() ? "" : model_name + ".";
    for (auto& [name, tensor] : module_state(model.get())) all.emplace(prefix + name, std::move(tensor));
  }
  return all;
}

std::vector<std::string> names_in_order(const ModelRefs& models) {
  std::vector<std::string> names;
  for (const auto& [model_name, model] : models.all()) {
    const auto prefix = model_name.empty() ? "" : model_name + ".";
    for (const auto& each : named_tensors(model.get())) names.push_back(prefix + each.name);
  }
  return names;
}

std::set<std::string> buffer_names(const ModelRefs& models) {
  std::set<std::string> names;
  for (const auto& [model_name, model] : models.all()) {
    const auto prefix = model_name.empty() ? "" : model_name + ".";
    for (const auto& each : named_tensors(model.get())) {
      if (each.is_buffer) names.insert(prefix + each.name);
    }
  }
  return names;
}

bool has_shards(const TensorMap& model) {
  return std::ranges::any_of(model, [](const auto& each) { return shard_place_of(each.second).has_value(); });
}

void require_whole(const TensorMap& model, const std::string& user, const std::string& instead) {
  for (const auto& [name, tensor] : model) refuse_shards({tensor}, user, instead);
}

void check_loadable(const TensorMap& model) {
  for (const auto& [name, tensor] : model) {
    if (const auto problem = copy_problem(tensor); !problem.empty()) {
      throw std::invalid_argument("the model's tensor " + quote_name(name) + " " + problem);
    }
  }
}

StoredTensors without_wrappers(StoredTensors stored, const ModelRefs& models) {
  for (const auto& [model_name, model] : models.all()) {
    if (model_name.empty()) continue;
    const auto prefix = model_name + ".";
    std::vector<std::string> names;
    for (const auto& [name, tensor] : stored.tensors) {
      if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
    }
    const auto wrapped = prefix + (names.empty() ? "" : names.front().substr(0, shared_wrapper_prefix(names)));
    if (wrapped == prefix) continue;
    const auto plain = [&](const std::string& name) {
      return name.starts_with(wrapped) ? prefix + name.substr(wrapped.size()) : name;
    };
    TensorMap tensors;
    for (const auto& [name, tensor] : stored.tensors) tensors.emplace(plain(name), tensor);
    Metadata metadata;
    for (const auto& [alias, name] : stored.metadata) metadata.emplace(plain(alias), plain(name));
    stored.tensors = std::move(tensors);
    stored.metadata = std::move(metadata);
  }
  return stored;
}

MatchResult read_matching(const StoredTensors& stored, const TensorMap& expected, const std::set<std::string>& ignored,
                          const LoadOptions& options) {
  const auto [candidates, aliases] = candidates_in(stored, ignored, options.rename);
  const auto prefix = wrapper_prefix(candidates);
  const auto find = [&candidates = candidates, &aliases = aliases, &prefix](const std::string& name) {
    auto found = candidates.find(prefix + name);
    if (found != candidates.end()) return found;
    const auto alias = aliases.find(prefix + name);
    return alias == aliases.end() ? candidates.end() : candidates.find(alias->second);
  };
  const auto wanted = [&](const std::string& name) {
    return (options.only.empty() || matches_any(name, options.only)) && !matches_any(name, options.skip);
  };

  MatchResult result;
  Mismatches mismatches;
  std::set<std::string> used;
  for (const auto& [name, tensor] : expected) {
    if (!wanted(name)) continue;
    const auto found = find(name);
    if (found == candidates.end()) {
      result.missing.push_back(name);
      mismatches.missing.push_back(quote_name(name) + skipped_reason(stored, prefix + name));
      continue;
    }
    const auto& value = found->second;
    used.insert(found->first);
    if (options.skip_other_shapes && value.sizes() != whole_sizes(tensor)) {
      result.missing.push_back(name);
      continue;
    }
    if (!fits(tensor, value, options.cast)) {
      mismatches.different.push_back(quote_name(name) + " is " + describe(tensor) + " in the model, but " +
                                     describe(value) + " in the file");
    } else if (const auto problem = copy_problem(tensor); !problem.empty()) {
      mismatches.different.push_back(quote_name(name) + " " + problem);
    }
    result.assignments.push_back({tensor, value});
  }
  for (const auto& [name, tensor] : candidates) {
    const auto plain = name.substr(prefix.size());
    if (used.count(name) != 0 || !wanted(plain)) continue;
    result.unexpected.push_back(plain);
    mismatches.unexpected.push_back(quote_name(name));
  }

  const bool takes_nothing = result.assignments.empty() && !expected.empty();
  if (const auto text = mismatches.text(options.strict || takes_nothing); !text.empty()) {
    const auto entries =
        mismatches.missing.empty() ? std::vector<std::string>() : entries_for(stored, expected, takes_nothing);
    throw std::runtime_error(stored.source + " does not fit the model: " + text + hint_of_entries(entries));
  }
  if (takes_nothing) {
    throw std::runtime_error(stored.source +
                             " does not fit the model: none of the names to load is the name of a tensor in the model");
  }
  return result;
}

StoredTensors select_entry(StoredTensors stored, const std::string& key) {
  if (key.empty()) return stored;
  const auto prefix = key + ".";
  StoredTensors selected{.source = stored.source, .tensors = {}, .metadata = {}, .skipped = {}};
  for (const auto& [name, tensor] : stored.tensors) {
    if (name.starts_with(prefix)) selected.tensors.emplace(name.substr(prefix.size()), tensor);
  }
  if (selected.tensors.empty()) {
    throw std::runtime_error(stored.source + " holds nothing under the key " + quote_name(key));
  }
  for (const auto& [alias, name] : stored.metadata) {
    if (alias.starts_with(prefix) && name.starts_with(prefix)) {
      selected.metadata.emplace(alias.substr(prefix.size()), name.substr(prefix.size()));
    }
  }
  return selected;
}

void assign(const std::vector<Assignment>& assignments) {
  const at::NoGradGuard no_grad;
  for (const auto& [target, value] : assignments) {
    const auto place = shard_place_of(target);
    const bool is_whole = place && value.sizes() == place->whole_sizes;
    target.copy_(is_whole ? value.narrow(0, place->first_row, target.size(0)) : value);
  }
}

}  // namespace ddp
