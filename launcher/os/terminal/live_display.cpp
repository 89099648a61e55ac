#include "launcher/os/terminal/live_display.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kPaintInterval = 40ms;
// Terminals that do not say how large they are.
constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kUsualRows = 24;
// The one writer to the stream besides us is nobody.
constexpr int kScreen = 0;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Nearly all terminals do, but for these.
bool reflows() {
  if (!variable("TMUX").empty()) return true;
  const std::string_view type = variable("TERM");
  return variable("XTERM_VERSION").empty() && type != "linux" && !type.starts_with("screen") &&
         !type.starts_with("rxvt");
}

std::unique_ptr<LiveDisplay> make_display(EventLoop& loop, int terminal, StreamWriter& writer, pid_t own_group,
                                          LiveDisplay::Rows rows) {
  if (!LiveDisplay::is_possible(terminal)) return nullptr;
  return std::make_unique<LiveDisplay>(loop, terminal, own_group, writer, std::move(rows));
}

}  // namespace

LiveDisplay::LiveDisplay(EventLoop& loop, int terminal, pid_t own_group, StreamWriter& writer, Rows rows)
    : loop_(loop),
      terminal_(terminal),
      own_group_(own_group),
      writer_(writer),
      rows_(std::move(rows)),
      screen_(reflows()) {}

LiveDisplay::~LiveDisplay() {
  cancel_timer();
}

bool LiveDisplay::is_possible(int terminal) {
  return ::isatty(terminal) == 1 && variable("TERM") != "dumb";
}

void LiveDisplay::print(int source, std::string_view lines) {
  if (lines.empty()) return;
  const bool breaks_a_line = screen_.is_in_line() && source != last_source_;
  last_source_ = source;
  paint(breaks_a_line ? std::string("\n").append(lines) : lines);
}

void LiveDisplay::rows_changed() {
  if (timer_ || suspended_) return;
  timer_ = loop_.call_at(std::max(EventLoop::Clock::now(), last_paint_ + kPaintInterval), [this] {
    timer_.reset();
    if (!writer_.is_empty()) {  // a slow terminal: later, with what is to be seen by then
      last_paint_ = EventLoop::Clock::now();
      rows_changed();
      return;
    }
    paint("");
  });
}

void LiveDisplay::paint(std::string_view lines) {
  winsize size{};
  ::ioctl(terminal_, TIOCGWINSZ, &size);
  const std::size_t columns = size.ws_col > 0 ? size.ws_col : kUsualColumns;
  const std::size_t height = size.ws_row > 0 ? size.ws_row : kUsualRows;
  std::string& out = writer_.lines_of(kScreen);
  const bool may_show = !suspended_ && !is_in_background();
  if (!may_show) screen_.forget();
  std::vector<ShownRow> rows;
  if (may_show) rows = fitting_rows(columns, height);
  screen_.paint(lines, std::move(rows), columns, out);
  last_paint_ = EventLoop::Clock::now();
  writer_.flush();
}

// One row is left for what passes above.
std::vector<ShownRow> LiveDisplay::fitting_rows(std::size_t columns, std::size_t height) const {
  std::vector<ShownRow> rows = rows_(columns);
  const std::size_t most = std::max<std::size_t>(1, height - std::min<std::size_t>(height, 1));
  if (rows.size() <= most) return rows;
  const std::string text = "... and " + std::to_string(rows.size() - most + 1) + " more rows";
  rows.resize(most - 1);
  rows.push_back({text.substr(0, columns), std::min(text.size(), columns)});
  return rows;
}

// Then the terminal is the shell's, or that of the program which runs now. A terminal that does not control us says
// nothing.
bool LiveDisplay::is_in_background() const {
  const pid_t foreground = ::tcgetpgrp(terminal_);
  return foreground >= 0 && foreground != own_group_;
}

void LiveDisplay::suspend() {
  if (suspended_) return;
  cancel_timer();
  if (!is_in_background()) {
    paint("");
    screen_.leave(writer_.lines_of(kScreen));
    writer_.flush();
  }
  suspended_ = true;
}

void LiveDisplay::resume() {
  if (!std::exchange(suspended_, false)) return;
  screen_.forget();
  rows_changed();
}

void LiveDisplay::leave() {
  const bool has_changed = timer_.has_value();
  cancel_timer();
  if (has_changed) paint("");
  screen_.leave(writer_.lines_of(kScreen));
  writer_.flush();
}

void LiveDisplay::cancel_timer() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

StandardDisplays::StandardDisplays(EventLoop& loop, StreamWriter& output, StreamWriter* error, pid_t own_group,
                                   const RowsOf& rows_of)
    : output_(make_display(loop, STDOUT_FILENO, output, own_group,
                           [this, rows_of](std::size_t columns) { return rows_of(output_.get(), columns); })) {
  if (error != nullptr) {
    own_error_ = make_display(loop, STDERR_FILENO, *error, own_group,
                              [this, rows_of](std::size_t columns) { return rows_of(own_error_.get(), columns); });
  }
  error_ = error != nullptr ? own_error_.get() : output_.get();
}

void StandardDisplays::for_each(const std::function<void(LiveDisplay&)>& action) const {
  if (output_) action(*output_);
  if (own_error_) action(*own_error_);
}

}  // namespace launcher
