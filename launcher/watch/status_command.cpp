#include "launcher/watch/status_command.h"

#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launcher/system/launch_error.h"
#include "launcher/system/line.h"
#include "launcher/watch/runtime_folder.h"
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

bool is_asked_for(const std::string& document, const std::string& job) {
  if (job.empty()) return true;
  const auto parsed = nlohmann::json::parse(document, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() && (parsed.value("job", "") == job || std::to_string(parsed.value("pid", 0)) == job);
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

std::string text_of(const std::vector<std::string>& found, bool json, std::size_t columns = 0) {
  std::string text;
  for (const std::string& document : found) {
    if (!text.empty() && !json) text += "\n";
    text += json ? document + "\n" : status_text(document, columns);
  }
  return text;
}

std::vector<std::string> documents(const std::string& job) {
  std::vector<std::string> found;
  for (FoundJob& each : find_jobs(job)) found.push_back(std::move(each.document));
  return found;
}

}  // namespace

std::optional<std::string> ask(const std::string& socket, const std::string& question) {
  const UniqueFd fd = connect_to(socket);
  if (!fd || ::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) < 0) return std::nullopt;
  std::string answer;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return answer.empty() ? std::nullopt : std::optional(answer);
    answer.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

std::vector<FoundJob> find_jobs(const std::string& job) {
  std::vector<FoundJob> found;
  for (const std::string& socket : living_sockets(runtime_folder())) {
    auto document = ask(socket, "status\n");
    if (document && is_asked_for(*document, job)) found.push_back({socket, std::move(*document)});
  }
  return found;
}

int refuse_job(const std::string& job) {
  print_line(job.empty() ? "no job of yours runs on this machine"
                         : "no job '" + job + "' of yours runs on this machine (its name, or ddprun's process number)");
  return 1;
}

bool is_status_command(std::span<const std::string> arguments) {
  return !arguments.empty() && (arguments.front() == "status" || arguments.front() == "top");
}

int run_status_command(std::span<const std::string> arguments) {
  const Question question = parse(arguments);
  auto found = documents(question.job);
  if (found.empty()) return refuse_job(question.job);
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  while (question.refreshes && is_terminal && !found.empty()) {
    // Home, then each line to its end, then what is left below. Lines that wrapped would tear the table.
    print("\x1b[H\x1b[2J" + text_of(found, false, terminal_columns()));
    std::this_thread::sleep_for(1s);
    found = documents(question.job);
  }
  if (!found.empty()) print(text_of(found, question.json));
  return 0;
}

}  // namespace launcher
