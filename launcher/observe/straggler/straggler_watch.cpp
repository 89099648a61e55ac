#include "launcher/observe/straggler/straggler_watch.h"

#include <algorithm>
#include <utility>

namespace launcher {
namespace {

constexpr std::chrono::milliseconds kStragglerInterval{500};

}  // namespace

StragglerWatch::StragglerWatch(EventLoop& loop, StragglerWatchOptions options)
    : loop_(loop), options_(std::move(options)), tracker_(options_.threshold) {
  if (options_.threshold > 0) timer_ = loop_.call_at(EventLoop::Clock::now() + kStragglerInterval, [this] { look(); });
}

StragglerWatch::~StragglerWatch() {
  if (timer_) loop_.cancel(*timer_);
}

void StragglerWatch::look() {
  timer_ = loop_.call_at(EventLoop::Clock::now() + kStragglerInterval, [this] { look(); });
  take(options_.ranks());
}

// Ranks that tell nothing are not looked at.
std::vector<RankSample> StragglerWatch::samples_of(const std::vector<WatchedRank>& ranks) {
  std::vector<RankSample> samples;
  for (const WatchedRank& rank : ranks) {
    if (rank.page == nullptr) continue;
    const auto account = ddp::detail::read_account(*rank.page);
    if (!account) continue;
    RankSample sample{.rank = rank.rank, .host = options_.host, .account = *account};
    if (rank.runs()) sample.delays = kernel_.look_at(writer_of(rank));
    if (options_.gpu_of) sample.gpu = options_.gpu_of(rank.rank);
    samples.push_back(std::move(sample));
  }
  return samples;
}

void StragglerWatch::take(const std::vector<WatchedRank>& ranks) {
  std::vector<RankSample> samples = samples_of(ranks);
  if (options_.on_samples && !samples.empty()) options_.on_samples(samples);
  if (options_.others) {
    for (RankSample& sample : options_.others()) samples.push_back(std::move(sample));
  }
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  auto slice = slicer_.add(samples);
  if (!slice) return;
  for (const RankShare& share : *slice) {
    times_[share.rank] = {share.own_per_step() / 1e6, share.waited_per_step() / 1e6};
  }
  if (!options_.judges) return;
  efficiency_.add(*slice);
  for (const StragglerChange& change : tracker_.add(std::move(*slice))) {
    if (change.is_over) {
      named_.erase(change.straggler.rank);
    } else {
      named_[change.straggler.rank] = change.straggler;
    }
    if (options_.on_change) options_.on_change(change);
  }
}

std::optional<StepTimes> StragglerWatch::step_times(int rank) const {
  const auto found = times_.find(rank);
  return found != times_.end() ? std::optional(found->second) : std::nullopt;
}

const Straggler* StragglerWatch::straggler(int rank) const {
  const auto found = named_.find(rank);
  return found != named_.end() ? &found->second : nullptr;
}

std::string StragglerWatch::finish(const std::vector<WatchedRank>& ranks) {
  if (options_.threshold <= 0) return "";
  options_.on_change = nullptr;  // it comes too late
  take(ranks);
  return efficiency_.text();
}

}  // namespace launcher
