#include "launcher/observe/timeline/timeline_command.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "launcher/observe/timeline/job_timeline.h"
#include "launcher/observe/watch/job_search.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How many times the command asks whether the records are in the file.
constexpr int kMaxRequests = 500;
constexpr auto kQueryPause = 20ms;

struct Order {
  std::string word{};
  std::string job{};   // its name or ddprun's process ID; empty: the only one
  std::string file{};  // empty: the job's own
  bool all_users = false;
};

[[noreturn]] void refuse_arguments(const std::string& word) {
  throw LaunchError(
      "expected ddprun timeline start [JOB] [-o FILE] [--all_users] or ddprun timeline stop [JOB] [--all_users]" +
      (word.empty() ? std::string() : ", got '" + word + "'"));
}

Order parse_order(std::span<const std::string> arguments) {
  if (arguments.size() < 2) refuse_arguments("");
  Order order{.word = arguments[1]};
  if (order.word != "start" && order.word != "stop") refuse_arguments(order.word);
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if ((word == "-o" || word == "--output") && order.word == "start" && i + 1 < arguments.size()) {
      order.file = arguments[++i];
      if (order.file.empty()) refuse_arguments("an empty file name");
    } else if (names_all_users(word)) {
      order.all_users = true;
    } else if (word.empty() || word.starts_with('-') || !order.job.empty()) {
      refuse_arguments(word);
    } else {
      order.job = word;
    }
  }
  if (order.file.find('\n') != std::string::npos) refuse_arguments("a file with a line break in its name");
  // ddprun's working folder may be another one.
  if (!order.file.empty()) order.file = std::filesystem::absolute(order.file).string();
  return order;
}

std::string answer_to(const std::string& socket, const std::string& words) {
  std::string answer = ask(socket, "timeline " + words + "\n").value_or("error: the job has ended\n");
  if (answer.ends_with('\n')) answer.pop_back();
  return answer;
}

}  // namespace

bool is_timeline_command(std::span<const std::string> arguments) {
  return !arguments.empty() && arguments.front() == "timeline";
}

int run_timeline_command(std::span<const std::string> arguments) {
  const Order order = parse_order(arguments);
  const JobScope scope = order.all_users ? scope_of_all_users() : JobScope::kOwn;
  const auto jobs = find_jobs(order.job, scope);
  if (jobs.empty()) return refuse_job(order.job, scope);
  if (jobs.size() == 1 && !jobs.front().problem.empty()) {
    print_line(jobs.front().problem);
    return 1;
  }
  if (jobs.size() > 1) {
    throw LaunchError(order.job.empty()
                          ? "several of your jobs run on this machine: name one (ddprun status shows them)"
                          : "several of your jobs are named '" + order.job +
                                "': name one by ddprun's process ID (ddprun status shows it)");
  }
  const std::string words = order.word + (order.file.empty() ? "" : " " + order.file);
  std::string answer = answer_to(jobs.front().socket, words);
  for (int i = 0; i < kMaxRequests && answer == JobTimeline::kStopping; ++i) {
    std::this_thread::sleep_for(kQueryPause);
    answer = answer_to(jobs.front().socket, "stopped");
  }
  if (answer == JobTimeline::kStopping) answer = "stopped; what was recorded is still being written";
  print_line(answer.starts_with("error: ") ? answer.substr(7) : answer);
  return answer.starts_with("error: ") ? 1 : 0;
}

}  // namespace launcher
