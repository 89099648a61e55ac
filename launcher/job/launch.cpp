#include "launcher/job/launch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <utility>

#include "base/timeline/trace_file.h"
#include "launcher/job/job_run.h"
#include "launcher/local/output/stream_route.h"
#include "launcher/local/processes/debugger.h"
#include "launcher/local/processes/guardian.h"
#include "launcher/local/report/event_log.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/rendezvous_kinds.h"
#include "launcher/observe/timeline/timeline_command.h"
#include "launcher/observe/watch/stack_command.h"
#include "launcher/observe/watch/status_command.h"
#include "launcher/options/answers/answers.h"
#include "launcher/options/command_line.h"
#include "launcher/options/help.h"
#include "launcher/options/program_hints.h"
#include "launcher/os/machine/gpu_driver.h"
#include "launcher/os/network/interfaces.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/signals.h"
#include "launcher/os/system/temporary_folder.h"
#include "launcher/plan/job_nodes.h"
#include "launcher/plan/local_ranks.h"
#include "launcher/plan/option_sources.h"
#include "launcher/plan/outcome/parent_error_file.h"
#include "launcher/plan/program.h"
#include "launcher/plan/rank_plan.h"
#include "launcher/plan/resources.h"
#include "launcher/remote/commands.h"
#include "launcher/remote/session.h"
#include "launcher/remote/ssh_command.h"

