#include <cstdlib>
#include <string_view>

#include "launcher/options/answers/answers.h"
#include "launcher/os/machine/gpu_information.h"
#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/shell_quote.h"
#include "launcher/plan/rank_plan.h"

namespace launcher {
namespace {

constexpr std::string_view kRandom = "<random>";
constexpr std::string_view kCoordinator = "<node 0>";
constexpr std::string_view kTemporaryFolder = "<temporary folder>";

// The value of a variable for a rank: from the rank's own entries, else from the inherited ones.
std::optional<std::string> value_for(const std::string& name, const RankPlan& plan,
                                     const std::vector<std::string>& inherited) {
  for (const auto* entries : {&plan.variables, &inherited}) {
    for (const std::string& entry : *entries) {
      if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::string gpu_line(const RankPlan& plan, const std::vector<std::string>& inherited,
                     const std::optional<std::vector<std::string>>& gpus) {
  if (!gpus) return "no NVIDIA driver found";
  const auto shown = value_for("CUDA_VISIBLE_DEVICES", plan, inherited);
  const auto visible = visible_gpu_uuids(*gpus, shown ? shown->c_str() : nullptr);
  if (visible.empty()) return "none visible";
  const int index = std::atoi(value_for("LOCAL_RANK", plan, inherited).value_or("0").c_str());
  if (index >= static_cast<int>(visible.size()))
    return "none: there is no CUDA index " + std::to_string(index) + " among " + std::to_string(visible.size());
  return "CUDA index " + std::to_string(index) + " is " + visible[static_cast<std::size_t>(index)];
}

std::string environment_line(const std::string& entry) {
  if (entry == "MASTER_PORT=0") return "MASTER_PORT=<free port>";
  const std::size_t equals = entry.find('=');
  const std::string_view value = std::string_view(entry).substr(equals + 1);
  if (value == kRandom || value == kCoordinator || value.starts_with(kTemporaryFolder)) return entry;
  return entry.substr(0, equals + 1).append(value.empty() ? std::string() : shell_quote(value));
}

std::string command_line(const Program& program) {
  std::string text;
  for (const std::string& argument : program.arguments) {
    if (!text.empty()) text += ' ';
    text += shell_quote(argument);
  }
  return text;
}

}  // namespace

std::string preview(const Options& options, const std::optional<Program>& program,
                    const std::vector<std::string>& inherited, const std::optional<std::vector<std::string>>& gpus) {
  JobEnvironment environment = plan_environment(options, /*attempt=*/0, std::string(kRandom), usable_cpus());
  const bool is_etcd = options.nnodes > 1 && options.uses_etcd();
  if (is_etcd) environment.master_addr = kCoordinator;
  if (is_etcd || options.elastic.is_on()) environment.master_port = 0;  // each round has a new port
  LogLayout layout{.error_folder = std::string(kTemporaryFolder)};
  if (!options.log_folder.empty()) {
    layout.log_folder = options.log_folder + "/" + environment.run_id + "_" + std::string(kRandom);
  }
  const Resources resources = plan_resources(options);
  std::string text;
  if (!program) {
    for (const std::string& line : options.origins) text.append(line).append("\n");
  }
  for (const RankPlan& plan : plan_ranks(options, program.value_or(Program{}), environment, inherited,
                                         place_with_equal_nodes(options), resources, layout)) {
    text += "rank " + std::to_string(plan.place.rank) + " of " + std::to_string(plan.place.world_size) +
            " (local rank " + std::to_string(plan.place.local_rank) + " on host " + host_name() + ")\n";
    if (program) {
      const Program& own = plan.program ? *plan.program : *program;
      text += "  file:    " + shell_quote(own.file) + "\n";
      text += "  command: " + command_line(own) + "\n";
      if (!options.working_folder.empty()) text += "  folder:  " + shell_quote(options.working_folder) + "\n";
    }
    text += "  GPU:     " + gpu_line(plan, inherited, gpus) + "\n";
    if (plan.binding) text += "  CPUs:    " + to_cpu_list(plan.binding->cpus) + "\n";
    for (const std::string& entry : plan.variables) text += "    " + environment_line(entry) + "\n";
  }
  return text;
}

}  // namespace launcher
