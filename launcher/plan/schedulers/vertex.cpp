// Vertex AI's CLUSTER_SPEC, and TF_CONFIG, which it sets too: {"cluster": {pool: ["host:port", ...]}, "task": {"type":
// pool, "index": N}}.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "launcher/plan/schedulers/systems.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxPools = 64;

[[noreturn]] void refuse(const std::string& variable, const std::string& why) {
  throw std::invalid_argument(variable + ": " + why);
}

// The pools whose machines train, in the order of the nodes' numbers.
std::vector<std::string> training_pools(const Json& cluster) {
  std::vector<std::string> pools;
  for (const char* name : {"chief", "master", "worker"}) {
    if (cluster.contains(name)) pools.emplace_back(name);
  }
  for (std::size_t number = 0; number < kMaxPools; ++number) {
    if (const std::string name = "workerpool" + std::to_string(number); cluster.contains(name)) pools.push_back(name);
  }
  return pools;
}

struct VertexMember {
  std::string pool;
  std::size_t index;
};

VertexMember own_place(const std::string& variable, const Json& document) {
  const auto task = document.find("task");
  if (task == document.end() || !task->is_object()) refuse(variable, "it has no object \"task\"");
  const auto type = task->find("type");
  const auto index = task->find("index");
  if (type == task->end() || !type->is_string()) refuse(variable, "its task has no \"type\"");
  // Some systems write the number as text.
  const std::string number = index == task->end()          ? ""
                             : index->is_string()          ? index->get<std::string>()
                             : index->is_number_unsigned() ? std::to_string(index->get<std::uint64_t>())
                                                           : "";
  std::size_t value = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, value);
  if (number.empty() || error != std::errc{} || stop != end) refuse(variable, "its task has no integer \"index\"");
  return {type->get<std::string>(), value};
}

// "host:port"
void read_master(const std::string& variable, const std::string& text, ScheduledPlace& place) {
  const std::size_t colon = text.rfind(':');
  place.master_addr = {text.substr(0, colon), "the first machine of " + variable};
  if (colon == std::string::npos) return;
  unsigned port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc{} || stop != end || port == 0 || port > 65535) {
    refuse(variable, "'" + shown("its first machine", text) + "' has no port");
  }
  place.master_port = {static_cast<std::uint16_t>(port), place.master_addr->why};
}

ScheduledPlace read(const std::string& variable, const std::string& text) {
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) refuse(variable, "it is not a JSON object");
  const auto cluster = document.find("cluster");
  if (cluster == document.end() || !cluster->is_object()) refuse(variable, "it has no object \"cluster\"");
  const VertexMember own = own_place(variable, document);

  std::string first;
  std::size_t count = 0;
  std::optional<std::size_t> place_of_own;
  for (const std::string& pool : training_pools(*cluster)) {
    const Json& machines = (*cluster)[pool];
    const auto is_name = [](const Json& machine) { return machine.is_string(); };
    if (!machines.is_array() || !std::all_of(machines.begin(), machines.end(), is_name)) {
      refuse(variable, "its pool \"" + pool + "\" is not a list of machines");
    }
    if (first.empty() && !machines.empty()) first = machines.front().get<std::string>();
    if (pool == own.pool && own.index < machines.size()) place_of_own = count + own.index;
    count += machines.size();
  }
  if (!place_of_own || count > kMaxScheduledNodes) {
    refuse(variable, "its task, " + shown("type", own.pool) + " and index=" + std::to_string(own.index) +
                         ", is not one of the " + std::to_string(count) + " machines that train");
  }
  ScheduledPlace place{.system = variable,
                       .nnodes = {{static_cast<int>(count), "machines in the pools of " + variable}},
                       .node_rank = {{static_cast<int>(*place_of_own), "the task of " + variable}}};
  read_master(variable, first, place);
  return place;
}

}  // namespace

std::optional<ScheduledPlace> read_vertex(const ProcessContext& context) {
  for (const char* variable : {"CLUSTER_SPEC", "TF_CONFIG"}) {
    const auto text = text_of(context, variable);
    if (!text) continue;
    // The TF_CONFIG of a single machine has no cluster.
    if (text->find("\"cluster\"") == std::string::npos) continue;
    return read(variable, *text);
  }
  return std::nullopt;
}

}  // namespace launcher
