#include "launcher/local/report/failure_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#include "launcher/os/system/clock_text.h"
#include "launcher/os/system/formatted.h"
#include "launcher/os/system/utf8.h"
#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/first_failure.h"

namespace launcher {
namespace {

using SystemTime = std::chrono::system_clock::time_point;

constexpr std::size_t kMaxErrorLines = 12;
constexpr std::size_t kMaxErrorLineBytes = 400;
constexpr std::size_t kMaxFailuresListed = 8;

double seconds(SystemTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::string clock_time(SystemTime time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  return date_text(time) + formatted(".%03d", static_cast<int>(ms));
}

// Returns the worker's own message, indented. Control characters are replaced, as they would let a worker rewrite the
// terminal.
std::string quote_message(const std::string& message) {
  std::vector<std::string> lines;
  for (std::string_view left = message; !left.empty();) {
    const std::string_view line = left.substr(0, left.find('\n'));
    lines.push_back(printable(beginning(line, kMaxErrorLineBytes)));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::string text;
  // The end of a traceback says what happened.
  const std::size_t first = lines.size() > kMaxErrorLines ? lines.size() - kMaxErrorLines : 0;
  if (first > 0) text += "    ... (" + std::to_string(first) + " lines before)\n";
  for (std::size_t i = first; i < lines.size(); ++i) text += "    " + lines[i] + "\n";
  return text;
}

// Returns the last line that is not blank.
std::string_view last_line(std::string_view text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const std::size_t newline = text.rfind('\n');
  return newline == std::string_view::npos ? text : text.substr(newline + 1);
}

// True when the error file already contains the last line of standard error.
bool repeats_error(const RankEnd& rank) {
  if (!rank.error) return false;
  const std::string_view printed = last_line(rank.last_lines);
  const std::string_view written = last_line(rank.error->message);
  return written.find(printed) != std::string_view::npos ||
         (!written.empty() && printed.find(written) != std::string_view::npos);
}

// The report for a program that could not be executed. The kernel would refuse it for all ranks, so no single rank is
// named unless only some were refused.
std::string not_executed_report(const RankEnd& rank, const JobEnd& job) {
  const bool ran_elsewhere = std::any_of(job.ranks.begin(), job.ranks.end(), [](const RankEnd& other) {
    return other.was_executed && !other.stop_requested;
  });
  return "ddprun: " + (ran_elsewhere ? "rank " + std::to_string(rank.rank) + ": " : std::string()) +
         rank.error->message + "\n";
}

// The job was stopped because of a failure on another node.
std::string report_on_other_node(const JobEnd& job) {
  if (job.elsewhere->is_regrouping)
    return "ddprun: stopped to continue with other nodes: " + job.elsewhere->text + "\n";
  std::string text =
      "ddprun: stopped because of node " + std::to_string(job.elsewhere->node) + ": " + job.elsewhere->text + "\n";
  for (const std::string& line : job.elsewhere->details) text += line + "\n";
  for (const RankEnd& rank : job.ranks) {
    if (!rank.failed() || rank.stop_requested) continue;
    text += "  here:   rank " + std::to_string(rank.rank) + " " + describe_end(rank) + ", probably as a consequence\n";
  }
  return text;
}

// Describes the end of the rank that failed first. If the rank had written its error file and ddprun then ended it,
// this says so.
std::string describe_culprit(const RankEnd& culprit) {
  if (culprit.stop_requested && culprit.signal != 0) return "reported an error, and was stopped by ddprun";
  return describe_end(culprit);
}

std::string details_of(const RankEnd& culprit, const JobEnd& job) {
  std::string text = "  when:   " + clock_time(culprit.time) +
                     formatted(", %.3f s after the start", seconds(culprit.time) - seconds(job.start)) +
                     (job.attempt > 0 ? " of restart " + std::to_string(job.attempt) : "") + "\n";
  text += "  where:  host " + job.host + ", local rank " + std::to_string(culprit.local_rank) + ", process " +
          std::to_string(culprit.pid) + (job.gpu.empty() ? "" : ", " + job.gpu) + "\n";
  if (culprit.error) text += "  error:\n" + quote_message(culprit.error->message);
  if (!culprit.last_lines.empty() && !repeats_error(culprit)) {
    text += "  stderr:\n" + quote_message(culprit.last_lines);
  }
  if (!culprit.log_file.empty()) text += "  log:    " + culprit.log_file + "\n";
  for (const std::string& hint : job.hints) text += "  hint:   " + hint + "\n";
  return text;
}

// Returns the ranks that had ended with status 0 before `first`, if `first` failed because its connection to a peer was
// closed.
std::vector<int> ranks_ended_before(std::size_t first, const JobEnd& job) {
  const RankEnd& culprit = job.ranks[first];
  const std::string& words = culprit.error ? culprit.error->message : culprit.last_lines;
  std::vector<int> ranks;
  if (!is_consequence(culprit) && words.find("did not take part in it") == std::string::npos) return ranks;
  for (const RankEnd& rank : job.ranks) {
    if (!rank.failed() && !rank.stop_requested && rank.time <= culprit.time) ranks.push_back(rank.rank);
  }
  return ranks;
}

std::string report_on_culprit(const RankEnd& culprit, const std::vector<int>& left, const JobEnd& job) {
  std::string text = "ddprun: ";
  if (!left.empty())
    text += rank_list(left) + " ended with status 0 while other ranks still needed " +
            (left.size() == 1 ? "it" : "them") + "; of the other ranks, ";
  return text + "rank " + std::to_string(culprit.rank) + " failed first: it " + describe_culprit(culprit) + "\n" +
         details_of(culprit, job);
}

// One line about a rank that failed on its own after, or before, the first one.
std::string report_on_other_failure(const RankEnd& rank, const RankEnd& culprit, const JobEnd& job) {
  const double later = failure_time(rank, job) - failure_time(culprit, job);
  return "  " + std::string(later < 0 ? "but:    rank " : "later:  rank ") + std::to_string(rank.rank) + " " +
         describe_end(rank) + formatted(later < 0 ? ", %.3f s before that" : ", %.3f s after it", std::abs(later)) +
         (is_consequence(rank) ? ": its connection to another rank was closed\n" : "\n");
}

// Returns the rank's error message without the prefix "rank 3 of 8: ", so that messages of several ranks can be
// compared.
std::string_view message_without_prefix(const RankEnd& rank) {
  std::string_view words = rank.error ? std::string_view(rank.error->message) : last_line(rank.last_lines);
  const std::size_t end = words.find(": ");
  const std::string_view prefix = words.substr(0, end);
  if (end != std::string_view::npos && prefix.starts_with("rank ") &&
      prefix.substr(5).find_first_not_of("0123456789 of") == std::string_view::npos) {
    words.remove_prefix(end + 2);
  }
  while (words.ends_with('\n')) words.remove_suffix(1);
  return words;
}

// One line about the ranks that failed with the same message as the first one.
std::string report_on_same_message(const std::vector<const RankEnd*>& same, const RankEnd& culprit, const JobEnd& job) {
  if (same.empty()) return "";
  std::vector<int> ranks;
  double last = 0;
  for (const RankEnd* rank : same) {
    ranks.push_back(rank->rank);
    last = std::max(last, failure_time(*rank, job) - failure_time(culprit, job));
  }
  return "  later:  " + rank_list(ranks) + " " + describe_end(*same.front()) +
         formatted(same.size() == 1 ? ", %.3f s after it, with the same message\n"
                                    : ", within %.3f s, with the same message\n",
                   last);
}

// `left` are the ranks that the report has already named.
std::string report_on_others(std::size_t first, const std::vector<int>& left, const JobEnd& job) {
  std::string text;
  std::vector<int> stopped;
  std::vector<int> finished;
  std::vector<const RankEnd*> same;
  std::size_t failed = 0;
  const std::string_view first_words = message_without_prefix(job.ranks[first]);
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankEnd& rank = job.ranks[i];
    if (i == first) continue;
    if (!rank.failed()) {
      if (std::find(left.begin(), left.end(), rank.rank) == left.end()) finished.push_back(rank.rank);
    } else if (rank.stop_requested) {
      stopped.push_back(rank.rank);
    } else if (!first_words.empty() && message_without_prefix(rank) == first_words &&
               failure_time(rank, job) >= failure_time(job.ranks[first], job) &&
               (same.empty() || describe_end(rank) == describe_end(*same.front()))) {
      same.push_back(&rank);
    } else if (failed++ < kMaxFailuresListed) {
      text += report_on_other_failure(rank, job.ranks[first], job);
    }
  }
  text.insert(0, report_on_same_message(same, job.ranks[first], job));
  if (failed > kMaxFailuresListed) {
    text += "  later:  " + std::to_string(failed - kMaxFailuresListed) + " more failed as well\n";
  }
  if (!stopped.empty())
    text += "  others: " + rank_list(stopped) + (stopped.size() == 1 ? " was" : " were") + " stopped by ddprun\n";
  if (!finished.empty()) text += "  others: " + rank_list(finished) + " had ended normally\n";
  return text;
}

}  // namespace

std::vector<std::string> failure_details(const JobEnd& job, std::size_t first) {
  const std::string text = details_of(job.ranks[first], job);
  std::vector<std::string> lines;
  for (std::string_view left = text; !left.empty(); left.remove_prefix(lines.back().size() + 1)) {
    lines.emplace_back(left.substr(0, left.find('\n')));
  }
  return lines;
}

std::string failure_report(const JobEnd& job) {
  if (job.elsewhere) return report_on_other_node(job);
  const auto first = first_failure(job);
  if (!first) return job.is_late() ? "ddprun: stopped because " + job.timeout_reason + "\n" : "";
  const RankEnd& culprit = job.ranks[*first];
  if (!culprit.was_executed && culprit.error) return not_executed_report(culprit, job);
  const std::vector<int> left = ranks_ended_before(*first, job);
  return report_on_culprit(culprit, left, job) + report_on_others(*first, left, job);
}

}  // namespace launcher
