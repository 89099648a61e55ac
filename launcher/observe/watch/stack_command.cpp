#include "launcher/observe/watch/stack_command.h"

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "launcher/observe/watch/job_search.h"
#include "launcher/observe/watch/stack_answers.h"
#include "launcher/observe/watch/stack_report.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr int kMaxStackRequests = 500;
constexpr auto kStackRequestPause = 20ms;

bool is_number(const std::string& word) {
  return !word.empty() && word.size() < 9 && word.find_first_not_of("0123456789") == std::string::npos;
}

struct StackArguments {
  std::string job{};    // its name or ddprun's process ID; empty: the only one
  std::string ranks{};  // " 1 2"; empty: all
  bool all_users = false;
};

StackArguments parse_stack_arguments(std::span<const std::string> arguments) {
  StackArguments parsed;
  bool has_job = false;
  for (const std::string& word : arguments.subspan(1)) {
    if (names_all_users(word)) {
      parsed.all_users = true;
    } else if (word.empty() || word.starts_with('-') || (has_job && !is_number(word))) {
      throw LaunchError("expected ddprun stack [JOB] [RANK ...] [--all_users], got '" + word + "'");
    } else if (has_job) {
      parsed.ranks += " " + word;
    } else {
      parsed.job = word;
      has_job = true;
    }
  }
  return parsed;
}

int failed_with(const std::string& text) {
  print_line(text);
  return 1;
}

}  // namespace

bool is_stack_command(std::span<const std::string> arguments) {
  return !arguments.empty() && arguments.front() == "stack";
}

StackReply ask_for_stacks(const std::string& socket, const std::string& ranks) {
  const char* const over = "error: the job has ended\n";
  std::string answer = ask(socket, StackAnswers::kRequest + ranks + "\n").value_or(over);
  for (int i = 0; i < kMaxStackRequests && answer.starts_with(StackAnswers::kWaiting); ++i) {
    std::this_thread::sleep_for(kStackRequestPause);
    answer = ask(socket, answer).value_or(over);
  }
  if (answer.ends_with('\n')) answer.pop_back();
  if (answer.starts_with("error: ")) return {.problem = answer.substr(7)};
  const auto stacks = stacks_from(answer);
  if (!stacks) return {.problem = "the job's ddprun does not support this request: it is another version of ddprun"};
  const std::string proc = proc_folder_of(socket);
  SymbolNames names(proc);
  resolve_frames(names, *stacks);
  const std::string note =
      proc.empty() ? "no function names: the job runs in another PID namespace; run ddprun stack there\n" : "";
  return {.text = note +
                  stacks_text(*stacks, [&](int pid, const auto& addresses) { return names.frames(pid, addresses); })};
}

int run_stack_command(std::span<const std::string> arguments) {
  const auto [job, ranks, all_users] = parse_stack_arguments(arguments);
  const JobScope scope = all_users ? scope_of_all_users() : JobScope::kOwn;
  const auto jobs = find_jobs(job, scope);
  if (jobs.empty()) return refuse_job(job, scope);
  if (jobs.size() > 1) {
    throw LaunchError(job.empty() ? "several of your jobs run on this machine: name one (ddprun status shows them)"
                                  : "several of your jobs are named '" + job +
                                        "': name one by ddprun's process ID (ddprun status shows it)");
  }
  if (!jobs.front().problem.empty()) return failed_with(jobs.front().problem);
  const StackReply reply = ask_for_stacks(jobs.front().socket, ranks);
  if (!reply.problem.empty()) return failed_with(reply.problem);
  if (std::fputs(reply.text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw LaunchError("cannot write to standard output");
  }
  return 0;
}

}  // namespace launcher
