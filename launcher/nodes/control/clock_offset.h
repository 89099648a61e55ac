// By how much another host's clock is ahead of ours, by questions and answers: the quicker an answer, the closer its
// time lies to the middle between question and answer, so the quickest one of late counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace launcher::control {

inline std::int64_t steady_microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

class ClockOffset {
 public:
  // Microseconds: when we asked and heard the answer, by our clock, and when it was given, by theirs.
  void add(std::int64_t asked, std::int64_t answered, std::int64_t heard) {
    const std::int64_t round_trip = heard - asked;
    if (round_trip < 0) return;
    // Clocks drift, so that no answer counts forever.
    if (count_++ % kAnswers == 0) {
      earlier_ = latest_;
      latest_.reset();
    }
    if (!latest_ || round_trip < latest_->round_trip) {
      latest_ = Answer{.round_trip = round_trip, .ahead = answered - (asked + round_trip / 2)};
    }
  }
  // Microseconds; nothing before the first answer.
  std::optional<std::int64_t> ahead() const {
    if (!latest_) return std::nullopt;
    return earlier_ && earlier_->round_trip < latest_->round_trip ? earlier_->ahead : latest_->ahead;
  }

 private:
  static constexpr std::uint64_t kAnswers = 64;
  struct Answer {
    std::int64_t round_trip = 0;
    std::int64_t ahead = 0;
  };
  std::uint64_t count_ = 0;
  std::optional<Answer> earlier_ = std::nullopt;
  std::optional<Answer> latest_ = std::nullopt;
};

}  // namespace launcher::control
