#include "launcher/local/output/output_relay.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/utf8.h"
#include "launcher/os/terminal/pseudo_terminal.h"

namespace launcher {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
// The number of reads, at the end, of output that will not be shown. It is limited because a process that writes
// forever must not block ddprun.
constexpr int kMaxFinalReads = 64;
// The numbers of sources that are not a rank's stream.
constexpr int kOwnMessages = -2;
constexpr int kRawSource = -3;

}  // namespace

OutputRelay::OutputRelay(EventLoop& loop, PrefixTemplate prefix, bool single_rank, pid_t own_group)
    : loop_(loop),
      prefix_(std::move(prefix)),
      single_rank_(single_rank),
      host_(host_name()),
      output_(std::make_unique<StreamWriter>(loop, STDOUT_FILENO, [this] { on_space_available(); })),
      scratch_(std::make_unique_for_overwrite<char[]>(kReadBytes)) {
  if (!are_same_file(STDOUT_FILENO, STDERR_FILENO)) {
    error_output_ = std::make_unique<StreamWriter>(loop, STDERR_FILENO, [this] { on_space_available(); });
  }
  error_ = error_output_ ? error_output_.get() : output_.get();
  // The bytes of a single rank without prefix are passed on unchanged, so no live display is needed.
  if (single_rank_ && prefix_.is_empty()) return;
  displays_.emplace(loop_, *output_, error_output_.get(), own_group,
                    [this](const LiveDisplay* display, std::size_t columns) { return rows_of(display, columns); });
}

OutputRelay::~OutputRelay() {
  for (const auto& source : sources_) watch(*source, false);
}

std::vector<ShownRow> OutputRelay::rows_of(const LiveDisplay* display, std::size_t columns) const {
  std::vector<ShownRow> rows;
  for (const auto& source : sources_) {
    if (!source->live || &source->live->display() != display) continue;
    for (ShownRow& row : source->live->rows(columns)) rows.push_back(std::move(row));
  }
  return rows;
}

void OutputRelay::set_prefix(Source& source) {
  const StreamRequest& request = source.request;
  std::string prefix =
      prefix_.expand(request.place, host_, name_of(request.stream), prefix_.has_time() ? time_text() : "");
  if (source.live) source.live->set_prefix(prefix);
  source.lines.set_prefix(std::move(prefix));
}

UniqueFd OutputRelay::add_stream(StreamRequest request) {
  auto source = std::make_unique<Source>();
  const bool is_output = request.stream == Stream::kOutput;
  const int shown_on = is_output ? STDOUT_FILENO : STDERR_FILENO;
  source->is_raw = single_rank_ && prefix_.is_empty() && request.filter == nullptr;
  source->number = source->is_raw ? kRawSource : next_number_++;
  if (request.is_shown) source->to = is_output ? output_.get() : error_;
  if (LiveDisplay* display = display_of(request.stream); request.is_shown && display != nullptr) {
    source->live = std::make_unique<LiveStream>(loop_, *display, widths_, source->number);
  }
  source->request = std::move(request);
  set_prefix(*source);
  UniqueFd writer = open_ends(*source, shown_on);
  parked_.park(source->fd);
  if (source->request.copy) parked_.park(source->request.copy->descriptor());
  sources_.push_back(std::move(source));
  return writer;
}

UniqueFd OutputRelay::open_ends(Source& source, int shown_on) {
  UniqueFd writer;
  if (source.to != nullptr && ::isatty(shown_on) == 1) {
    source.prefix_columns = source.is_raw ? 0 : row_of(source.lines.prefix(), widths_).written_columns();
    if (auto pair = open_pseudo_terminal(shown_on, source.prefix_columns)) {
      source.fd = std::move(pair->master);
      source.is_terminal = true;
      writer = std::move(pair->terminal);
    }
  }
  if (!writer) {
    Pipe pipe = make_pipe();
    source.fd = std::move(pipe.reader);
    writer = std::move(pipe.writer);
  }
  ::fcntl(source.fd.get(), F_SETFL, ::fcntl(source.fd.get(), F_GETFL) | O_NONBLOCK);
  return writer;
}

