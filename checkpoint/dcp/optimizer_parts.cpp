#include "checkpoint/dcp/optimizer_parts.h"

#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/format_error.h"

namespace ddp::dcp {
namespace {

using nlohmann::json;
using pt::FormatError;

std::string dump(const json& value) {
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

struct Group {
  json parameters = json::array();
  json options = json::object();
};

class Assembler {
 public:
  Assembler(const FolderMetadata& metadata, const std::vector<Place>& places, const OptimizerEntries& entries,
            const std::map<size_t, json>& options)
      : metadata_(metadata), places_(places), entries_(entries), options_(options) {}

  OptimizerParts assemble() {
    add_nested_groups();
    add_flattened_groups();
    for (const auto number : entries_.states) add_state(number);
    json root = {{"type", ""}, {"param_groups", json::array()}};
    for (auto& group : groups_) {
      group.options["params"] = std::move(group.parameters);
      root["param_groups"].push_back(std::move(group.options));
    }
    if (is_flattened_) root["per_parameter"] = true;  // the groups of the program that saved it are not known
    parts_.groups = dump(root);
    return std::move(parts_);
  }

 private:
  const Path& path_of(size_t number) const { return metadata_.entries[number].path; }

  void skip(size_t number, std::string what) { parts_.skipped.emplace(metadata_.entries[number].key, std::move(what)); }

  // The value of an option; null where it is None. A value that cannot be read is null too, and is listed as skipped.
  const json* option_of(size_t number) {
    const auto found = options_.find(number);
    if (found == options_.end() || found->second.is_discarded()) {
      skip(number, "not a number, a text or a list of them");
      return nullptr;
    }
    return found->second.is_null() ? nullptr : &found->second;
  }

  // (…, "param_groups", 0, "lr"). A key is a number too where Python had a dict of groups.
  void add_nested_groups() {
    std::map<int64_t, std::vector<size_t>> by_group;
    for (const auto number : entries_.groups) {
      if (places_[number].is_flattened) continue;
      const auto index = group_of(number);
      if (index) {
        by_group[*index].push_back(number);
      } else {
        skip(number, "an option that belongs to no group");
      }
    }
    for (const auto& [index, numbers] : by_group) add_nested_group(index, numbers);
  }

  std::optional<int64_t> group_of(size_t number) const {
    const auto& path = path_of(number);
    const auto begin = places_[number].begin;
    if (path.size() < begin + 2) return std::nullopt;
    if (const auto* index = std::get_if<int64_t>(&path[begin])) return *index;
    const auto& text = std::get<std::string>(path[begin]);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return index;
  }

  void add_nested_group(int64_t index, const std::vector<size_t>& numbers) {
    Group group;
    bool has_parameters = false;
    for (const auto number : numbers) {
      const auto name = flat_key(path_of(number), places_[number].begin + 1);
      const auto* value = option_of(number);
      if (value == nullptr) continue;
      if (name == "params") {
        has_parameters = add_parameters(*value, group);
      } else {
        group.options[name] = *value;
      }
    }
    if (!has_parameters) {
      throw FormatError("the group " + std::to_string(index) + " of an optimizer has no list of its parameters");
    }
    groups_.push_back(std::move(group));
  }

  // Names stay; numbers count the parameters through all groups, as in .pt files.
  bool add_parameters(const json& list, Group& group) {
    if (!list.is_array()) return false;
    for (const auto& each : list) {
      if (!each.is_string() && !each.is_number_integer()) return false;
      const auto number = std::to_string(count_++);
      auto key = each.is_string() ? each.get<std::string>() : std::to_string(each.get<int64_t>());
      auto name = each.is_string() ? key : std::string(1, '#').append(number);
      group.parameters.push_back(name);
      names_.emplace(std::move(key), std::move(name));
    }
    return true;
  }

  // (…, "param_groups.fc.weight.lr"): each parameter has all options of its group.
  void add_flattened_groups() {
    std::vector<std::string> order;
    std::unordered_map<std::string, std::map<std::string, size_t>> by_parameter;
    for (const auto number : entries_.groups) {
      if (!places_[number].is_flattened) continue;
      const auto text = flat_key(path_of(number), places_[number].begin).substr(kFlatGroup.size());
      const auto dot = text.rfind('.');
      if (dot == std::string::npos) {
        skip(number, "an option that belongs to no parameter");
        continue;
      }
      const auto [known, is_new] = by_parameter.try_emplace(text.substr(0, dot));
      if (is_new) order.push_back(known->first);
      known->second.emplace(text.substr(dot + 1), number);
    }
    is_flattened_ = !order.empty();
    std::unordered_map<std::string, size_t> by_options;  // the group whose options are these
    for (const auto& parameter : order) {
      std::string signature;
      json options = json::object();
      for (const auto& [name, number] : by_parameter.at(parameter)) {
        if (const auto* value = option_of(number)) options[name] = *value;
      }
      const auto [known, is_new] = by_options.try_emplace(dump(options), groups_.size());
      if (is_new) groups_.push_back({.options = std::move(options)});
      groups_[known->second].parameters.push_back(parameter);
      names_.emplace(parameter, parameter);
    }
  }

  void add_state(size_t number) {
    const auto& place = places_[number];
    if (!metadata_.entries[number].is_tensor) return skip(number, "not a tensor, as the state of an optimizer needs");
    std::string parameter, field;
    if (place.is_flattened) {
      split_flattened(flat_key(path_of(number), place.begin).substr(kFlatState.size()), parameter, field);
    } else {
      parameter = flat_key({path_of(number)[place.begin]});
      field = flat_key(path_of(number), place.begin + 1);
    }
    const auto name = names_.find(parameter);
    if (name == names_.end() || field.empty()) return skip(number, "state of no parameter in the optimizer's groups");
    const auto full = "state." + name->second + "." + field;
    if (!parts_.tensors.emplace(full, number).second) {
      throw FormatError("two tensors are the optimizer's " + safetensors::quote_name(full));
    }
  }

  // The parameter's name and the field's name may both contain dots: the longest parameter name that exists is right.
  void split_flattened(const std::string& text, std::string& parameter, std::string& field) const {
    constexpr int kMaxParts = 64;  // of a field
    int parts = 0;
    for (auto dot = text.rfind('.'); dot != std::string::npos && dot > 0 && parts < kMaxParts; ++parts) {
      parameter = text.substr(0, dot);
      field = text.substr(dot + 1);
      if (names_.contains(parameter)) return;
      dot = text.rfind('.', dot - 1);
    }
  }

  const FolderMetadata& metadata_;
  const std::vector<Place>& places_;
  const OptimizerEntries& entries_;
  const std::map<size_t, json>& options_;
  std::vector<Group> groups_;
  bool is_flattened_ = false;
  std::unordered_map<std::string, std::string> names_;  // of parameters, by their keys in the folder
  int64_t count_ = 0;
  OptimizerParts parts_;
};

}  // namespace

OptimizerParts assemble_optimizer(const FolderMetadata& metadata, const std::vector<Place>& places,
                                  const OptimizerEntries& entries, const std::map<size_t, json>& options) {
  return Assembler(metadata, places, entries, options).assemble();
}

}  // namespace ddp::dcp
