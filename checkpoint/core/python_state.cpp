#include "checkpoint/core/python_state.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

#include "checkpoint/core/shallow_json.h"

namespace ddp {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;

// Discarded when it is not one.
json parse(const std::string& text) {
  try {
    return parse_shallow_json(text);
  } catch (const json::exception&) {
    return json(json::value_t::discarded);
  } catch (const std::invalid_argument&) {
    return json(json::value_t::discarded);
  }
}

// Empty where the object of a program's own class has no string under `key`.
std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Leaves out what Python's classes do not have, and adds what their load_state_dict() asks for. The class's name stays:
// Python keeps it as an attribute that is never read, and C++ knows the schedule by it when the state comes back.
void make_python(json& schedule, size_t groups, int depth) {
  if (!schedule.is_object()) return;
  const auto type = text_of(schedule, "type");
  if (type.empty()) schedule.erase("type");
  schedule.erase("groups");
  // Python's MultiStepLR has integers as the keys of its milestones, which JSON cannot hold. Those of the program's own
  // object are correct.
  if (const auto found = schedule.find("milestones"); found != schedule.end() && found->is_object()) {
    schedule.erase(found);
  }
  if (type == "LambdaLR" || type == "MultiplicativeLR") schedule["lr_lambdas"] = json(groups, nullptr);
  if (depth == kMaxDepth) return;
  if (const auto parts = schedule.find("_schedulers"); parts != schedule.end() && parts->is_array()) {
    for (auto& part : *parts) make_python(part, groups, depth + 1);
  }
}

// Adds the bounds that OneCycleLR keeps in an optimizer's groups, at any depth of composed schedules.
void add_bounds(const json& schedule, json& groups, int depth) {
  if (!schedule.is_object()) return;
  const auto bounds = schedule.find("groups");
  if (bounds != schedule.end() && bounds->is_array() && bounds->size() == groups.size()) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].is_object() && (*bounds)[i].is_object()) groups[i].update((*bounds)[i]);
    }
  }
  const auto parts = schedule.find("_schedulers");
  if (parts == schedule.end() || !parts->is_array() || depth >= kMaxDepth) return;
  for (const auto& part : *parts) add_bounds(part, groups, depth + 1);
}

bool is_lr_scheduler(const json& state) {
  if (!state.is_object() || !state.contains("schedule") || !state.contains("groups")) return false;
  const auto& groups = state["groups"];
  return state["schedule"].is_object() && groups.is_array() &&
         std::all_of(groups.begin(), groups.end(), [](const auto& group) {
           return group.is_object() && group.contains("lr") && group.contains("initial_lr");
         });
}

}  // namespace

std::optional<std::string> json_object(const std::string& text) {
  if (!parse(text).is_object()) return std::nullopt;
  return text;
}

std::string python_schedule(const std::string& text) {
  auto state = parse(text);
  if (!is_lr_scheduler(state)) {
    if (!state.is_object()) return text;
    make_python(state, state.contains("base_lrs") ? state["base_lrs"].size() : 0, 0);
    return state.dump();
  }
  auto schedule = state["schedule"];
  make_python(schedule, state["groups"].size(), 0);
  schedule["_last_lr"] = json::array();
  for (const auto& group : state["groups"]) schedule["_last_lr"].push_back(group.at("lr"));
  return schedule.dump();
}

std::string with_schedule(const std::string& text, const std::string& schedule_state) {
  const auto state = parse(schedule_state);
  auto optimizer = parse(text);
  if (!is_lr_scheduler(state) || !optimizer.is_object() || !optimizer.contains("param_groups")) return text;
  auto& groups = optimizer["param_groups"];
  if (!groups.is_array() || groups.size() != state["groups"].size()) return text;
  if (!std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group.is_object(); })) return text;
  for (size_t i = 0; i < groups.size(); ++i) groups[i]["initial_lr"] = state["groups"][i].at("initial_lr");
  add_bounds(state["schedule"], groups, 0);
  return optimizer.dump();
}

}  // namespace ddp
