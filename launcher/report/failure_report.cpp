#include "launcher/report/failure_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "launcher/system/exit_status.h"
#include "launcher/system/signals.h"

namespace launcher {
namespace {

using SystemTime = std::chrono::system_clock::time_point;

constexpr std::size_t kMaxErrorLines = 12;
constexpr std::size_t kMaxErrorLineBytes = 400;
constexpr std::size_t kMaxRanksListed = 8;

double seconds(SystemTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// When the rank's trouble began: when it wrote its error file, if that is believable, else when it ended. A time in
// whole seconds means any moment of that second, so it counts as its end.
double trouble_time(const RankEnd& rank, const JobEnd& job) {
  const double end = seconds(rank.time);
  if (!rank.error || !rank.error->time) return end;
  double written = *rank.error->time;
  if (written == std::floor(written)) written += 1;
  return written < seconds(job.start) || written > end ? end : written;
}

// True when the failure of `a` rather than that of `b` explains the other one.
bool outranks(const RankEnd& a, const RankEnd& b, const JobEnd& job) {
  if (is_consequence(a) != is_consequence(b)) {
    if (is_consequence(a)) return false;
    // `b` says that its peer went away. A time in whole seconds may be up to one too early, which does no harm here.
    return !a.told_to_stop || !a.error->time || *a.error->time <= seconds(b.time);
  }
  return trouble_time(a, job) < trouble_time(b, job);
}

std::string format(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string clock_time(SystemTime time) {
  const std::time_t whole = std::chrono::system_clock::to_time_t(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  std::tm parts{};
  ::localtime_r(&whole, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  std::array<char, 8> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%03d", static_cast<int>(ms));
  return std::string(text.data()) + fraction.data();
}

// The worker's own words, indented. Control characters would let a worker rewrite the terminal.
std::string quote_message(const std::string& message) {
  std::vector<std::string> lines(1);
  for (const char c : message) {
    if (c == '\n') {
      lines.emplace_back();
    } else if (lines.back().size() < kMaxErrorLineBytes) {
      const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      lines.back().push_back(is_control ? ' ' : c);
    }
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::string text;
  // The end of a traceback says what happened.
  const std::size_t first = lines.size() > kMaxErrorLines ? lines.size() - kMaxErrorLines : 0;
  if (first > 0) text += "    ... (" + std::to_string(first) + " lines before)\n";
  for (std::size_t i = first; i < lines.size(); ++i) text += "    " + lines[i] + "\n";
  return text;
}

// What gloo, NCCL and the store say when the other end of a connection went away, and when there is none.
constexpr std::array<std::string_view, 6> kLostPeer = {
    "Connection closed by peer", "Connection reset by peer", "Broken pipe",
    "remote process exited",     "connection was closed",    "Stop_waiting response"};
constexpr std::array<std::string_view, 1> kNoPeer = {"Connection refused"};

template <std::size_t kCount>
bool says_any_of(const RankEnd& rank, const std::array<std::string_view, kCount>& signs) {
  // Programs that write no error file say it on standard error.
  const std::string& words = rank.error ? rank.error->message : rank.last_lines;
  return std::any_of(signs.begin(), signs.end(),
                     [&](std::string_view sign) { return words.find(sign) != std::string::npos; });
}

// The last line that is not blank.
std::string_view last_line(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const std::size_t newline = text.rfind('\n');
  return newline == std::string_view::npos ? text : text.substr(newline + 1);
}

// The error file already says what standard error ended with.
bool repeats_error(const RankEnd& rank) {
  if (!rank.error) return false;
  const std::string_view printed = last_line(rank.last_lines);
  const std::string_view written = last_line(rank.error->message);
  return written.find(printed) != std::string_view::npos ||
         (!written.empty() && printed.find(written) != std::string_view::npos);
}

// No rank is to blame for a program that the kernel refuses: it would refuse it to all. Unless it did not.
std::string not_executed_report(const RankEnd& rank, const JobEnd& job) {
  const bool ran_elsewhere = std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankEnd& other) {
    return other.was_executed && !other.told_to_stop;
  });
  return "ddprun: " + (ran_elsewhere ? "rank " + std::to_string(rank.rank) + ": " : std::string()) +
         rank.error->message + "\n";
}

}  // namespace

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMaxRanksListed && ranks.size() > kMaxRanksListed + 1) {
      return text + " and " + std::to_string(ranks.size() - i) + " more";
    }
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string describe_end(const RankEnd& rank) {
  if (rank.signal != 0) {
    return "was killed by " + signal_name(rank.signal) + (rank.core_dumped ? " (core dumped)" : "");
  }
  return rank.exit_code == 0 ? "ended normally" : "exited with status " + std::to_string(rank.exit_code);
}

bool is_consequence(const RankEnd& rank) {
  return says_any_of(rank, kLostPeer) || says_any_of(rank, kNoPeer);
}

bool is_vague_consequence(const RankEnd& rank) {
  return says_any_of(rank, kNoPeer) && !says_any_of(rank, kLostPeer);
}

std::optional<std::size_t> first_failure(const JobEnd& job) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    if (!job.ranks[i].failed() || job.ranks[i].told_to_stop) continue;
    if (!first || outranks(job.ranks[i], job.ranks[*first], job)) first = i;
  }
  if (!first) return first;
  // A rank that ended only after it was asked to stop is a candidate if it had written down its own trouble.
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankEnd& rank = job.ranks[i];
    if (rank.failed() && rank.told_to_stop && rank.error && outranks(rank, job.ranks[*first], job)) first = i;
  }
  return first;
}

