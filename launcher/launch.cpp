#include "launcher/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "launcher/command_line.h"
#include "launcher/guardian.h"
#include "launcher/job.h"
#include "launcher/launch_error.h"
#include "launcher/line.h"
#include "launcher/local_ranks.h"
#include "launcher/program.h"
#include "launcher/signals.h"
#include "launcher/temporary_folder.h"

namespace launcher {
namespace {

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
  const LocalRanks ranks = local_ranks(options);
  options.nproc_per_node = ranks.count;
  if (!options.working_folder.empty() && ::access(options.working_folder.c_str(), X_OK) != 0) {
    throw LaunchError("--wdir " + options.working_folder + ": " + std::strerror(errno));
  }
  Program program = resolve_program(options);
  if (!ranks.hint.empty()) print_line(ranks.hint);
  const TemporaryFolder error_files;  // in both processes, so that it goes even when one of them is killed
  const JobRequest request{std::move(options), std::move(program), error_files.path()};

  SignalSource signals;
  return run_guarded(signals, [&](Guarded guarded) {
    return guard_errors([&] { return supervise_job(request, std::move(guarded)); });
  });
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
