// A loop with a progress bar: `for (auto& batch : ddp::progress(loader, group))`.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <ddprun/base/rank_info.h>
#include <ddprun/monitor/progress_bar.h>

namespace ddp {

/// The result of progress(): a range, with the progress bar of the running loop.
template <typename Range>
class ProgressLoop {
 public:
  /// Called by progress(); programs do not call it.
  ProgressLoop(Range&& range, std::function<std::unique_ptr<ProgressBar>()> make_bar)
      : range_(std::forward<Range>(range)), make_bar_(std::move(make_bar)) {}

  /// Iterates over the range, and advances the bar with each step.
  class Iterator {
   public:
    /// Called by begin(); programs do not call it.
    explicit Iterator(ProgressLoop* loop) : loop_(loop), at_(std::begin(loop->range_)) {}
    /// The current element of the range.
    decltype(auto) operator*() { return *at_; }
    /// Advances the range and the bar.
    Iterator& operator++() {
      ++at_;
      loop_->bar_->advance();
      return *this;
    }
    /// Whether the range has ended.
    bool operator==(std::default_sentinel_t) const { return at_ == std::end(loop_->range_); }

   private:
    ProgressLoop* loop_;
    decltype(std::begin(std::declval<std::remove_reference_t<Range>&>())) at_;
  };

  /// Begins the loop, with a new bar.
  Iterator begin() {
    bar_ = make_bar_();
    return Iterator(this);
  }
  /// The end of the loop.
  std::default_sentinel_t end() const { return std::default_sentinel; }

  /// Returns the bar while the loop runs, for set_postfix(), set_description() and print().
  ProgressBar& bar() { return *bar_; }

 private:
  Range range_;  // a reference if the caller owns the range
  std::function<std::unique_ptr<ProgressBar>()> make_bar_;
  std::unique_ptr<ProgressBar> bar_;
};

namespace detail {

// Returns the number of steps of the loop, if the range knows it.
template <typename Range>
std::optional<int64_t> steps_of(const Range& range) {
  if constexpr (requires { range.size(); }) {
    if constexpr (requires { *range.size(); }) {  // LibTorch's datasets: an optional
      return range.size() ? std::optional<int64_t>(static_cast<int64_t>(*range.size())) : std::nullopt;
    } else {
      return static_cast<int64_t>(range.size());
    }
  } else {
    return std::nullopt;
  }
}

}  // namespace detail

// GCC warns about a function with the name of a class, which is intended here (see ddprun/base/progress.h).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

/// Returns `range` (a loader or any other range) with a progress bar that advances at the end of each step, like
/// Python's tqdm(range). It can be iterated more than once. Only rank 0 of the group shows the bar. If the range is an
/// lvalue, it must outlive the loop.
///
///     for (auto& batch : ddp::progress(loader, group, {.description = "train"})) { … }
///
///     auto loop = ddp::progress(loader, group);
///     for (auto& batch : loop) { …; loop.bar().set_postfix({{"loss", loss}}); }
template <typename Range, RankedGroup Group>
auto progress(Range&& range, const Group& group, ProgressOptions options = {}) {
  const auto total = detail::steps_of(range);
  return ProgressLoop<Range>(std::forward<Range>(range), [total, group = &group, options = std::move(options)] {
    return std::make_unique<ProgressBar>(total, *group, options);
  });
}

/// The same for one process, or with `.rank`.
template <typename Range>
auto progress(Range&& range, ProgressOptions options = {}) {
  const auto total = detail::steps_of(range);
  return ProgressLoop<Range>(std::forward<Range>(range), [total, options = std::move(options)] {
    return std::make_unique<ProgressBar>(total, options);
  });
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace ddp
