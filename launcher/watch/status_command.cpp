#include "launcher/watch/status_command.h"

#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "launcher/system/launch_error.h"
#include "launcher/system/line.h"
#include "launcher/watch/job_search.h"
#include "launcher/watch/status_document.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

struct Question {
  std::string job{};  // its name or ddprun's process number; empty: all
  bool json = false;
  bool refreshes = false;
};

Question parse(std::span<const std::string> arguments) {
  Question question{.refreshes = arguments.front() == "top"};
  for (const std::string& word : arguments.subspan(1)) {
    if (word == "--json" && !question.refreshes) {
      question.json = true;
    } else if (word.starts_with('-') || !question.job.empty()) {
      throw LaunchError("expected ddprun status [JOB] [--json] or ddprun top [JOB], got '" + word + "'");
    } else {
      question.job = word;
    }
  }
  return question;
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw LaunchError("cannot write to standard output");
}

// Of the terminal; 0 where that is not known.
std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

// Of one that does not answer its socket and its process are all that is known.
std::string json_of_silent(const FoundJob& job) {
  return nlohmann::ordered_json{
      {"job", ""}, {"pid", job.pid}, {"problem", job.problem}, {"ranks", nlohmann::ordered_json::array()}}
      .dump();
}

std::string text_of(const std::vector<FoundJob>& found, bool json, std::size_t columns = 0) {
  std::string text;
  for (const FoundJob& job : found) {
    if (job.document.empty() && !json) continue;
    if (!text.empty() && !json) text += "\n";
    text +=
        !json ? status_text(job.document, columns) : (job.problem.empty() ? job.document : json_of_silent(job)) + "\n";
  }
  return text;
}

std::string problems_of(const std::vector<FoundJob>& found) {
  std::string text;
  for (const FoundJob& job : found) {
    if (!job.problem.empty()) text += "ddprun: " + job.problem + "\n";
  }
  return text;
}

}  // namespace

bool is_status_command(std::span<const std::string> arguments) {
  return !arguments.empty() && (arguments.front() == "status" || arguments.front() == "top");
}

int run_status_command(std::span<const std::string> arguments) {
  const Question question = parse(arguments);
  auto found = find_jobs(question.job);
  if (found.empty()) return refuse_job(question.job);
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  while (question.refreshes && is_terminal && !found.empty()) {
    // Home, then each line to its end, then what is left below. Lines that wrapped would tear the table.
    print("\x1b[H\x1b[2J" + text_of(found, false, terminal_columns()) + problems_of(found));
    std::this_thread::sleep_for(1s);
    found = find_jobs(question.job);
  }
  if (const std::string text = text_of(found, question.json); !text.empty()) print(text);
  const std::string problems = problems_of(found);
  print_block(problems);
  return problems.empty() ? 0 : 1;
}

}  // namespace launcher
