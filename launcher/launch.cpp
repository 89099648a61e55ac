#include "launcher/launch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <random>

#include "launcher/command_line.h"
#include "launcher/event_loop.h"
#include "launcher/failure_report.h"
#include "launcher/guardian.h"
#include "launcher/launch_error.h"
#include "launcher/line.h"
#include "launcher/output/output_relay.h"
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

// The open-file limit that workers get back, after raising our own: a descriptor or more per rank and connection.
rlimit raise_open_files() {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

struct Job {
  Options options;
  Program program;
  std::string error_folder;
};

int supervise(const Job& request, Guarded guarded) {
  const Options& options = request.options;
  const int cpus = usable_cpus();
  const rlimit open_files = raise_open_files();
  EventLoop loop;
  std::optional<OutputRelay> relay;
  if (options.prefix || (options.nproc_per_node > 1 && !options.no_prefix)) {
    relay.emplace(loop, PrefixTemplate(options.prefix.value_or(std::string(PrefixTemplate::kDefault))));
  }
  DirectMessages direct;
  Messages& messages = relay ? static_cast<Messages&>(*relay) : direct;
  const store::StoreServer store(loop, messages, {.port = options.master_port.value_or(0), .loopback_only = true});

  const std::vector<std::string> inherited = current_environment();
  const JobEnvironment job{.role = options.role,
                           .run_id = options.rdzv_id.empty() ? random_id() : options.rdzv_id,
                           .master_addr = "127.0.0.1",
                           .master_port = store.port(),
                           .default_omp_threads = default_omp_threads(cpus, options.nproc_per_node)};
  if (options.nproc_per_node > 1 && !has_variable(inherited, "OMP_NUM_THREADS")) {
    messages.say("OMP_NUM_THREADS is unset: each rank gets " + std::to_string(job.default_omp_threads) + " of " +
                 std::to_string(cpus) + " CPUs");
  }

  Supervisor supervisor(loop, guarded, messages, relay ? &*relay : nullptr,
                        {.program = request.program,
                         .environment = inherited_entries(inherited, job),
                         .grace = options.grace,
                         .worker_start = {.mask = guarded.signals.original_mask(), .open_files = open_files}});
  supervisor.start(plan_ranks(options, job, inherited, request.error_folder));
  const JobEnd end = supervisor.wait();
  const auto finish_output = [&] {
    if (relay) relay->finish([&] { return supervisor.is_impatient(); });
  };
  finish_output();  // the ranks' last lines first
  messages.say_block(failure_report(end));
  finish_output();
  const int status = exit_status(end);
  if (!relay) return status;
  return status == 0 && !relay->problem().empty() ? to_int(ExitStatus::kLauncherError) : status;
}

// Runs `body`; what it throws becomes one line and an exit status.
template <typename Body>
int guard_errors(const Body& body) noexcept {
  try {
    return body();
  } catch (const LaunchError& error) {
    print_line(error.what());
    return to_int(error.status());
  } catch (const std::exception& error) {
    print_line(std::string("internal error: ") + error.what());
    return to_int(ExitStatus::kLauncherError);
  }
}

int run_job(Options options) {
  if (options.nnodes > 1) {
    throw LaunchError("--nnodes " + std::to_string(options.nnodes) + ": more than one node is not supported yet");
  }
  if (options.nproc_per_node == Options::kOnePerCpu) options.nproc_per_node = usable_cpus();
  Program program = resolve_program(options);
  const TemporaryFolder error_files;  // in both processes, so that it goes even when one of them is killed
  const Job job{std::move(options), std::move(program), error_files.path()};

  SignalSource signals;
  return run_guarded(signals,
                     [&](Guarded guarded) { return guard_errors([&] { return supervise(job, std::move(guarded)); }); });
}

}  // namespace

int launch(std::span<const std::string> arguments) noexcept {
  return guard_errors([&] {
    auto parsed = parse_command_line(arguments);
    if (const auto* exit = std::get_if<ExitRequest>(&parsed)) {
      std::fputs(exit->text.c_str(), exit->status == 0 ? stdout : stderr);
      return exit->status;
    }
    return run_job(std::get<Options>(std::move(parsed)));
  });
}

}  // namespace launcher
