#include "launcher/observe/watch/findings.h"

#include <utility>

namespace launcher {

const Hang& Findings::begin_hang(const HangReport& report, WallTime now) {
  const auto idle = std::chrono::duration_cast<WallTime::duration>(report.idle);
  return hang_.emplace(Hang{.verdict = report.verdict, .since = now - idle, .reported = now});
}

void Findings::begin_delay(int rank, std::string sentence, WallTime now) {
  end_delay(rank, now);
  delays_.push_front({.rank = rank, .sentence = std::move(sentence), .begin = now});
  if (delays_.size() > kMaxDelays) delays_.pop_back();
}

void Findings::end_delay(int rank, WallTime now) {
  for (Delay& delay : delays_) {
    if (delay.rank == rank && !delay.end) delay.end = now;
  }
}

void Findings::end_attempt(WallTime now) {
  clear_hang();
  for (Delay& delay : delays_) {
    if (!delay.end) delay.end = now;
  }
}

const char* name_of(Verdict::Kind kind) {
  switch (kind) {
    case Verdict::Kind::kDifferentCalls:
      return "different_collectives";
    case Verdict::Kind::kStopped:
      return "stopped";
    case Verdict::Kind::kMissing:
      return "missing";
    case Verdict::Kind::kCycle:
      return "cycle";
    case Verdict::Kind::kUnfinished:
      return "unfinished";
    case Verdict::Kind::kNoneWaits:
      return "none_waits";
    case Verdict::Kind::kUnseen:
      return "unseen";
    case Verdict::Kind::kNotAtStore:
      return "not_at_store";
  }
  return "unseen";
}

}  // namespace launcher
