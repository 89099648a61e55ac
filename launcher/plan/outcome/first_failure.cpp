#include "launcher/plan/outcome/first_failure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

namespace launcher {
namespace {

double seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// True when the failure of `a` explains that of `b`, and not the other way round.
bool outranks(const RankEnd& a, const RankEnd& b, const JobEnd& job) {
  if (is_consequence(a) != is_consequence(b)) {
    if (is_consequence(a)) return false;
    // `b` reports that its peer is gone. A time in whole seconds may be up to one second too early, which does no harm
    // here.
    return !a.stop_requested || !a.error->time || *a.error->time <= seconds(b.time);
  }
  return failure_time(a, job) < failure_time(b, job);
}

// Messages of gloo, NCCL and the store when the other end of a connection was closed or cannot be reached, and of our
// library when a rank leaves its group while others still need it.
constexpr std::array<std::string_view, 7> kLostPeer = {
    "Connection closed by peer", "Connection reset by peer", "Broken pipe",         "remote process exited",
    "connection was closed",     "Stop_waiting response",    "has closed its group"};
constexpr std::array<std::string_view, 1> kNoPeer = {"Connection refused"};

template <std::size_t kCount>
bool message_has_any_of(const RankEnd& rank, const std::array<std::string_view, kCount>& signs) {
  // Programs without an error file print the message on standard error.
  const std::string& words = rank.error ? rank.error->message : rank.last_lines;
  return std::any_of(signs.begin(), signs.end(),
                     [&](std::string_view sign) { return words.find(sign) != std::string::npos; });
}

}  // namespace

double failure_time(const RankEnd& rank, const JobEnd& job) {
  const double end = seconds(rank.time);
  if (!rank.error || !rank.error->time) return end;
  double written = *rank.error->time;
  if (written == std::floor(written)) written += 1;
  return written >= seconds(job.start) && written <= end ? written : end;  // a NaN fails these comparisons
}

bool is_consequence(const RankEnd& rank) {
  return message_has_any_of(rank, kLostPeer) || message_has_any_of(rank, kNoPeer);
}

bool is_ambiguous_consequence(const RankEnd& rank) {
  return message_has_any_of(rank, kNoPeer) && !message_has_any_of(rank, kLostPeer);
}

std::optional<std::size_t> first_failure(const JobEnd& job) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    if (job.announced == job.ranks[i].rank) return i;
  }
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    if (!job.ranks[i].failed() || job.ranks[i].stop_requested) continue;
    if (!first || outranks(job.ranks[i], job.ranks[*first], job)) first = i;
  }
  if (!first) return first;
  // A rank that ended only after it was asked to stop is a candidate if it had written an error file before.
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankEnd& rank = job.ranks[i];
    if (rank.failed() && rank.stop_requested && rank.error && outranks(rank, job.ranks[*first], job)) first = i;
  }
  return first;
}

}  // namespace launcher
