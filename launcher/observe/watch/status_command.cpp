#include "launcher/observe/watch/status_command.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "base/terminal_size.h"
#include "launcher/observe/watch/job_search.h"
#include "launcher/observe/watch/status_document.h"
#include "launcher/observe/watch/top_command.h"
#include "launcher/os/system/json_text.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using ddp::detail::terminal_size;

struct StatusArguments {
  std::string job{};  // its name or ddprun's process ID; empty: all
  bool json = false;
  bool refreshes = false;
  JobScope scope = JobScope::kOwn;
};

StatusArguments parse_status_arguments(std::span<const std::string> arguments) {
  StatusArguments parsed{.refreshes = arguments.front() == "top"};
  bool all_users = false;
  for (const std::string& word : arguments.subspan(1)) {
    if (word == "--json" && !parsed.refreshes) {
      parsed.json = true;
    } else if (names_all_users(word)) {
      all_users = true;
    } else if (word.empty() || word.starts_with('-') || !parsed.job.empty()) {
      throw LaunchError("expected ddprun status [JOB] [--json] [--all_users] or ddprun top [JOB] [--all_users], got '" +
                        word + "'");
    } else {
      parsed.job = word;
    }
  }
  if (all_users) parsed.scope = scope_of_all_users();
  return parsed;
}

// Adds the user at the beginning if it is known.
std::string document_of(const FoundJob& job) {
  if (job.user.empty()) return job.document;
  auto document = nlohmann::ordered_json::parse(job.document, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return job.document;
  document["user"] = job.user;
  return json_text(document);
}

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    throw LaunchError("cannot write to standard output");
}

// For a job that does not answer, only its socket and its process number are known.
std::string json_of_silent(const FoundJob& job) {
  return nlohmann::ordered_json{
      {"job", ""}, {"pid", job.pid}, {"problem", job.problem}, {"ranks", nlohmann::ordered_json::array()}}
      .dump();
}

std::string text_of_user(const FoundJob& job) {
  return job.user.empty() ? "" : "user " + printable(job.user) + ":\n";
}

std::string text_of(const std::vector<FoundJob>& found, bool json, std::size_t columns) {
  std::string text;
  for (const FoundJob& job : found) {
    if (job.document.empty() && !json) continue;
    if (!text.empty() && !json) text += "\n";
    text += !json ? text_of_user(job) + status_text(job.document, columns)
                  : (job.problem.empty() ? document_of(job) : json_of_silent(job)) + "\n";
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
  const StatusArguments parsed = parse_status_arguments(arguments);
  auto found = find_jobs(parsed.job, parsed.scope);
  if (found.empty()) return refuse_job(parsed.job, parsed.scope);
  if (parsed.refreshes && ::isatty(STDOUT_FILENO) == 1) {
    run_top(parsed.job, parsed.scope);
    found = find_jobs(parsed.job, parsed.scope);
  }
  const std::string text = text_of(found, parsed.json, terminal_size(STDOUT_FILENO).columns);
  if (!text.empty()) print(text);
  const std::string problems = problems_of(found);
  print_block(problems);
  return problems.empty() ? 0 : 1;
}

}  // namespace launcher
