#include "checkpoint/core/python_state.h"

#include <nlohmann/json.hpp>

#include "checkpoint/core/shallow_json.h"

namespace ddp {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;

// Discarded when it is none.
json parse(const std::string& text) {
  try {
    return parse_shallow_json(text);
  } catch (const json::exception&) {
    return json(json::value_t::discarded);
  }
}

// Leaves out what Python's classes do not have, and adds what their load_state_dict() asks for.
void make_python(json& schedule, size_t groups, int depth) {
  const auto type = schedule.value("type", std::string());
  schedule.erase("type");
  schedule.erase("groups");
  // MultiStepLR counts them by whole numbers, which JSON has no keys for; the program's own are right.
  if (const auto found = schedule.find("milestones"); found != schedule.end() && found->is_object()) {
    schedule.erase(found);
  }
  if (type == "LambdaLR" || type == "MultiplicativeLR") schedule["lr_lambdas"] = json(groups, nullptr);
  if (schedule.contains("_schedulers") && depth < kMaxDepth) {
    for (auto& part : schedule["_schedulers"]) make_python(part, groups, depth + 1);
  }
}

// What OneCycleLR keeps in an optimizer's groups, wherever it is among composed schedules.
void add_bounds(const json& schedule, json& groups, int depth) {
  const auto bounds = schedule.find("groups");
  if (bounds != schedule.end() && bounds->is_array() && bounds->size() == groups.size()) {
    for (size_t i = 0; i < groups.size(); ++i) groups[i].update((*bounds)[i]);
  }
  const auto parts = schedule.find("_schedulers");
  if (parts == schedule.end() || depth >= kMaxDepth) return;
  for (const auto& part : *parts) add_bounds(part, groups, depth + 1);
}

bool is_lr_scheduler(const json& state) {
  return state.is_object() && state.contains("schedule") && state.contains("groups") && state["schedule"].is_object();
}

}  // namespace

std::optional<std::string> json_object(const std::string& text) {
  if (!parse(text).is_object()) return std::nullopt;
  return text;
}

std::string python_schedule(const std::string& text) {
  auto state = parse(text);
  if (!is_lr_scheduler(state)) {
    if (state.is_object()) make_python(state, state.value("base_lrs", json::array()).size(), 0);
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
  for (size_t i = 0; i < groups.size(); ++i) groups[i]["initial_lr"] = state["groups"][i].at("initial_lr");
  add_bounds(state["schedule"], groups, 0);
  return optimizer.dump();
}

}  // namespace ddp
