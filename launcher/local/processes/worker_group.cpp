#include "launcher/local/processes/worker_group.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/progress/own_page.h"
#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/executable_file.h"
#include "launcher/plan/outcome/describe.h"

namespace launcher {
namespace {

constexpr std::size_t kMaxStringPages = 32;                // MAX_ARG_STRLEN
constexpr std::size_t kMinTotalBytes = 128 << 10;          // ARG_MAX, whatever the stack's limit
constexpr std::size_t kMaxTotalBytes = (8 << 20) / 4 * 3;  // three quarters of _STK_LIM, though the stack be unlimited

std::string kilobytes(std::size_t bytes) {
  return std::to_string((bytes + 1023) / 1024) + " KiB";
}

// Includes the terminating zero and the pointer of each string, as the kernel counts them.
std::size_t total_bytes(std::span<const std::string> strings) {
  std::size_t total = 0;
  for (const std::string& text : strings) total += text.size() + 1 + sizeof(char*);
  return total;
}

std::string size_error(std::span<const std::string> arguments, std::span<const std::string> environment,
                       const ExecLimits& limits) {
  const auto is_too_long = [&](const std::string& text) { return text.size() + 1 > limits.string_bytes_limit; };
  const std::string longest = ", and the kernel accepts at most " + kilobytes(limits.string_bytes_limit) + " in one";
  if (const auto found = std::find_if(environment.begin(), environment.end(), is_too_long);
      found != environment.end()) {
    return "the variable " + found->substr(0, found->find('=')) + " has " + kilobytes(found->size()) + longest;
  }
  if (const auto found = std::find_if(arguments.begin(), arguments.end(), is_too_long); found != arguments.end()) {
    return "argument " + std::to_string(found - arguments.begin()) + " has " + kilobytes(found->size()) + longest;
  }
  return "the arguments have " + kilobytes(total_bytes(arguments)) + " and the environment has " +
         kilobytes(total_bytes(environment)) + "; the limit for both is " + kilobytes(limits.total_bytes_limit) +
         (limits.total_bytes_limit < kMaxTotalBytes ? ", a quarter of ulimit -s" : ", the maximum of the kernel");
}

// Returns a null-terminated array of pointers into `strings` for exec, which does not change the texts.
std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Variables with the descriptors of the rank's progress page and timeline memory, and the signal on which the rank
// writes its stack to the page.
std::vector<std::string> page_variables(const RankPage& page, const RankRing& timeline) {
  std::vector<std::string> variables{std::string(ddp::detail::kStackSignalVariable) + "=" +
                                     std::to_string(stack_signal())};
  if (page.descriptor() >= 0) {
    variables.push_back(std::string(ddp::detail::kPageVariable) + "=" + std::to_string(page.descriptor()));
  }
  if (timeline.descriptor() >= 0) {
    variables.push_back(std::string(ddp::detail::kTimelineVariable) + "=" + std::to_string(timeline.descriptor()));
  }
  return variables;
}

}  // namespace

ExecLimits exec_limits(std::size_t page_bytes, std::size_t stack_bytes) {
  return {.total_bytes_limit = std::clamp(stack_bytes / 4, kMinTotalBytes, kMaxTotalBytes),
          .string_bytes_limit = kMaxStringPages * page_bytes};
}

ExecLimits exec_limits() {
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0) stack.rlim_cur = RLIM_INFINITY;
  return exec_limits(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)), stack.rlim_cur);
}

std::string exec_failure_text(const std::string& file, int error, std::span<const std::string> arguments,
                              std::span<const std::string> environment, const ExecLimits& limits,
                              const std::string& cause) {
  std::string text = "cannot execute " + file + ": " + (cause.empty() ? std::strerror(error) : cause);
  if (!cause.empty()) return text;
  if (error == ENOENT) text += " (the interpreter that it names?)";
  if (error == ENOEXEC) text += " (damaged, or built for another kind of machine?)";
  if (error == E2BIG) text += " (" + size_error(arguments, environment, limits) + ")";
  return text;
}

