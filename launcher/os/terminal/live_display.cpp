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

// The time between "down" and "up" of a program that draws several bars; they may be in different writes.
constexpr auto kSettleTime = 50ms;

constexpr std::string_view kEraseToEndOfRow = "\x1b[K";
constexpr std::string_view kEraseRow = "\x1b[2K";
constexpr std::string_view kDown = "\x1b[B";
constexpr std::string_view kDefaultColours = "\x1b[m";

void go_up(std::size_t rows, std::string& out) {
  if (rows > 0) out.append("\x1b[").append(std::to_string(rows)).append("A");
}

void paint_row(const ShownRow& row, std::size_t columns, std::string& out) {
  out.append(row.text);
  // In a full row the cursor is on the last character, which the sequence would erase.
  if (row.columns < columns) out.append(kEraseToEndOfRow);
}

constexpr auto kPaintInterval = 40ms;
// The size for terminals that do not report theirs.
constexpr std::size_t kFallbackColumns = 80;
constexpr std::size_t kFallbackRows = 24;
// The source number of the display itself; there is no other writer to the stream.
constexpr int kScreen = 0;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Whether the terminal reflows long rows when it becomes narrower; nearly all do, except these.
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

void LiveStream::feed(std::string_view bytes) {
  lines_.feed(bytes, finished_);
  timer_.cancel();
  if (lines_.is_waiting()) {
    timer_.start_in(kSettleTime, [this] {
      lines_.settle(finished_);
      show();
    });
  }
  show();
}

void LiveStream::settle() {
  if (!lines_.is_waiting()) return;
  timer_.cancel();
  lines_.settle(finished_);
  show();
}

void LiveStream::finish() {
  timer_.cancel();
  lines_.finish(finished_);
  show();
}

void LiveStream::show() {
  if (finished_.empty()) {
    display_.rows_changed();
  } else {
    display_.print(number_, finished_);
    finished_.clear();
  }
}

std::size_t LiveScreen::height(const ShownRow& row, std::size_t columns) const {
  if (!reflows_ || row.columns <= columns) return 1;
  return (row.columns + columns - 1) / columns;
}

void LiveScreen::go_to_first_row(std::size_t columns, std::string& out) const {
  std::size_t rows = 0;
  for (std::size_t i = 0; i + 1 < painted_.size(); ++i) rows += height(painted_[i], columns);
  out.append("\r");
  go_up(rows, out);
}

// Erases row by row. Some terminals copy the screen to their history when "erase to the end of the screen" erases all
// of it.
void LiveScreen::erase_rows(std::size_t columns, std::string& out) const {
  if (painted_.empty()) return;
  go_to_first_row(columns, out);
  std::size_t rows = 0;
  for (const ShownRow& row : painted_) rows += height(row, columns);
  for (std::size_t i = 0; i < rows; ++i) out.append(i > 0 ? kDown : "").append(kEraseRow);
  go_up(rows - 1, out);
}

void LiveScreen::repaint_in_place(const std::vector<ShownRow>& rows, std::size_t columns, std::string& out) const {
  go_to_first_row(columns, out);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) out.append("\r\n");
    // The last row is always painted, since the terminal may have echoed typed characters there, such as ^C.
    if (rows[i] != painted_[i] || i + 1 == rows.size()) paint_row(rows[i], columns, out);
  }
}

void LiveScreen::paint(std::string_view lines, std::vector<ShownRow> rows, std::size_t columns, std::string& out) {
  if (lines.empty() && rows == painted_ && columns == columns_) return;
  if (lines.empty() && !rows.empty() && rows.size() == painted_.size() && columns == columns_) {
    repaint_in_place(rows, columns, out);
  } else {
    erase_rows(columns, out);
    out.append(lines);
    if (!lines.empty()) has_unfinished_line_ = lines.back() != '\n';
    if (!rows.empty()) {
      if (std::exchange(has_unfinished_line_, false)) out.append("\r\n");
      out.append(kDefaultColours);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i > 0) out.append("\r\n");
      paint_row(rows[i], columns, out);
    }
  }
  // The cursor goes to the beginning of the row, so that typed text cannot start another row, which would move all
  // later rows.
  if (!rows.empty()) out.append("\r");
  painted_ = std::move(rows);
  columns_ = columns;
}

void LiveScreen::leave(std::string& out) {
  if (painted_.empty()) return;
  out.append("\r");
  paint_row(painted_.back(), columns_, out);
  out.append("\r\n");
  painted_.clear();
}

LiveDisplay::LiveDisplay(EventLoop& loop, int terminal, pid_t own_group, StreamWriter& writer, Rows rows)
    : loop_(loop),
      terminal_(terminal),
      own_group_(own_group),
      writer_(writer),
      rows_(std::move(rows)),
      screen_(reflows()) {}

bool LiveDisplay::is_possible(int terminal) {
  return ::isatty(terminal) == 1 && variable("TERM") != "dumb";
}

void LiveDisplay::print(int source, std::string_view lines) {
  if (lines.empty()) return;
  const bool breaks_a_line = screen_.has_unfinished_line() && source != last_source_;
  last_source_ = source;
  paint(breaks_a_line ? std::string("\n").append(lines) : lines);
}

void LiveDisplay::rows_changed() {
  if (timer_.is_running() || suspended_) return;
  timer_.start_at(std::max(EventLoop::Clock::now(), last_paint_ + kPaintInterval), [this] {
    if (!writer_.is_empty()) {  // the terminal is slow: paint later, with the state at that time
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
  const std::size_t columns = size.ws_col > 0 ? size.ws_col : kFallbackColumns;
  const std::size_t height = size.ws_row > 0 ? size.ws_row : kFallbackRows;
  std::string& out = writer_.lines_of(kScreen);
  const bool may_show = !suspended_ && !is_in_background();
  if (!may_show) screen_.forget();
  std::vector<ShownRow> rows;
  if (may_show) rows = fitting_rows(columns, height);
  screen_.paint(lines, std::move(rows), columns, out);
  last_paint_ = EventLoop::Clock::now();
  writer_.flush();
}

// Leaves one row for the lines that pass above.
std::vector<ShownRow> LiveDisplay::fitting_rows(std::size_t columns, std::size_t height) const {
  std::vector<ShownRow> rows = rows_(columns);
  const std::size_t most = std::max<std::size_t>(1, height - std::min<std::size_t>(height, 1));
  if (rows.size() <= most) return rows;
  const std::string text = "... and " + std::to_string(rows.size() - most + 1) + " more rows";
  rows.resize(most - 1);
  rows.push_back({text.substr(0, columns), std::min(text.size(), columns)});
  return rows;
}

// In the background the terminal belongs to the shell or to another program. A terminal that is not the controlling one
// gives no answer, and counts as foreground.
bool LiveDisplay::is_in_background() const {
  const pid_t foreground = ::tcgetpgrp(terminal_);
  return foreground >= 0 && foreground != own_group_;
}

void LiveDisplay::suspend() {
  if (suspended_) return;
  timer_.cancel();
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
  const bool has_changed = timer_.is_running();
  timer_.cancel();
  if (has_changed) paint("");
  screen_.leave(writer_.lines_of(kScreen));
  writer_.flush();
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