namespace launcher {
namespace {

// Runs `body`. Turns an exception into one line of output and an exit status.
template <typename Body>
int with_error_report(const Body& body) noexcept {
  try {
    return body();
  } catch (const LaunchError& error) {
    print_line(error.what());
    return to_int(error.status());
  } catch (const std::bad_alloc&) {
    print_line("out of memory (ulimit -v, or the container's limit)");
    return to_int(ExitStatus::kLauncherError);
  } catch (const std::exception& error) {
    print_line(std::string("internal error: ") + error.what());
    return to_int(ExitStatus::kLauncherError);
  }
}

// Opens standard input, output and error on /dev/null where they are closed (`>&-`); otherwise the next file that is
// opened would get their numbers. Returns false when standard output was closed.
bool open_missing_standard_descriptors() {
  const bool has_output = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // A write of the ranks to a closed standard output must fail, as it would without ddprun.
    const int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", mode) < 0) throw LaunchError("cannot open /dev/null");
  }
  return has_output;
}

// Prints what ddprun was asked to print instead of running a job. Throws when a part of it cannot be written, so that a
// script sees a status that is not 0.
class Answer {
 public:
  explicit Answer(bool has_output) : has_output_(has_output) {}
  void print(const std::string& text) const {
    if (has_output_ && std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
    throw LaunchError(std::string("cannot write to standard output: ") +
                      (has_output_ ? std::strerror(errno) : "it is closed"));
  }

 private:
  bool has_output_;
};

// Returns a status that is not 0 when not all events could be written.
int with_events(int status, const EventLog& events) {
  if (events.problem().empty()) return status;
  print_line(events.problem());
  return status == 0 ? to_int(ExitStatus::kLauncherError) : status;
}

int print_check(const Answer& answer) {
  const auto findings = check_machine();
  answer.print(to_text(findings));
  return to_int(can_run_jobs(findings) ? ExitStatus::kSuccess : ExitStatus::kLauncherError);
}

int print_cmake_prefixes(const Answer& answer) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const CmakePrefixes prefixes = find_cmake_prefixes(program);
  if (prefixes.package.empty()) {
    throw LaunchError("--cmake_prefix_path: " + program.string() +
                      " was not installed with a CMake package (the Debian package is the launcher alone); install the "
                      "wheel or unpack the archive, or build ddprun and `cmake --install` it");
  }
  if (prefixes.torch.empty()) {
    print_line(
        "there is no PyTorch below " + prefixes.package.string() +
        "; add to CMAKE_PREFIX_PATH what python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' prints");
  }
  answer.print(to_text(prefixes));
  return to_int(ExitStatus::kSuccess);
}

// Prepares the launcher of one node that another ddprun has started by ssh.
void run_as_agent_child(Options& options) {
  const int secret = *options.part_descriptor;
  struct stat status {};
  if (::fcntl(secret, F_SETFD, FD_CLOEXEC) != 0 || ::fstat(secret, &status) != 0) {
    throw LaunchError("--part_of_job is an internal option of ddprun: leave it out");
  }
  if (options.nnodes > 1 && status.st_size > 0) options.secret_file = "/proc/self/fd/" + std::to_string(secret);
}

int print_node_check(const Options& options, const Answer& answer) {
  const auto findings = remote::check_node(options);
  answer.print(finding_lines(findings));
  return to_int(can_run_jobs(findings) ? ExitStatus::kSuccess : ExitStatus::kLauncherError);
}

// Returns the hosts of -H. Returns nothing when they are this machine alone; then the number of ranks is in `options`.
std::vector<JobNode> other_hosts(Options& options) {
  std::vector<JobNode> nodes = job_nodes(options);
  if (nodes.size() != 1 || !nodes.front().is_local) return nodes;
  options.nproc_per_node = nodes.front().ranks;
  if (!nodes.front().gpus.empty()) options.gpus = nodes.front().gpus;
  return {};
}

// Prints nothing in a ddprun that another one has started by ssh, as the other one has printed the notes.
void print_notes(const Options& options) {
  if (options.part_descriptor) return;
  for (const std::string& note : options.notes) print_line(note);
}

int run_on_hosts(const Options& options, const std::vector<JobNode>& nodes, const Answer& answer) {
  print_notes(options);
  if (options.mode == Options::Mode::kDryRun || options.mode == Options::Mode::kShowEnvironment) {
    answer.print(remote::preview_hosts(options, nodes, current_environment()));
    return to_int(ExitStatus::kSuccess);
  }
  return remote::Session(options, nodes).run();
}

Program find_program(const Options& options) {
  try {
    return resolve_program(options);
  } catch (const LaunchError& error) {
    throw LaunchError(error.what() + program_hint(options), error.status());
  }
}

int print_preview(const Options& options, const std::optional<Program>& program, const Answer& answer) {
  if (options.nnodes > 1) print_line("assuming that every node has as many ranks as this one");
  answer.print(preview(options, program, current_environment(), ask_gpu_driver().gpus));
  return to_int(ExitStatus::kSuccess);
}

void print_secret_warning(const Options& options) {
  const std::string exposure =
      options.nnodes > 1 && !options.part_descriptor ? control::exposed_secret_warning(options.secret_file) : "";
  if (!exposure.empty()) print_line(exposure);
  if (options.nnodes > 1 && options.rdzv_backend == "etcd-v2") {
    print_line("--rdzv_backend etcd-v2 is treated as etcd: ddprun uses the API v3 of etcd 3.4 or newer");
  }
}

// Only the launcher that the user has started prints the remarks, so that they appear once in a job.
void print_remarks(const Options& options) {
  if (options.part_descriptor || options.mode == Options::Mode::kCheck) return;
  for (const std::string& line : options.remarks) print_line(line);
  for (const std::string& line : suspicious_exports(options)) print_line(line);
  if (const auto line = unused_ssh_identity(options)) print_line(*line);
  if (const auto line = suspicious_module(options)) print_line(*line);
  if (const auto line = boolean_as_program(options)) print_line(*line);
  if (const auto line = launcher_in_rank(options)) print_line(*line);
  if (const auto line = misplaced_nodes(options)) print_line(*line);
}

int run_job(Options options, Program program, ProcessTitle& title) {
  Resources resources = plan_resources(options);
  std::string debugger = options.debug_rank ? find_debugger(options) : std::string();
  EventLog events(options.event_file);
  // All of ddprun's processes own this folder, so that it is removed whichever of them is killed. With a log folder the
  // error files are there instead.
  std::optional<TemporaryFolder> error_files;
  if (!needs_log_folder(options)) error_files.emplace();
  const JobRequest request{std::move(options), std::move(program), std::move(resources), std::move(debugger),
                           error_files ? error_files->path() : std::string()};

  SignalSource signals(request.options.stop_signals);
  const pid_t guardian = ::getpid();
  const int status = run_with_guardian(signals, title, [&](SupervisorContext context) {
    SupervisedEnd end;
    const int job_status = with_error_report([&] {
      if (error_files) error_files->make();
      const int result = supervise_job(request, events, std::move(context));
      end.needs_no_sweep = true;
      return result;
    });
    end.exit_status = with_events(job_status, events);
    return end;
  });
  if (::getpid() != guardian) return status;
  // The supervisor may have been killed while it wrote an event.
  if (!request.options.timeline_file.empty()) ddp::detail::repair_trace_file(request.options.timeline_file);
  events.job_ended(status);  // the guardian writes this, as the supervisor may have been killed
  return status == 0 ? with_events(status, events) : status;
}

int print_explanation(const std::string& message, const Answer& answer) {
  const std::string text = explain(message, known_explanations());
  if (text.empty()) {
    throw LaunchError(
        "--explain: no message of this ddprun has these words; give the words of the message without names and "
        "numbers");
  }
  answer.print(text);
  return to_int(ExitStatus::kSuccess);
}

int run(Options options, ProcessTitle& title, const Answer& answer) {
  if (options.mode == Options::Mode::kExplain) return print_explanation(options.explained, answer);
  if (options.mode == Options::Mode::kCmakePrefixPath) return print_cmake_prefixes(answer);
  if (options.part_descriptor) run_as_agent_child(options);
  print_remarks(options);
  if (const auto nodes = other_hosts(options); !nodes.empty()) return run_on_hosts(options, nodes, answer);
  if (options.mode == Options::Mode::kCheck) {
    return options.part_descriptor ? print_node_check(options, answer) : print_check(answer);
  }
  const auto misplaced = misplaced_ranks(options);
  const LocalRanks ranks = local_ranks(options);
  options.nproc_per_node = ranks.count;
  if (!options.interface.empty()) options.interface = find_interface(network_interfaces(), options.interface);
  if (options.mode == Options::Mode::kShowEnvironment) return print_preview(options, std::nullopt, answer);
  if (!options.working_folder.empty() && ::access((options.working_folder + "/.").c_str(), X_OK) != 0) {
    throw LaunchError("--wdir " + options.working_folder + ": " + std::strerror(errno));
  }
  Program program = find_program(options);
  if (misplaced) print_line(*misplaced);
  if (!ranks.hint.empty()) print_line(ranks.hint);
  print_notes(options);
  for (const std::string& line : absent_ranks(options)) print_line(line + option_sources(line, options.variables));
  print_secret_warning(options);
  if (options.mode == Options::Mode::kDryRun) return print_preview(options, program, answer);
  return run_job(std::move(options), std::move(program), title);
}

// Informs the other nodes of a job when this node cannot start its ranks, so that they do not wait for it.
int run_job(const Options& options, ProcessTitle& title, const Answer& answer) {
  try {
    return run(options, title, answer);
  } catch (const LaunchError& error) {
    const std::string text = error.what() + option_sources(error.what(), options.variables);
    if (options.mode == Options::Mode::kRun) record_own_error(text);
    if (options.nnodes == 1 || options.mode != Options::Mode::kRun) throw LaunchError(text, error.status());
    // Each host prints its own line, so the line begins with the host's name.
    print_line((options.part_descriptor ? "host " + host_name() + ": " : "") + text);
    return notify_other_nodes(options, {text, to_int(error.status())});
  }
}

}  // namespace

int launch(std::span<const std::string> arguments, ProcessTitle& title, std::string_view commit) noexcept {
  return with_error_report([&] {
    const Answer answer(open_missing_standard_descriptors());
    if (arguments.size() == 1 && arguments.front() == remote::kAgentArgument) return remote::run_agent();
    if (const auto help = help_of_words(arguments)) {
      answer.print(*help);
      return to_int(ExitStatus::kSuccess);
    }
    if (is_status_command(arguments)) return run_status_command(arguments);
    if (is_stack_command(arguments)) return run_stack_command(arguments);
    if (is_timeline_command(arguments)) return run_timeline_command(arguments);
    auto parsed = parse_command_line(arguments, commit);
    if (const auto* exit = std::get_if<ExitRequest>(&parsed)) {
      if (exit->status == 0) {
        answer.print(exit->text);
      } else {
        std::fputs(exit->text.c_str(), stderr);
      }
      return exit->status;
    }
    return run_job(std::get<Options>(std::move(parsed)), title, answer);
  });
}

}  // namespace launcher