WorkerGroup::WorkerGroup(EventLoop& loop, RankStreams& streams, WorkerGroupOptions options,
                         std::function<void(std::size_t index)> on_event)
    : loop_(loop),
      streams_(streams),
      options_(std::move(options)),
      on_event_(std::move(on_event)),
      spawner_(options_.start) {}

WorkerGroup::~WorkerGroup() {
  for (const Worker& worker : workers_) {
    if (worker.process.pidfd) loop_.remove(worker.process.pidfd.get());
    if (worker.running) ::kill(worker.process.pid, SIGKILL);  // only after an exception: they still wait at the gate
  }
}

void WorkerGroup::fork(std::vector<RankPlan> plans) {
  workers_.reserve(plans.size());  // the processes of the workers read what is in them
  for (RankPlan& plan : plans) start_worker(std::move(plan));
  watch_workers();
}

void WorkerGroup::fill_arguments(Worker& worker) const {
  const Program& program = worker.plan.program ? *worker.plan.program : options_.program;
  worker.exec.arguments = pointers_to(program.arguments);
  if (!program.shell_arguments.empty()) worker.exec.shell_arguments = pointers_to(program.shell_arguments);
  std::vector<char*>& environment = worker.exec.environment;
  environment.reserve(options_.environment.size() + worker.plan.variables.size() + 1);
  for (const std::string& entry : options_.environment) environment.push_back(const_cast<char*>(entry.c_str()));
  for (const std::string& entry : worker.plan.variables) environment.push_back(const_cast<char*>(entry.c_str()));
  environment.push_back(nullptr);
}

void WorkerGroup::start_worker(RankPlan plan) {
  const RankDescriptors descriptors = plan.in_terminal ? RankDescriptors{} : streams_.add_rank(plan.place);
  Worker worker{.plan = std::move(plan), .timeline = RankRing(recording_plan(*options_.start.options))};
  for (std::string& entry : page_variables(worker.page, worker.timeline)) {
    worker.plan.variables.push_back(std::move(entry));
  }
  workers_.push_back(std::move(worker));
  Worker& started = workers_.back();
  fill_arguments(started);
  const Program& program = started.plan.program ? *started.plan.program : options_.program;
  const ExecArguments& exec = started.exec;
  const SpawnRequest request{.file = program.file.c_str(),
                             .arguments = exec.arguments.data(),
                             .shell_arguments = exec.shell_arguments.empty() ? nullptr : exec.shell_arguments.data(),
                             .environment = exec.environment.data(),
                             .binding = started.plan.binding ? &*started.plan.binding : nullptr,
                             .stdin_fd = descriptors.input,
                             .stdout_fd = descriptors.output,
                             .stderr_fd = descriptors.error,
                             .page_fd = started.page.descriptor(),
                             .timeline_fd = started.timeline.descriptor()};
  try {
    started.process = spawner_.spawn(request);
  } catch (...) {
    workers_.pop_back();
    throw;
  }
  started.page.close_descriptor();
  started.timeline.close_descriptor();
  started.running = true;
  ++running_;
}

void WorkerGroup::watch_workers() {
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    SpawnedProcess& process = workers_[index].process;
    index_of_[process.pid] = index;
    spawner_.watch(process);
    if (process.pidfd) loop_.add(process.pidfd.get(), EPOLLIN, [this, index](std::uint32_t) { on_event_(index); });
  }
  streams_.all_added();
}

std::map<pid_t, int> WorkerGroup::running_ranks() const {
  std::map<pid_t, int> running;
  for (const Worker& worker : workers_) {
    if (worker.running) running.emplace(worker.process.pid, worker.plan.place.rank);
  }
  return running;
}

std::optional<std::size_t> WorkerGroup::find(pid_t pid) const {
  const auto found = index_of_.find(pid);
  return found == index_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::size_t> WorkerGroup::in_terminal() const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.plan.in_terminal; });
  if (found == workers_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - workers_.begin());
}

