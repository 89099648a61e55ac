#include "launcher/remote/console.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/utf8.h"

namespace launcher::remote {
namespace {

constexpr std::size_t kMaxUnacknowledgedBytes = std::size_t{256} << 10;
constexpr std::size_t kInputBytes = std::size_t{32} << 10;

// The source number of ddprun's own lines, which come from no host.
constexpr int kOwnSource = -2;

}  // namespace

InputFeed::InputFeed(EventLoop& loop, const std::vector<std::uint32_t>& hosts,
                     std::function<void(const std::string&)> send)
    : loop_(loop), send_(std::move(send)), source_(STDIN_FILENO) {
  for (const std::uint32_t host : hosts) unacknowledged_[host] = 0;
  if (::isatty(STDIN_FILENO) == 1) {
    Pipe pipe = make_pipe();
    typed_ = std::move(pipe.reader);
    source_ = typed_.get();
    terminal_.emplace(loop_, std::move(pipe.writer));
  }
  watch();
}

InputFeed::~InputFeed() {
  finish();
}

void InputFeed::watch() {
  const bool has_room = std::all_of(unacknowledged_.begin(), unacknowledged_.end(),
                                    [](const auto& host) { return host.second < kMaxUnacknowledgedBytes; });
  const bool on = !is_over_ && has_room;
  if (on && is_file_ && !timer_.is_running()) {
    timer_.start_in({}, [this] { read(); });
  }
  if (on == is_watched_ || is_file_) return;
  if (!on) {
    loop_.remove(source_);
    is_watched_ = false;
    return;
  }
  try {
    loop_.add(source_, EPOLLIN, [this](std::uint32_t) { read(); });
    is_watched_ = true;
  } catch (const LaunchError&) {
    is_file_ = true;
    watch();
  }
}

void InputFeed::read() {
  std::array<char, kInputBytes> bytes;
  const ssize_t count = ::read(source_, bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    watch();
    return;
  }
  if (count <= 0) {
    finish();
    send_("");
    return;
  }
  for (auto& [host, under_way] : unacknowledged_) under_way += static_cast<std::size_t>(count);
  send_(std::string(bytes.data(), static_cast<std::size_t>(count)));
  watch();
}

void InputFeed::taken(std::uint32_t host, std::size_t bytes) {
  if (const auto found = unacknowledged_.find(host); found != unacknowledged_.end()) {
    found->second -= std::min(found->second, bytes);
    watch();
  }
}

void InputFeed::closed(std::uint32_t host) {
  if (unacknowledged_.erase(host) == 0) return;
  if (unacknowledged_.empty()) {
    finish();
  } else {
    watch();
  }
}

void InputFeed::resume() {
  if (terminal_) terminal_->resume();
}

void InputFeed::finish() {
  is_over_ = true;
  if (is_watched_) loop_.remove(source_);
  is_watched_ = false;
  timer_.cancel();
  terminal_.reset();
}

Console::Console(EventLoop& loop, Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      is_same_file_(are_same_file(STDOUT_FILENO, STDERR_FILENO)),
      output_(loop, STDOUT_FILENO, [this] { pump(); }) {
  if (!is_same_file_) error_.emplace(loop, STDERR_FILENO, [this] { pump(); });
}

StreamWriter& Console::writer(std::size_t stream) {
  return stream == 1 && error_ ? *error_ : output_;
}

const StreamWriter& Console::writer(std::size_t stream) const {
  return stream == 1 && error_ ? *error_ : output_;
}

void Console::add(std::uint32_t host, std::size_t stream, std::string bytes) {
  streams_.at(stream).waiting.push_back({host, std::move(bytes)});
  pump(stream);
}

void Console::print(std::string_view line) {
  print_lines(std::string("ddprun: ").append(printable(line)).append("\n"));
}

void Console::print_lines(std::string_view lines) {
  StreamWriter& out = writer(1);
  if (out.is_full()) {
    dropped_ += lines.size();
    return;
  }
  out.lines_of(kOwnSource).append(lines);
  out.flush();
}

void Console::pump() {
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) pump(stream);
}

void Console::pump(std::size_t stream) {
  Stream& own = streams_[stream];
  StreamWriter& out = writer(stream);
  while (!own.waiting.empty() && (!out.is_full() || out.error() != 0)) {
    const Chunk chunk = std::move(own.waiting.front());
    own.waiting.pop_front();
    own.taken[chunk.host] += chunk.bytes.size();
    if (out.error() != 0) continue;
    out.lines_of(static_cast<int>(chunk.host)).append(chunk.bytes);
    out.flush();
  }
  if (out.error() != 0 && !std::exchange(own.is_closed, true)) callbacks_.on_closed(stream);
  if (!own.taken.empty()) report_taken(stream);
}

void Console::report_taken(std::size_t stream) {
  for (const auto& [host, bytes] : std::exchange(streams_[stream].taken, {})) callbacks_.on_taken(host, stream, bytes);
}

bool Console::is_empty() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.waiting.empty(); }) &&
         output_.is_empty() && (!error_ || error_->is_empty());
}

EventLoop::Clock::time_point Console::last_progress() const {
  return error_ ? std::max(output_.last_progress(), error_->last_progress()) : output_.last_progress();
}

void Console::drop_all() {
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    for (const Chunk& chunk : std::exchange(streams_[stream].waiting, {})) dropped_ += chunk.bytes.size();
  }
  dropped_ += output_.drop_all();
  if (error_) dropped_ += error_->drop_all();
}

std::string Console::problem() const {
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    const int error = writer(stream).error();
    if (error != 0 && error != EPIPE) return std::string("output was lost: ") + std::strerror(error);
  }
  if (dropped_ == 0) return "";
  return "output was lost: " + std::to_string(dropped_) + " bytes were dropped because no process read them";
}

}  // namespace launcher::remote