int status_of(const RankEnd& rank) {
  return rank.signal != 0 ? to_int(ExitStatus::kSignalBase) + rank.signal : rank.exit_code;
}

int exit_status(const JobEnd& job) {
  if (job.elsewhere) return job.elsewhere->exit_status;
  if (const auto first = first_failure(job)) {
    const RankEnd& culprit = job.ranks[*first];
    // It was about to end by itself when our own signal ended it.
    if (culprit.told_to_stop && culprit.signal != 0) return 1;
    return status_of(culprit);
  }
  if (job.is_late()) return to_int(ExitStatus::kTimeout);
  if (job.stop_signal == 0) return to_int(ExitStatus::kSuccess);
  // Told to stop: no failure when every rank saved and left by itself.
  bool saved = false;
  for (const RankEnd& rank : job.ranks) {
    if (!rank.failed()) continue;
    if (rank.exit_code != to_int(ExitStatus::kSavedAndStopped))
      return to_int(ExitStatus::kSignalBase) + job.stop_signal;
    saved = true;
  }
  return to_int(saved ? ExitStatus::kSavedAndStopped : ExitStatus::kSuccess);
}

int torchrun_exit_status(const JobEnd& job) {
  const int status = exit_status(job);
  const bool is_own = !job.elsewhere && job.is_late() && !first_failure(job);
  return status == 0 || is_own ? status : 1;
}

std::string failure_report(const JobEnd& job) {
  if (job.elsewhere) {
    std::string text =
        "ddprun: stopped because of node " + std::to_string(job.elsewhere->node) + ": " + job.elsewhere->text + "\n";
    for (const RankEnd& rank : job.ranks) {
      if (!rank.failed() || rank.told_to_stop) continue;
      text +=
          "  here:   rank " + std::to_string(rank.rank) + " " + describe_end(rank) + ", probably as a consequence\n";
    }
    return text;
  }
  const auto first = first_failure(job);
  if (!first) return job.is_late() ? "ddprun: stopped because " + job.late_reason + "\n" : "";
  const RankEnd& culprit = job.ranks[*first];
  if (!culprit.was_executed && culprit.error) return not_executed_report(culprit, job);
  std::string text =
      "ddprun: rank " + std::to_string(culprit.rank) + " failed first: it " + describe_end(culprit) + "\n";
  text += "  when:   " + clock_time(culprit.time) +
          format(", %.3f s after the start", seconds(culprit.time) - seconds(job.start)) +
          (job.attempt > 0 ? " of restart " + std::to_string(job.attempt) : "") + "\n";
  text += "  where:  host " + job.host + ", local rank " + std::to_string(culprit.local_rank) + ", process " +
          std::to_string(culprit.pid) + (job.gpu.empty() ? "" : ", " + job.gpu) + "\n";
  if (culprit.error) text += "  error:\n" + quote_message(culprit.error->message);
  if (!culprit.last_lines.empty() && !repeats_error(culprit)) {
    text += "  stderr:\n" + quote_message(culprit.last_lines);
  }
  if (!culprit.log_file.empty()) text += "  log:    " + culprit.log_file + "\n";

  for (const std::string& hint : job.hints) text += "  hint:   " + hint + "\n";

  std::vector<int> stopped;
  std::vector<int> finished;
  std::size_t others_listed = 0;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankEnd& rank = job.ranks[i];
    if (i == *first) continue;
    if (!rank.failed()) {
      finished.push_back(rank.rank);
    } else if (rank.told_to_stop) {
      stopped.push_back(rank.rank);
    } else if (others_listed++ < kMaxRanksListed) {
      const double later = seconds(rank.time) - seconds(culprit.time);
      text += "  " + std::string(later < 0 ? "but:    rank " : "later:  rank ") + std::to_string(rank.rank) + " " +
              describe_end(rank) + format(later < 0 ? ", %.3f s before that" : ", %.3f s after it", std::abs(later)) +
              (is_consequence(rank) ? ": its peer was gone\n" : "\n");
    }
  }
  if (others_listed > kMaxRanksListed) {
    text += "  later:  " + std::to_string(others_listed - kMaxRanksListed) + " more failed as well\n";
  }
  if (!stopped.empty())
    text += "  others: " + rank_list(stopped) + (stopped.size() == 1 ? " was" : " were") + " stopped by ddprun\n";
  if (!finished.empty()) text += "  others: " + rank_list(finished) + " had ended normally\n";
  return text;
}

}  // namespace launcher
