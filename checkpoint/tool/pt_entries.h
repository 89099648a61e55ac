// What of a .pt file is the model, and what of it is not read. No LibTorch.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt/state_dict.h"

namespace ddp::tool {

/// Entries of `root` that are neither the model, which is below `model_key` unless that is empty, nor another part of
/// the run nor a plain value, and what they are.
std::map<std::string, std::string> unread_entries(const pt::Value& root, const pt::StateDict& state,
                                                  const std::set<std::string>& read_keys, std::string_view model_key);

/// The same of the dict that `key` selects. Its optimizer is read with the model.
std::map<std::string, std::string> unread_entries_below(const pt::Value& selected, const pt::StateDict& state,
                                                        const std::string& key);

/// Whether tensors are those of dicts below keys that are not usual: {"model_state": {…}, "best": tensor}. What
/// get_extra_state() returns may be a dict in a state dict. A `root` that the user has chosen with --key may have dicts
/// beside tensors of its own.
bool is_nested(const pt::Value& root, const pt::StateDict& state, bool is_chosen);

/// The model that `key` selects, with the main optimizer, wherever the model is.
pt::StateDict find_model(const pt::PtFile& source, const std::string& key, const pt::RunState& run);

}  // namespace ddp::tool
