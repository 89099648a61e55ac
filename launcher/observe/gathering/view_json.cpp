#include "launcher/observe/gathering/view_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;
using ddp::detail::GroupRecord;
using ddp::detail::ProgressSnapshot;
using RankPhase = ddp::progress::Phase;
using nlohmann::json;

constexpr std::size_t kMaxFieldBytes = 256;
constexpr std::size_t kMaxOpenCalls = 64;

std::uint64_t age_of(std::uint64_t time, std::uint64_t now) {
  return now > time ? now - time : 0;
}

std::string text_in(const json& object, const char* name) {
  return printable(beginning(object.at(name).get_ref<const std::string&>(), kMaxFieldBytes));
}

int rank_in(const json& object, const char* name) {
  return std::clamp(object.at(name).get<int>(), 0, 1 << 24);
}

json json_of(const CollectiveRecord& call) {
  json object{{"i", call.index}, {"n", call.number}, {"g", call.group}, {"s", call.signature}};
  if (call.hash != 0) object["h"] = call.hash;
  if (call.is_open()) object["o"] = true;
  if (call.is_message) object["m"] = true;
  return object;
}

CollectiveRecord call_from(const json& object) {
  CollectiveRecord call{.index = object.at("i").get<std::uint64_t>(),
                        .number = object.at("n").get<std::uint64_t>(),
                        .group = object.at("g").get<std::uint32_t>(),
                        .signature = text_in(object, "s"),
                        .hash = object.value("h", std::uint64_t{0}),
                        .is_message = object.value("m", false)};
  if (!object.value("o", false)) call.end = 0;  // the time of its end is not needed
  return call;
}

json calls_of(const ProgressSnapshot& progress, std::size_t most_calls) {
  json calls = json::array();
  std::size_t open = 0;
  for (std::size_t i = 0; i < progress.collectives.size(); ++i) {
    const CollectiveRecord& call = progress.collectives[i];
    const bool is_late = i + most_calls >= progress.collectives.size();
    if (is_late || (call.is_open() && ++open <= kMaxOpenCalls)) calls.push_back(json_of(call));
  }
  return calls;
}

json json_of(const ProgressSnapshot& progress, std::uint64_t now, std::size_t most_calls) {
  json groups = json::array();
  for (const GroupRecord& group : progress.groups) {
    groups.push_back({{"path", group.path}, {"rank", group.rank}, {"size", group.size}, {"leader", group.leader}});
  }
  return {{"step", progress.step},
          {"phase", static_cast<unsigned>(progress.phase)},
          {"name", progress.phase_name},
          {"age", age_of(progress.phase_since, now)},
          {"begun", progress.collectives_begun},
          {"groups", std::move(groups)},
          {"calls", calls_of(progress, most_calls)}};
}

ProgressSnapshot progress_from(const json& object, std::uint64_t now) {
  const unsigned phase = object.at("phase").get<unsigned>();
  ProgressSnapshot progress{.step = object.at("step").get<std::uint64_t>(),
                            .phase = static_cast<RankPhase>(std::min(phase, static_cast<unsigned>(RankPhase::kUser))),
                            .phase_name = text_in(object, "name"),
                            .phase_since = age_of(object.at("age").get<std::uint64_t>(), now),
                            .collectives_begun = object.at("begun").get<std::uint64_t>()};
  for (const json& group : object.at("groups")) {
    progress.groups.push_back({.path = text_in(group, "path"),
                               .rank = rank_in(group, "rank"),
                               .size = rank_in(group, "size"),
                               .leader = rank_in(group, "leader")});
  }
  for (const json& each : object.at("calls")) {
    CollectiveRecord call = call_from(each);
    if (call.group < progress.groups.size()) progress.collectives.push_back(std::move(call));
  }
  return progress;
}

json json_of(const ProcessState& state) {
  return {{"state", std::string(1, state.state)}, {"in", state.waits_in}};
}

ProcessState process_from(const json& object) {
  const std::string state = text_in(object, "state");
  return {.state = state.empty() ? '?' : state.front(), .waits_in = text_in(object, "in")};
}

}  // namespace

