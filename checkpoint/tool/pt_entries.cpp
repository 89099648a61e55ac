#include "checkpoint/tool/pt_entries.h"

#include "checkpoint/pt/tensor_walk.h"

namespace ddp::tool {

std::map<std::string, std::string> unread_entries(const pt::Value& root, const pt::StateDict& state,
                                                  const std::set<std::string>& read_keys, std::string_view model_key) {
  using pt::Kind;
  std::map<std::string, std::string> unread;
  if (!root.is(Kind::kDict) || pt::is_optimizer(root)) return unread;
  // Whether the key gave a tensor or was skipped by name.
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

bool is_nested(const pt::Value& root, const pt::StateDict& state, bool is_chosen) {
  using pt::Kind;
  if (!root.is(Kind::kDict) || pt::is_optimizer(root) || !state.found_under.empty() || state.tensors.empty()) {
    return false;
  }
  bool has_dict = false;
  for (const auto& [key, item] : pt::named_items(root)) {
    if (is_chosen && item->is(Kind::kTensor) && !item->tensor().sizes.empty()) return false;
    const bool gave_tensors = state.tensors.lower_bound(key + ".") != state.tensors.lower_bound(key + "/");
    has_dict = has_dict || (pt::as_dict(*item) != nullptr && gave_tensors && !key.ends_with("_extra_state"));
  }
  return has_dict;
}

std::map<std::string, std::string> unread_entries_below(const pt::Value& selected, const pt::StateDict& state,
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

}  // namespace ddp::tool
