#include "ddprun/monitor/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace ddp {
namespace {

/// The weight of the newest rate in the moving average; the default of tqdm.
constexpr double kSmoothing = 0.3;
/// Steps that take less time than this are not sufficient to estimate the rate.
constexpr std::chrono::milliseconds kRateInterval{50};
constexpr int64_t kDefaultColumns = 80;
constexpr const char* kClearLine = "\r\x1b[K";
/// Clears everything from the line of the outermost bar, where the cursor is, to the end of the screen.
constexpr const char* kClearBars = "\r\x1b[J";

bool can_move_cursor(std::FILE* stream) {
  const int file = ::fileno(stream);
  const char* terminal = std::getenv("TERM");
  return file >= 0 && ::isatty(file) == 1 && (terminal == nullptr || std::string_view(terminal) != "dumb");
}

void write(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

/// Returns a sequence that writes the text `depth` lines further down and moves the cursor back.
std::string below(int depth, const std::string& text) {
  if (depth == 0) return text;
  std::string moved(static_cast<size_t>(depth), '\n');
  moved.append(text).append("\x1b[").append(std::to_string(depth)).append("A");
  return moved;
}

}  // namespace

ProgressBar::ProgressBar(std::optional<int64_t> total, ProgressOptions options)
    : options_(std::move(options)),
      rank_(require_rank("ProgressBar", options_.rank, "show a bar", "ProgressBar(total, group)")) {
  state_.total = total;
  is_shown_ = rank_ == 0;
  is_terminal_ = is_shown_ && can_move_cursor(options_.stream);
  start();
}

ProgressBar::ProgressBar(ProgressBar& outer, std::optional<int64_t> total, ProgressOptions options)
    : options_(std::move(options)), outer_(&outer), depth_(outer.depth_ + 1), rank_(outer.rank_) {
  state_.total = total;
  options_.stream = outer.options_.stream;
  options_.redraw_interval = outer.options_.redraw_interval;
  options_.line_interval = outer.options_.line_interval;
  is_shown_ = outer.is_shown_;
  is_terminal_ = outer.is_terminal_;
  start();
}

ProgressBar::~ProgressBar() {
  close();
}

void ProgressBar::start() {
  state_.description = options_.description;
  state_.unit = options_.unit;
  state_.done = options_.initial;
  done_at_last_rate_ = options_.initial;
  start_ = Clock::now();
  last_draw_ = start_;
  last_rate_ = start_;
  if (is_shown_ && is_terminal_) draw(start_);
}

void ProgressBar::advance(int64_t steps) {
  state_.done += steps;
  if (!is_shown_) return;
  const auto now = Clock::now();
  if (now - last_draw_ >= (is_terminal_ ? options_.redraw_interval : options_.line_interval)) draw(now);
}

std::string PostfixValue::text() const {
  if (const auto* text = std::get_if<std::string>(&value_)) return *text;
  if (const auto* read = std::get_if<std::function<double()>>(&value_)) return format_short((*read)());
  return format_short(std::get<double>(value_));
}

void ProgressBar::set_postfix(std::initializer_list<std::pair<std::string_view, PostfixValue>> values) {
  if (is_shown_) postfix_.assign(values.begin(), values.end());
}

// Called only when the bar is drawn, so that tensors are not read more often.
void ProgressBar::read_postfix() {
  if (postfix_.empty()) return;
  state_.postfix.clear();
  for (const auto& [name, value] : postfix_) {
    if (!state_.postfix.empty()) state_.postfix += ", ";
    state_.postfix += name + "=" + value.text();
  }
  postfix_.clear();
}

void ProgressBar::set_description(std::string description) {
  state_.description = std::move(description);
}

void ProgressBar::print(std::string_view line) {
  if (rank_ != 0) return;
  const bool over_a_bar = is_shown_ && is_terminal_;
  // A text of several lines, or a text that the terminal wraps, also overwrites the lines of inner bars.
  std::string text = over_a_bar ? kClearBars : "";
  text.append(line).append("\n");
  // The text replaces the line of the outermost bar, so every bar moves down by one line. Everything is written with
  // one call, so that no bar is visible twice.
  for (ProgressBar* bar = this; over_a_bar && bar != nullptr; bar = bar->outer_) text += bar->drawn(Clock::now());
  write(options_.stream, text);
}

void ProgressBar::close() {
  if (!is_shown_) return;
  is_closing_ = true;
  read_postfix();
  if (!is_terminal_) {
    // If a short inner loop was never drawn, its end is not drawn either.
    const bool is_worth_it = outer_ == nullptr || last_line_;
    if (is_worth_it && last_line_ != line_content()) draw(Clock::now());
  } else if (outer_ == nullptr) {
    draw(Clock::now());
    write(options_.stream, "\n");
  } else {
    write(options_.stream, below(depth_, kClearLine));
  }
  is_shown_ = false;
}

void ProgressBar::draw(Clock::time_point now) {
  write(options_.stream, drawn(now));
}

std::string ProgressBar::drawn(Clock::time_point now) {
  read_postfix();
  update_rate(now);
  state_.elapsed = now - start_;
  last_draw_ = now;
  if (is_terminal_) {
    return below(depth_, std::string("\r").append(format_progress(state_, width())).append("\x1b[K"));
  }
  last_line_ = line_content();
  return format_progress(state_, 0).append("\n");
}

/// Returns what a line shows apart from the times.
std::string ProgressBar::line_content() const {
  return std::to_string(state_.done) + "\n" + state_.description + "\n" + state_.postfix;
}

void ProgressBar::update_rate(Clock::time_point now) {
  const std::chrono::duration<double> in_all = now - start_;
  if ((is_closing_ || is_complete()) && in_all.count() > 0) {  // the last line shows the mean over the whole loop
    state_.rate = static_cast<double>(state_.done - options_.initial) / in_all.count();
    return;
  }
  const std::chrono::duration<double> passed = now - last_rate_;
  const auto steps = static_cast<double>(state_.done - done_at_last_rate_);
  if (steps <= 0 || (state_.rate && passed < kRateInterval) || passed.count() <= 0) return;
  const double newest = steps / passed.count();
  state_.rate = state_.rate ? kSmoothing * newest + (1 - kSmoothing) * *state_.rate : newest;
  last_rate_ = now;
  done_at_last_rate_ = state_.done;
}

/// Returns one column less than the width of the terminal, because some terminals wrap a full line.
int64_t ProgressBar::width() const {
  winsize size{};
  const int file = ::fileno(options_.stream);
  const bool is_known = ::ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return std::max<int64_t>(1, (is_known ? size.ws_col : kDefaultColumns) - 1);
}

}  // namespace ddp
