#include "checkpoint/dcp/run_layout.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt/state_dict.h"

namespace ddp::dcp {
namespace {

// The place of an entry in an optimizer's dict, whose keys begin at the part `begin` of the path.
std::optional<Place> in_optimizer(const Path& path, size_t begin, std::string name) {
  const auto* key = key_at(path, begin);
  if (key == nullptr) return std::nullopt;
  Place place{.optimizer = std::move(name), .begin = begin};
  place.is_flattened = key->starts_with(kFlatState) || key->starts_with(kFlatGroup);
  const bool has_more = path.size() > begin + 1;
  if (!place.is_flattened && (!has_more || (*key != "state" && *key != "param_groups"))) return std::nullopt;
  place.role = key->starts_with("state") ? Role::kState : Role::kGroup;
  if (!place.is_flattened) ++place.begin;
  return place;
}

// The place of an entry that belongs to an optimizer, if the part `begin` of the path names one.
std::optional<Place> of_optimizer(const Path& path, size_t begin) {
  const auto* key = key_at(path, begin);
  if (key == nullptr) return std::nullopt;
  if (const auto name = pt::optimizer_name(*key)) {
    if (auto place = in_optimizer(path, begin + 1, *name)) return place;
  }
  if (*key != "optimizers" && *key != "optimizer" && *key != "optimizer_states") return std::nullopt;
  if (path.size() < begin + 3) return std::nullopt;
  return in_optimizer(path, begin + 2, flat_key({path[begin + 1]}));
}

bool is_usual(const Path& path, size_t begin) {
  const auto* key = key_at(path, begin);
  if (key == nullptr) return false;
  return (pt::is_model_key(*key) && path.size() > begin + 1) || of_optimizer(path, begin);
}

// The one key below which the usual keys are, as in {"app": {"model": …, "optim": …}}; empty where they are at the root
// or nowhere.
std::string common_key(const FolderMetadata& metadata) {
  std::set<std::string> above;
  for (const auto& entry : metadata.entries) {
    if (is_usual(entry.path, 0)) return "";
    const auto* key = key_at(entry.path, 0);
    if (key != nullptr && above.size() < 2 && is_usual(entry.path, 1)) above.insert(*key);
  }
  return above.size() == 1 ? *above.begin() : "";
}

// The first usual key that has tensors below it; empty if no usual key has any.
std::string_view model_key(const FolderMetadata& metadata, const std::vector<size_t>& begins) {
  std::set<std::string_view> keys;
  for (size_t i = 0; i < metadata.entries.size(); ++i) {
    const auto& entry = metadata.entries[i];
    const auto* key = key_at(entry.path, begins[i]);
    if (entry.is_tensor && key != nullptr && entry.path.size() > begins[i] + 1) keys.insert(*key);
  }
  for (const auto key : pt::model_keys()) {
    if (keys.contains(key)) return key;
  }
  return "";
}

// Whether the folder holds an optimizer's state_dict() alone.
bool is_bare_optimizer(const FolderMetadata& metadata) {
  return std::ranges::any_of(metadata.entries, [](const Entry& entry) {
    const auto place = in_optimizer(entry.path, 0, "");
    return place && place->role == Role::kGroup;
  });
}

// In {"optimizers": [{…}]} a single optimizer is the main one, as in .pt files. Several optimizers have numbers.
void name_sole_optimizer(const FolderMetadata& metadata, const std::vector<size_t>& begins,
                         std::vector<Place>& places) {
  const auto is_listed = [&](size_t i) {
    const auto at = begins[i] + 1;
    const bool is_optimizer = places[i].role == Role::kState || places[i].role == Role::kGroup;
    return is_optimizer && at < metadata.entries[i].path.size() &&
           std::holds_alternative<int64_t>(metadata.entries[i].path[at]);
  };
  std::set<std::string_view> names;
  bool has_main = false;
  for (size_t i = 0; i < places.size(); ++i) {
    if (is_listed(i)) {
      names.insert(places[i].optimizer);
    } else if (places[i].role == Role::kGroup && places[i].optimizer.empty()) {
      has_main = true;
    }
  }
  if (names.size() != 1 || has_main) return;
  for (size_t i = 0; i < places.size(); ++i) {
    if (is_listed(i)) places[i].optimizer.clear();
  }
}

}  // namespace

std::vector<Place> find_places(const FolderMetadata& metadata) {
  const auto& entries = metadata.entries;
  const auto common = common_key(metadata);
  std::vector<size_t> begins(entries.size(), 0);
  for (size_t i = 0; i < entries.size() && !common.empty(); ++i) {
    const auto* key = key_at(entries[i].path, 0);
    if (key != nullptr && *key == common && entries[i].path.size() > 1) begins[i] = 1;
  }
  const bool is_optimizer = common.empty() && is_bare_optimizer(metadata);
  const auto model = model_key(metadata, begins);
  std::vector<Place> places(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    auto& place = places[i];
    place.begin = begins[i];
    const auto* key = key_at(entry.path, begins[i]);
    if (auto found = is_optimizer ? in_optimizer(entry.path, 0, "") : of_optimizer(entry.path, begins[i])) {
      place = std::move(*found);
    } else if (!model.empty()) {
      if (key == nullptr || *key != model || entry.path.size() < begins[i] + 2) continue;
      place = {.role = Role::kModel, .begin = begins[i] + 1};
    } else if (entry.is_tensor && !is_optimizer && (key == nullptr || !pt::is_rest_key(*key))) {
      place.role = Role::kModel;
    }
  }
  name_sole_optimizer(metadata, begins, places);
  return places;
}

}  // namespace ddp::dcp
