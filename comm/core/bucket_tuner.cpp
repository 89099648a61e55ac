#include "comm/core/bucket_tuner.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace ddp::detail {
namespace {

constexpr int kStepsPerCandidate = 4;
constexpr int kUnmeasuredSteps = 1;  // the first step with new buckets also touches their memory
constexpr int64_t kMinCapBytes = int64_t{256} << 10;
constexpr int64_t kMaxCapBytes = int64_t{64} << 20;
constexpr int64_t kFactor = 2;
constexpr double kEqual = 1.02;  // step times differ by less than this from run to run
constexpr double kUnmeasured = std::numeric_limits<double>::infinity();

}  // namespace

BucketTuner::BucketTuner(int64_t gradient_bytes) {
  // The first candidate is one bucket for all gradients. The others are sizes that give at least two buckets.
  candidates_.push_back(std::max(gradient_bytes, kMinCapBytes));
  int64_t bytes = kMaxCapBytes;
  while (bytes >= std::max(gradient_bytes, int64_t{1})) bytes /= kFactor;  // also if there are no gradient bytes
  for (; bytes >= kMinCapBytes; bytes /= kFactor) candidates_.push_back(bytes);
  times_.assign(candidates_.size(), kUnmeasured);
}

void BucketTuner::record(double seconds) {
  if (finished_ || needs_decision()) return;
  if (++steps_ > kUnmeasuredSteps) times_[current_] = std::min(times_[current_], seconds);
  if (steps_ < kStepsPerCandidate) return;
  steps_ = 0;
  measured_ = current_ + 1;
  if (measured_ < candidates_.size()) current_ = measured_;
}

void BucketTuner::decide(const std::vector<double>& slowest_rank_times) {
  if (slowest_rank_times.size() != candidates_.size())
    throw std::invalid_argument("BucketTuner: expected one time per candidate");
  const double fastest = std::ranges::min(slowest_rank_times);
  // The largest size that is fast enough, since the candidates decrease: fewer collectives leave more processor time to
  // backward.
  const auto chosen = std::ranges::find_if(slowest_rank_times, [&](double time) { return time <= kEqual * fastest; });
  current_ = static_cast<size_t>(chosen - slowest_rank_times.begin());
  finished_ = true;
}

void BucketTuner::stop(int64_t bytes) {
  candidates_ = {bytes};
  times_.assign(1, kUnmeasured);
  current_ = 0;
  finished_ = true;
}

}  // namespace ddp::detail