json json_of(const RankView& view, std::uint64_t now, std::size_t most_calls) {
  json object{{"rank", view.rank},    {"host", view.host},    {"pid", view.pid},
              {"ended", view.ended},  {"idle", view.idle_us}, {"unchanged", view.unchanged_us},
              {"cpu", view.cpu_share}};
  if (view.progress) object["progress"] = json_of(*view.progress, now, most_calls);
  if (view.process) object["process"] = json_of(*view.process);
  if (view.python) object["python"] = {{"call", view.python->call}, {"line", view.python->line}};
  if (view.at_store) object["store"] = *view.at_store;
  return object;
}

std::optional<RankView> view_from(const json& object, std::uint64_t now) try {
  RankView view{.rank = rank_in(object, "rank"),
                .host = text_in(object, "host"),
                .pid = rank_in(object, "pid"),
                .ended = text_in(object, "ended"),
                .idle_us = object.at("idle").get<std::uint64_t>(),
                .unchanged_us = object.at("unchanged").get<std::uint64_t>(),
                .cpu_share = object.at("cpu").get<double>()};
  if (object.contains("progress")) view.progress = progress_from(object.at("progress"), now);
  if (object.contains("process")) view.process = process_from(object.at("process"));
  if (object.contains("python")) {
    const json& place = object.at("python");
    view.python = PythonPlace{.call = text_in(place, "call"), .line = text_in(place, "line")};
  }
  if (object.contains("store")) view.at_store = object.at("store").get<bool>();
  return view;
} catch (const json::exception&) {
  return std::nullopt;
}

json json_of(const RankSample& sample) {
  json object{{"rank", sample.rank},
              {"host", sample.host},
              {"process", sample.totals.process},
              {"steps", sample.totals.steps},
              {"time", sample.totals.time},
              {"spent", sample.totals.spent},
              {"waited", sample.totals.waited},
              {"on_cpu", sample.delays.on_cpu_us},
              {"delay", sample.delays.run_delay_us},
              {"throttled", sample.delays.throttled_us},
              {"faults", sample.delays.major_faults},
              {"disk", sample.delays.disk_us},
              {"disk_looks", sample.delays.disk_sample_count},
              {"looks", sample.delays.sample_count},
              {"cpus", sample.delays.cpus}};
  for (const auto& [name, time] : sample.totals.named) object["named"][name] = {time.spent, time.waited};
  if (sample.gpu) {
    object["gpu"] = {{"mhz", sample.gpu->clock_mhz}, {"celsius", sample.gpu->celsius}, {"limits", sample.gpu->limits}};
  }
  return object;
}

std::optional<RankSample> sample_from(const json& object) try {
  RankSample sample{.rank = rank_in(object, "rank"),
                    .host = text_in(object, "host"),
                    .totals = {.process = object.at("process").get<int>(),
                               .steps = object.at("steps").get<std::uint64_t>(),
                               .time = object.at("time").get<std::uint64_t>(),
                               .spent = object.at("spent"),
                               .waited = object.at("waited")},
                    .delays = {.on_cpu_us = object.value("on_cpu", std::uint64_t{0}),
                               .run_delay_us = object.at("delay").get<std::uint64_t>(),
                               .throttled_us = object.at("throttled").get<std::uint64_t>(),
                               .major_faults = object.at("faults").get<std::uint64_t>(),
                               .disk_us = object.at("disk").get<std::uint64_t>(),
                               .disk_sample_count = object.at("disk_looks").get<std::uint64_t>(),
                               .sample_count = object.at("looks").get<std::uint64_t>(),
                               .cpus = rank_in(object, "cpus")}};
  const json named = object.value("named", json::object());
  for (const auto& [name, time] : named.items()) {
    if (sample.totals.named.size() == ddp::detail::kNameEntries) break;
    sample.totals.named[printable(beginning(name, kMaxFieldBytes))] = {.spent = time.at(0).get<std::uint64_t>(),
                                                                       .waited = time.at(1).get<std::uint64_t>()};
  }
  if (object.contains("gpu")) {
    const json& gpu = object.at("gpu");
    sample.gpu = GpuState{.clock_mhz = rank_in(gpu, "mhz"),
                          .celsius = rank_in(gpu, "celsius"),
                          .limits = gpu.at("limits").get<std::uint64_t>()};
  }
  return sample;
} catch (const json::exception&) {
  return std::nullopt;
}

}  // namespace launcher
