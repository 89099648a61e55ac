// A progress bar like Python's tqdm. It shows the rate, the remaining time, and values of the loop, such as the loss.
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
  std::string unit = "it";    ///< the unit of the steps that advance() counts
  std::optional<int> rank{};  ///< this process's rank; ranks other than 0 show nothing
  int64_t initial = 0;        ///< steps that an earlier run has done; they do not count for the rate
  std::chrono::milliseconds redraw_interval{100};  ///< interval for redrawing on a terminal
  std::chrono::milliseconds line_interval{5'000};  ///< if not on a terminal: interval between plain lines
  std::FILE* stream = stderr;                      ///< owned by the caller
};

/// A value that is shown after the bar: a number with three significant digits, an integer with all digits, or a text.
/// A tensor of one element is read when it is shown; the host then waits for its device.
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

  /// Returns the text that the bar shows.
  std::string text() const;

 private:
  std::variant<double, std::string, std::function<double()>> value_;
};

/// Shows the progress of a loop. On a terminal, it redraws one line. To a pipe or file, it writes a plain line from
/// time to time. Under ddprun, the destination of ddprun's own output determines which of the two is used. Not safe for
/// concurrent calls. While a bar is shown, print text with print(), which puts it above the bars; nothing else should
/// write to the terminal.
///
///     ddp::ProgressBar epochs(10, group, {.description = "epochs"});
///     for (int epoch = 0; epoch < 10; ++epoch, epochs.advance()) {
///       ddp::ProgressBar bar(epochs, loader.size(), {.description = "train"});
///       for (auto& batch : loader) { …; bar.set_postfix({{"loss", loss}}); bar.advance(); }
///     }
class ProgressBar {
 public:
  /// `total` is the number of steps, or nullopt if it is unknown. For one process, or with `.rank`. Throws
  /// std::invalid_argument in a job of several ranks without `.rank`.
  explicit ProgressBar(std::optional<int64_t> total, ProgressOptions options = {});
  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Ranks other than 0
  /// show nothing.
  template <RankedGroup Group>
  ProgressBar(std::optional<int64_t> total, const Group& group, ProgressOptions options = {})
      : ProgressBar(total, with_rank("ProgressBar", std::move(options), group)) {}
  /// Shows a bar in the line below that of `outer`; it is removed when it is closed. Rank, stream and intervals are
  /// those of `outer`, which must outlive it.
  ProgressBar(ProgressBar& outer, std::optional<int64_t> total, ProgressOptions options = {});
  /// Calls close().
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Adds `steps` to the number of steps done. Draws the bar if the interval since the last drawing has passed.
  void advance(int64_t steps = 1);

  /// Replaces the values after the rate. They are shown from the next drawing on.
  void set_postfix(std::initializer_list<std::pair<std::string_view, PostfixValue>> values);
  /// Replaces the text before the bar. It is shown from the next drawing on.
  void set_description(std::string description);

  /// Prints one or more lines above the bars. Ranks other than 0 print nothing.
  void print(std::string_view line);

  /// Draws for the last time. An outermost bar stays on the screen, and an inner bar is removed. If the output is not a
  /// terminal and the last line already shows the final state, nothing is written.
  void close();

  /// Returns the number of steps so far, including ProgressOptions::initial.
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
  std::vector<std::pair<std::string, PostfixValue>> postfix_{};  // values that were not drawn yet
  ProgressBar* outer_ = nullptr;
  int depth_ = 0;
  int rank_ = 0;
  bool is_shown_ = false;  // true if this rank shows the bar and it is not closed
  bool is_terminal_ = false;
  bool is_closing_ = false;
  /// If the output is not a terminal: the content of the last line, so that close() does not repeat it.
  std::optional<std::string> last_line_;
  Clock::time_point start_;
  Clock::time_point last_draw_;
  Clock::time_point last_rate_;
  int64_t done_at_last_rate_ = 0;
};

}  // namespace ddp