bool WorkerGroup::is_any_ending() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    if (!worker.running) return false;
    const auto process = identify(worker.process.pid);
    return (process && process->is_ending) || ::access(worker.plan.error_file.c_str(), F_OK) == 0;
  });
}

std::optional<RankEnd> WorkerGroup::end_of(std::size_t index) {
  const Worker& worker = workers_[index];
  siginfo_t info{};
  if (!worker.running ||
      ::waitid(P_PID, static_cast<id_t>(worker.process.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  RankEnd end{.rank = worker.plan.place.rank,
              .local_rank = worker.plan.place.local_rank,
              .pid = worker.process.pid,
              .stop_requested = worker.stop_requested,
              .time = std::chrono::system_clock::now()};
  if (info.si_code == CLD_EXITED) {
    end.exit_code = info.si_status;
  } else {
    end.signal = info.si_status;
    end.core_dumped = info.si_code == CLD_DUMPED;
  }
  if (end.exit_code == to_int(ExitStatus::kNotFound) || end.exit_code == to_int(ExitStatus::kNotExecutable)) {
    if (const int error = spawner_.exec_error(worker.process.pid); error != 0) {
      end.was_executed = false;
      end.error = ErrorRecord{.message = why_not_executed(worker.plan, error)};
    }
  }
  return end;
}

std::string WorkerGroup::why_not_executed(const RankPlan& plan, int error) const {
  const Program& program = plan.program ? *plan.program : options_.program;
  std::vector<std::string> environment = options_.environment;
  environment.insert(environment.end(), plan.variables.begin(), plan.variables.end());
  const bool is_refused = error == ENOENT || error == ENOEXEC;
  const std::string& folder = options_.start.options->working_folder;
  const std::string file = folder.empty() || program.file.starts_with('/') ? program.file : folder + "/" + program.file;
  const std::string cause = is_refused ? launcher::why_not_executed(file) : "";
  return exec_failure_text(program.file, error, program.arguments, environment, exec_limits(), cause);
}

void WorkerGroup::reap(std::size_t index) {
  Worker& worker = workers_[index];
  if (worker.process.pidfd) loop_.remove(worker.process.pidfd.get());
  worker.process.pidfd.reset();
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(worker.process.pid), &info, WEXITED | WNOHANG);
  index_of_.erase(worker.process.pid);
  worker.running = false;
  --running_;
}

void WorkerGroup::signal_all(int signal_number) const {
  for (const Worker& worker : workers_) {
    if (worker.running) ::kill(-worker.process.pid, signal_number);
  }
}

void WorkerGroup::ask_to_stop(std::size_t index, int signal_number, Orphans& orphans) const {
  const pid_t group = workers_[index].process.pid;
  ::kill(-group, signal_number);
  ::kill(-group, SIGCONT);  // a suspended process would not notice
  orphans.note_asked(group, signal_number);
}

void WorkerGroup::kill(std::size_t index) const {
  ::kill(-workers_[index].process.pid, SIGKILL);
}

void WorkerGroup::ask_all_to_stop(int signal_number, Orphans& orphans) {
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    if (!workers_[index].running) continue;
    workers_[index].stop_requested = true;
    ask_to_stop(index, signal_number, orphans);
  }
}

void WorkerGroup::kill_all() {
  for (Worker& worker : workers_) {
    if (worker.running) worker.stop_requested = true;
  }
  signal_all(SIGKILL);
}

std::vector<WatchedRank> watched_ranks(const WorkerGroup& workers, const JobEnd& end) {
  std::vector<WatchedRank> ranks;
  for (const Worker& worker : workers.workers()) {
    ranks.push_back({.rank = worker.plan.place.rank,
                     .pid = worker.process.pid,
                     .page = worker.page.page(),
                     .ended = worker.running ? "" : "ended",
                     .timeline = worker.timeline.ring()});
  }
  for (const RankEnd& rank : end.ranks) ranks[static_cast<std::size_t>(rank.local_rank)].ended = describe_end(rank);
  return ranks;
}

}  // namespace launcher
