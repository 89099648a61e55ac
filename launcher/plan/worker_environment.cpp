#include "launcher/plan/worker_environment.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/joined.h"
#include "launcher/os/machine/gpu_information.h"

namespace launcher {
namespace {

constexpr const char* kGlooInterface = "GLOO_SOCKET_IFNAME";
constexpr const char* kNcclInterface = "NCCL_SOCKET_IFNAME";

std::string entry(const char* name, const std::string& value) {
  return std::string(name) + "=" + value;
}
std::string entry(const char* name, int value) {
  return entry(name, std::to_string(value));
}

std::string name_of(const std::string& entry_text) {
  return entry_text.substr(0, entry_text.find('='));
}

std::optional<std::string> value_of(std::span<const std::string> environment, const std::string& name) {
  for (const std::string& text : environment) {
    if (text.starts_with(name + "=")) return text.substr(name.size() + 1);
  }
  return std::nullopt;
}

// The CUDA_VISIBLE_DEVICES of a rank, if it differs from the inherited one.
std::optional<std::string> shown_gpus(std::span<const std::string> inherited, const JobEnvironment& job,
                                      const RankPlace& place) {
  const std::string list = ddp::detail::joined(job.gpus, ",");
  if (!job.virtual_local_rank) return job.gpus.empty() ? std::nullopt : std::optional(list);
  const auto visible = job.gpus.empty() ? value_of(inherited, "CUDA_VISIBLE_DEVICES") : std::optional(list);
  return visible_entry(visible ? visible->c_str() : nullptr, place.local_rank);
}

}  // namespace

bool has_variable(std::span<const std::string> environment, const std::string& name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& text) { return name_of(text) == name && text.size() > name.size(); });
}

std::vector<std::string> worker_variables(std::span<const std::string> inherited, const JobEnvironment& job,
                                          const RankPlace& place, const std::string& error_file) {
  std::vector<std::string> variables = {
      entry("RANK", place.rank),
      entry("LOCAL_RANK", job.virtual_local_rank ? 0 : place.local_rank),
      entry("WORLD_SIZE", place.world_size),
      entry("LOCAL_WORLD_SIZE", place.local_world_size),
      entry("GROUP_RANK", place.group_rank),
      entry("GROUP_WORLD_SIZE", place.group_world_size),
      entry("ROLE_NAME", job.role),
      entry("ROLE_RANK", place.role_rank),
      entry("ROLE_WORLD_SIZE", place.role_world_size),
      entry("MASTER_ADDR", job.master_addr),
      entry("MASTER_PORT", job.master_port),
      entry("TORCHELASTIC_RESTART_COUNT", job.restart_count),
      entry("TORCHELASTIC_MAX_RESTARTS", job.max_restarts),
      entry("TORCHELASTIC_RUN_ID", job.run_id),
      // Python compares the value with "True".
      entry("TORCHELASTIC_USE_AGENT_STORE", job.agent_store ? "True" : "False"),
      entry("TORCHELASTIC_SIGNALS_TO_HANDLE", job.stop_signals),
      entry("TORCHELASTIC_ERROR_FILE", error_file),
  };
  if (const auto gpus = shown_gpus(inherited, job, place)) variables.push_back(entry("CUDA_VISIBLE_DEVICES", *gpus));
  if (!has_variable(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    variables.push_back(entry("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1));
  }
  if (!has_variable(inherited, "OMP_NUM_THREADS")) {
    variables.push_back(entry("OMP_NUM_THREADS", job.default_omp_threads));
  }
  if (!job.timer_file.empty()) variables.push_back(entry("TORCHELASTIC_TIMER_FILE", job.timer_file));
  if (!job.store_proxy.empty()) {
    variables.push_back(entry("DDPRUN_STORE", job.store));
    variables.push_back(entry("DDPRUN_STORE_PROXY", job.store_proxy));
  }
  if (!job.interface.empty()) {
    // NCCL matches a name as a prefix unless it begins with "=".
    if (!has_variable(inherited, kGlooInterface)) variables.push_back(entry(kGlooInterface, job.interface));
    if (!has_variable(inherited, kNcclInterface)) variables.push_back(entry(kNcclInterface, "=" + job.interface));
  }
  for (const std::string& text : job.exported) {
    std::erase_if(variables, [&](const std::string& other) { return name_of(other) == name_of(text); });
    if (text.find('=') != std::string::npos) variables.push_back(text);
  }
  return variables;
}

std::string shown_gpu(std::span<const std::string> inherited, const JobEnvironment& job, int local_rank) {
  const auto own = shown_gpus(inherited, job, {.local_rank = local_rank});
  const auto visible = own ? own : value_of(inherited, "CUDA_VISIBLE_DEVICES");
  return visible_entry(visible ? visible->c_str() : nullptr, job.virtual_local_rank ? 0 : local_rank);
}

std::vector<std::string> inherited_entries(std::span<const std::string> inherited, const JobEnvironment& job) {
  std::set<std::string> replaced = {"DDPRUN_STORE", "DDPRUN_STORE_PROXY", "DDPRUN_PROGRESS_FD", "DDPRUN_TIMELINE_FD",
                                    "DDPRUN_STACK_SIGNAL"};  // set by a ddprun that started this one
  for (const std::string& text : worker_variables(inherited, job, RankPlace{}, "")) replaced.insert(name_of(text));
  std::vector<std::string> kept;
  kept.reserve(inherited.size());
  for (const std::string& text : inherited) {
    if (!replaced.contains(name_of(text))) kept.push_back(text);
  }
  return kept;
}

}  // namespace launcher
