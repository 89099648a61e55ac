#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "base/schedulers/slurm_step.h"
#include "launcher/plan/schedulers/systems.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

// Returns the value of a line "name=value" of a configuration file; names are not case-sensitive.
std::optional<int> find_setting(std::string_view text, std::string_view name) {
  std::optional<int> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    const bool is_it = line.size() > name.size() && line[name.size()] == '=' &&
                       std::equal(name.begin(), name.end(), line.begin(),
                                  [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    if (!is_it) continue;
    int value = 0;
    const char* begin = line.data() + name.size() + 1;
    if (std::from_chars(begin, line.data() + line.size(), value).ec == std::errc{}) found = value;
  }
  return found;
}

// Returns KillWait: how long a job lives after TERM when scancel or the time limit ends it.
Sourced<std::chrono::seconds> kill_wait(const ProcessContext& context) {
  constexpr int kDefault = 30;
  const std::string path = text_of(context, "SLURM_CONF").value_or("/etc/slurm/slurm.conf");
  const auto text = context.file(path);
  const auto setting = text ? find_setting(*text, "KillWait") : std::nullopt;
  if (setting && *setting > 0) return {std::chrono::seconds(*setting), "KillWait of " + path};
  return {std::chrono::seconds(kDefault), "Slurm's default of KillWait"};
}

}  // namespace

std::optional<ScheduledPlace> read_slurm(const ProcessContext& context) {
  const auto job = text_of(context, "SLURM_JOB_ID");
  if (!job) return std::nullopt;
  const std::string job_text = shown("SLURM_JOB_ID", *job);
  ScheduledPlace place{.system = "Slurm", .kill_wait = kill_wait(context)};

  const auto step = ddp::detail::slurm_step(context.variable);
  if (!step) {
    const auto nodes = number_of(context, "SLURM_JOB_NUM_NODES", 1, kMaxScheduledNodes);
    // A batch script has a task number; a shell of salloc has none, and is used to try things on one node.
    if (nodes && nodes->value > 1 && has(context, "SLURM_PROCID")) {
      place.problem = "this Slurm job has " + std::to_string(nodes->value) + " nodes (" + nodes->why +
                      "), and ddprun was started on one of them: start it on each with srun --ntasks-per-node=1 "
                      "ddprun ..., or give --nnodes 1";
    }
    return place;
  }
  place.nnodes = {step->nodes, shown("SLURM_STEP_NUM_NODES", std::to_string(step->nodes))};
  place.node_rank = {step->node, shown("SLURM_NODEID", std::to_string(step->node))};
  const std::string list = text_of(context, "SLURM_STEP_NODELIST").value_or("");
  place.master_addr = {step->first_host, "the first host of " + shown("SLURM_STEP_NODELIST", list)};
  place.master_port = {step->port, "derived from " + job_text};
  place.job_id = {step->name, job_text + ", " + shown("SLURM_STEP_ID", step->name.substr(step->name.find('.') + 1))};
  if (step->tasks_on_node > 1) {
    place.problem = "srun started ddprun " + std::to_string(step->tasks_on_node) + " times on this node (" +
                    shown("SLURM_STEP_TASKS_PER_NODE", text_of(context, "SLURM_STEP_TASKS_PER_NODE").value_or("")) +
                    "): start it once on each, srun --ntasks-per-node=1, or start PROGRAM without ddprun";
  }
  return place;
}

}  // namespace launcher