void OutputRelay::start_reading() {
  parked_.take_back();
  for (const auto& source : sources_) {
    if (source->fd) watch(*source, true);
  }
}

void OutputRelay::watch(Source& source, bool on) {
  if (on == source.watched) return;
  source.watched = on;
  if (on) {
    loop_.add(source.fd.get(), EPOLLIN, [this, &source](std::uint32_t) { read_in_order(source); });
  } else {
    loop_.remove(source.fd.get());
  }
}

// Returns the other of the rank's two streams if both are shown on one terminal, else null.
OutputRelay::Source* OutputRelay::other_stream_on_terminal(const Source& source) const {
  if (!source.live) return nullptr;
  for (const auto& other : sources_) {
    if (other.get() != &source && other->live && &other->live->display() == &source.live->display() &&
        other->request.place.local_rank == source.request.place.local_rank) {
      return other.get();
    }
  }
  return nullptr;
}

// Reads a program's messages and progress bars (standard error) before the results that follow them (standard output).
// The order in which two streams were written is not known, so without this rule it would be random.
void OutputRelay::read_in_order(Source& source) {
  Source* other = source.request.stream == Stream::kOutput ? other_stream_on_terminal(source) : nullptr;
  if (other != nullptr && other->fd && other->watched) read(*other);
  read(source);
}

