// A progress bar as Python's tqdm: rate, time left, and what the loop wants to show, such as the loss.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/base/rank_option.h>
#include <ddprun/detail/monitor/progress_format.h>
#include <ddprun/detail/monitor/tensor_values.h>

namespace ddp {

/// Settings of a progress bar, all optional.
struct ProgressOptions {
  std::string description{};  ///< in front of the bar
  std::string unit = "it";    ///< what advance() counts
  std::optional<int> rank{};  ///< this process's rank; the others than rank 0 show nothing
  int64_t initial = 0;        ///< steps done before, by an earlier run; they do not count for the rate
  std::chrono::milliseconds redraw_interval{100};  ///< on a terminal
  std::chrono::milliseconds line_interval{5'000};  ///< elsewhere: one plain line each time
  std::FILE* stream = stderr;                      ///< owned by the caller
};

/// A value shown after the bar: numbers in three digits, whole ones in all, text as it is; a tensor of one element is
/// read where it is shown, so the host waits for its device.
class PostfixValue {
 public:
  /// A number.
  template <typename Number>
  requires std::is_arithmetic_v<Number> PostfixValue(Number number) : value_(static_cast<double>(number)) {}
  /// A text.
  template <typename Text>
  requires std::is_convertible_v<const Text&, std::string_view> PostfixValue(const Text& text)
      : value_(std::string(std::string_view(text))) {}
  /// A tensor of one element, which is read when it is shown.
  template <TensorLike Tensor>
  PostfixValue(const Tensor& tensor) : value_([value = tensor.detach()] { return value.template item<double>(); }) {}

  /// As the bar shows it.
  std::string text() const;

 private:
  std::variant<double, std::string, std::function<double()>> value_;
};

/// Shows how far a loop is, on the terminal in place, and in a pipe or file as a plain line now and then;
/// under ddprun as ddprun's own output is. Not safe for concurrent calls; nothing but bars should write to the terminal
/// meanwhile: print() goes above.
///
///     ddp::ProgressBar epochs(10, group, {.description = "epochs"});
///     for (int epoch = 0; epoch < 10; ++epoch, epochs.advance()) {
///       ddp::ProgressBar bar(epochs, loader.size(), {.description = "train"});
///       for (auto& batch : loader) { …; bar.set_postfix({{"loss", loss}}); bar.advance(); }
///     }
class ProgressBar {
 public:
  /// `total` steps; nullopt when nobody knows. For one process, or with `.rank`: throws std::invalid_argument in a job
  /// of several ranks without.
  explicit ProgressBar(std::optional<int64_t> total, ProgressOptions options = {});
  /// On rank 0 of a ProcessGroup, GroupHandle or anything else with rank() and size(); the others show nothing.
  template <RankedGroup Group>
  ProgressBar(std::optional<int64_t> total, const Group& group, ProgressOptions options = {})
      : ProgressBar(total, with_rank("ProgressBar", std::move(options), group)) {}
  /// A bar in the line below `outer`'s, gone at its end. Rank, stream and intervals are those of `outer`, which must
  /// outlive it.
  ProgressBar(ProgressBar& outer, std::optional<int64_t> total, ProgressOptions options = {});
  /// close().
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `steps` more are done. Draws when it is time to.
  void advance(int64_t steps = 1);

  /// Replaces the values that follow the rate, shown from the next drawing on.
  void set_postfix(std::initializer_list<std::pair<std::string_view, PostfixValue>> values);
  /// Replaces what is in front of the bar, shown from the next drawing on.
  void set_description(std::string description);

  /// A line of its own, or several, above the bars. On other ranks than 0 nothing.
  void print(std::string_view line);

  /// Draws for the last time. An outermost bar stays in its line, an inner one is removed. Elsewhere than on a terminal
  /// nothing is written when the last line shows the final state already.
  void close();

  /// Steps so far, ProgressOptions::initial included.
  int64_t done() const { return state_.done; }

 private:
  using Clock = std::chrono::steady_clock;

  void start();
  void draw(Clock::time_point now);
  std::string drawn(Clock::time_point now);
  bool is_complete() const { return state_.total && state_.done == *state_.total; }
  std::string line_content() const;
  void read_postfix();
  void update_rate(Clock::time_point now);
  int64_t width() const;

  ProgressOptions options_;
  ProgressState state_;
  std::vector<std::pair<std::string, PostfixValue>> postfix_{};  // not drawn yet
  ProgressBar* outer_ = nullptr;
  int depth_ = 0;
  int rank_ = 0;
  bool is_shown_ = false;  // on this rank, and not closed
  bool is_terminal_ = false;
  bool is_closing_ = false;
  /// Elsewhere than on a terminal: what the last line said, so that closing does not repeat it.
  std::optional<std::string> last_line_;
  Clock::time_point start_;
  Clock::time_point last_draw_;
  Clock::time_point last_rate_;
  int64_t done_at_last_rate_ = 0;
};

}  // namespace ddp
