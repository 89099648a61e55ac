#include "launcher/launch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <random>

#include "launcher/command_line.h"
#include "launcher/event_loop.h"
#include "launcher/failure_report.h"
#include "launcher/launch_error.h"
#include "launcher/line.h"
#include "launcher/program.h"
#include "launcher/signals.h"
#include "launcher/store/store_server.h"
#include "launcher/supervisor.h"
#include "launcher/temporary_folder.h"
#include "launcher/usable_cpus.h"
#include "launcher/worker_environment.h"

namespace launcher {
namespace {

std::vector<std::string> current_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

std::string random_id() {
  std::random_device source;
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", source(), source(), source(), source());
  return text.data();
}

std::vector<RankPlan> plan_ranks(const Options& options, const JobEnvironment& job,
                                 const std::vector<std::string>& inherited, const std::string& folder) {
  std::vector<RankPlan> plans;
  plans.reserve(static_cast<std::size_t>(options.nproc_per_node));
  for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
    const RankPlace place{.rank = local_rank,
                          .local_rank = local_rank,
                          .world_size = options.nproc_per_node,
                          .local_world_size = options.nproc_per_node,
                          .role_rank = local_rank,
                          .role_world_size = options.nproc_per_node};
    const std::string error_file = folder + "/attempt_0_rank_" + std::to_string(local_rank) + "_error.json";
    plans.push_back({place, worker_variables(inherited, job, place, error_file), error_file});
  }
  return plans;
}

int run_job(Options options) {
  if (options.nnodes > 1) {
    throw LaunchError("--nnodes " + std::to_string(options.nnodes) + ": more than one node is not supported yet");
  }
  const int cpus = usable_cpus();
  if (options.nproc_per_node == Options::kOnePerCpu) options.nproc_per_node = cpus;
  const Program program = resolve_program(options);

  SignalSource signals;
  EventLoop loop;
  const store::StoreServer store(loop, {.port = options.master_port.value_or(0), .loopback_only = true});
  const TemporaryFolder error_files;

  const std::vector<std::string> inherited = current_environment();
  const JobEnvironment job{.role = options.role,
                           .run_id = options.rdzv_id.empty() ? random_id() : options.rdzv_id,
                           .master_addr = "127.0.0.1",
                           .master_port = store.port(),
                           .default_omp_threads = default_omp_threads(cpus, options.nproc_per_node)};
  if (options.nproc_per_node > 1 && !has_variable(inherited, "OMP_NUM_THREADS")) {
    print_line("OMP_NUM_THREADS is unset: each rank gets " + std::to_string(job.default_omp_threads) + " of " +
               std::to_string(cpus) + " CPUs");
  }

  Supervisor supervisor(loop, signals,
                        {.file = program.file,
                         .arguments = program.arguments,
                         .environment = inherited_entries(inherited, job),
                         .grace = options.grace});
  supervisor.start(plan_ranks(options, job, inherited, error_files.path()));
  const JobEnd end = supervisor.wait();
  print_block(failure_report(end));
  return exit_status(end);
}

}  // namespace

int launch(std::span<const std::string> arguments) noexcept {
  try {
    auto parsed = parse_command_line(arguments);
    if (const auto* exit = std::get_if<ExitRequest>(&parsed)) {
      std::fputs(exit->text.c_str(), exit->status == 0 ? stdout : stderr);
      return exit->status;
    }
    return run_job(std::get<Options>(std::move(parsed)));
  } catch (const LaunchError& error) {
    print_line(error.what());
    return to_int(error.status());
  } catch (const std::exception& error) {
    print_line(std::string("internal error: ") + error.what());
    return to_int(ExitStatus::kLauncherError);
  }
}

}  // namespace launcher