bool OutputRelay::read(Source& source) {
  if (source.to != nullptr && source.to->error() == EPIPE) {
    end(source);  // the rank's next write fails with EPIPE, as if it were connected to our reader directly
    return false;
  }
  if (source.to != nullptr && source.to->is_full() && !unshown_) {
    watch(source, false);
    return false;
  }
  const ssize_t count = ::read(source.fd.get(), scratch_.get(), kReadBytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (prefix_.has_time()) set_prefix(source);
  if (count <= 0) {  // read() of a pseudo-terminal returns EIO at the end
    end(source);
    return false;
  }
  pass_on(source, std::string_view(scratch_.get(), static_cast<std::size_t>(count)));
  return true;
}

void OutputRelay::pass_on(Source& source, std::string_view bytes) {
  if (source.request.copy) {
    source.request.copy->write(bytes);
    note_log_problem(*source.request.copy);
  }
  if (source.request.stream == Stream::kError) source.tail.add(bytes);
  LineFilter* filter = source.request.filter.get();
  if (unshown_ && source.to != nullptr) *unshown_ += bytes.size();
  const bool has_own_lines = source.to != nullptr && source.live == nullptr && !unshown_;
  if (source.live && !unshown_) {
    // Without this a finished progress bar would stay below the next line until its program writes again.
    Source* other = bytes.find('\n') == std::string_view::npos ? nullptr : other_stream_on_terminal(source);
    if (other != nullptr) other->live->settle();
    source.live->feed(bytes);
  }
  if (!has_own_lines && filter == nullptr) return;

  std::string& lines = has_own_lines ? source.to->lines_of(source.number) : unshown_lines_;
  const std::size_t before = lines.size();
  if (source.is_raw) {
    lines.append(bytes);
  } else {
    source.lines.feed(bytes, lines);
  }
  if (filter != nullptr) {
    filter->add(std::string_view(lines).substr(before));
    note_log_problem(filter->file());
  }
  if (has_own_lines) {
    source.to->flush();
  } else {
    unshown_lines_.clear();
  }
}

void OutputRelay::end(Source& source) {
  watch(source, false);
  source.fd.reset();
  std::string last;
  source.lines.finish(last);
  if (source.request.filter != nullptr) {
    source.request.filter->add(last);
    note_log_problem(source.request.filter->file());
  }
  source.request.copy.reset();
  if (source.live) source.live->finish();
  if (source.to == nullptr || source.live || last.empty()) return;
  source.to->lines_of(source.number).append(last);
  source.to->flush();
}

void OutputRelay::on_space_available() {
  for (const StreamWriter* writer : {output_.get(), error_}) {
    if (writer->error() == 0 || writer->error() == EPIPE) continue;
    note_problem(std::string("output was lost: cannot write to standard ") +
                 (writer == output_.get() ? "output" : "error") + ": " + error_text(writer->error()));
  }
  for (const auto& source : sources_) {
    if (source->fd && source->to != nullptr && (!source->to->is_full() || source->to->error() != 0)) {
      watch(*source, true);
    }
  }
}

// Prints the problem at once, not at the end of the job, which may run for days.
void OutputRelay::note_problem(const std::string& text) {
  if (!problem_.empty()) return;
  problem_ = text;
  print(text);
}

void OutputRelay::note_log_problem(const LogFile& file) {
  if (file.error() != 0) {
    note_problem("output was lost: cannot write to " + file.path() + ": " + error_text(file.error()));
  }
}

std::string OutputRelay::last_error_lines(int local_rank) const {
  for (const auto& source : sources_) {
    if (source->request.stream == Stream::kError && source->request.place.local_rank == local_rank) {
      return source->tail.lines();
    }
  }
  return "";
}

void OutputRelay::forget_ended_streams() {
  std::erase_if(sources_, [](const std::unique_ptr<Source>& source) { return !source->fd; });
}

void OutputRelay::update_window_sizes() {
  for (const auto& source : sources_) {
    if (!source->fd || !source->is_terminal) continue;
    copy_window_size(source->request.stream == Stream::kOutput ? STDOUT_FILENO : STDERR_FILENO, source->fd.get(),
                     source->prefix_columns);
  }
  if (displays_) displays_->for_each([](LiveDisplay& display) { display.rows_changed(); });
}

void OutputRelay::suspend_display(bool suspended) {
  if (!displays_) return;
  displays_->for_each([suspended](LiveDisplay& display) { suspended ? display.suspend() : display.resume(); });
}

// Returns null when the stream is not shown on a terminal.
LiveDisplay* OutputRelay::display_of(Stream stream) const {
  if (!displays_) return nullptr;
  return stream == Stream::kOutput ? displays_->output() : displays_->error();
}

void OutputRelay::print(std::string_view line) {
  print_text(std::string("ddprun: ").append(printable(line)).append("\n"));
}

void OutputRelay::print_lines(std::string_view lines) {
  if (!lines.empty()) print_text(lines);
}

void OutputRelay::print_text(std::string_view text) {
  if (LiveDisplay* display = display_of(Stream::kError)) {
    display->print(kOwnMessages, text);
    return;
  }
  error_->lines_of(kOwnMessages).append(text);
  error_->flush();
}

void OutputRelay::finish(const std::function<bool()>& give_up) {
  for (const auto& source : sources_) {
    while (source->fd && !give_up()) {
      if (source->to != nullptr && source->to->is_full()) {
        loop_.run_once();
      } else if (!read(*source) && source->fd) {
        // A process that ddprun may not end still has the stream open, but has written nothing more.
        end(*source);
      }
    }
  }
  if (displays_) displays_->for_each([](LiveDisplay& display) { display.leave(); });
  while ((!output_->is_empty() || !error_->is_empty()) && !give_up()) loop_.run_once();
  log_remaining_output();
}

// Copies the rest of the output only to the log files, so a slow reader of ddprun's output does not delay them.
void OutputRelay::log_remaining_output() {
  unshown_ = 0;
  for (const auto& source : sources_) {
    for (int reads = 0; reads < kMaxFinalReads && source->fd && read(*source); ++reads) {
    }
    if (source->fd) end(*source);
  }
  std::size_t dropped = *std::exchange(unshown_, std::nullopt) + output_->drop_all();
  if (error_output_) dropped += error_output_->drop_all();
  if (dropped > 0) {
    note_problem("output was lost: " + std::to_string(dropped) +
                 " bytes were dropped because no process read them in time");
  }
}

EventLoop::Clock::time_point OutputRelay::last_progress() const {
  return std::max(output_->last_progress(), error_->last_progress());
}

}  // namespace launcher
