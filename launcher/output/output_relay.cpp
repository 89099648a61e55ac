#include "launcher/output/output_relay.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "launcher/host_name.h"
#include "launcher/pipe.h"

namespace launcher {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr int kOwnMessages = -2;  // as a source of lines

bool are_same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t whole = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  ::localtime_r(&whole, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

}  // namespace

OutputRelay::OutputRelay(EventLoop& loop, const PrefixTemplate& prefix)
    : loop_(loop),
      prefix_(prefix),
      host_(host_name()),
      output_(std::make_unique<StreamWriter>(loop, STDOUT_FILENO, [this] { on_room(); })),
      scratch_(std::make_unique_for_overwrite<char[]>(kReadBytes)) {
  if (!are_same_file(STDOUT_FILENO, STDERR_FILENO)) {
    error_output_ = std::make_unique<StreamWriter>(loop, STDERR_FILENO, [this] { on_room(); });
  }
  error_ = error_output_ ? error_output_.get() : output_.get();
}

OutputRelay::~OutputRelay() {
  for (const auto& source : sources_) watch(*source, false);
}

OutputRelay::RankStreams OutputRelay::add_rank(const RankPlace& place) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  RankStreams streams{std::move(out.writer), std::move(err.writer)};
  add_source(place, "stdout", *output_, std::move(out.reader));
  add_source(place, "stderr", *error_, std::move(err.reader));
  return streams;
}

OutputRelay::Source& OutputRelay::add_source(const RankPlace& place, const char* stream, StreamWriter& to,
                                             UniqueFd fd) {
  ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  auto source = std::make_unique<Source>();
  source->number = static_cast<int>(sources_.size());
  source->place = place;
  source->stream = stream;
  source->fd = std::move(fd);
  source->lines.set_prefix(prefix_.expand(place, host_, stream, ""));
  source->to = &to;
  parked_.park(source->fd);
  sources_.push_back(std::move(source));
  return *sources_.back();
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
    loop_.add(source.fd.get(), EPOLLIN, [this, &source](std::uint32_t) { read(source); });
  } else {
    loop_.remove(source.fd.get());
  }
}

bool OutputRelay::read(Source& source) {
  if (source.to->error() == EPIPE) {
    end(source);  // the rank's next write fails as if it were connected to our reader directly
    return false;
  }
  if (source.to->is_full()) {
    watch(source, false);
    return false;
  }
  const ssize_t count = ::read(source.fd.get(), scratch_.get(), kReadBytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (prefix_.has_time()) source.lines.set_prefix(prefix_.expand(source.place, host_, source.stream, time_text()));
  if (count <= 0) {
    end(source);
    return false;
  }
  source.lines.feed(std::string_view(scratch_.get(), static_cast<std::size_t>(count)),
                    source.to->lines_of(source.number));
  source.to->flush();
  return true;
}

void OutputRelay::end(Source& source) {
  watch(source, false);
  source.fd.reset();
  source.lines.finish(source.to->lines_of(source.number));
  source.to->flush();
}

void OutputRelay::on_room() {
  if (const std::string text = problem(); !text.empty() && !problem_said_) {
    problem_said_ = true;
    say(text);  // at once: the job may run for days
  }
  for (const auto& source : sources_) {
    if (source->fd && (!source->to->is_full() || source->to->error() != 0)) watch(*source, true);
  }
}

void OutputRelay::say(std::string_view line) {
  error_->lines_of(kOwnMessages).append("ddprun: ").append(line).append("\n");
  error_->flush();
}

void OutputRelay::say_block(std::string_view lines) {
  if (lines.empty()) return;
  error_->lines_of(kOwnMessages).append(lines);
  error_->flush();
}

void OutputRelay::finish(const std::function<bool()>& give_up) {
  for (const auto& source : sources_) {
    while (source->fd && !give_up()) {
      if (source->to->is_full()) {
        loop_.run_once();
      } else if (!read(*source) && source->fd) {
        end(*source);  // somebody whom we do not end keeps it open, but has nothing to say now
      }
    }
  }
  while ((!output_->is_empty() || !error_->is_empty()) && !give_up()) loop_.run_once();
}

std::string OutputRelay::problem() const {
  for (const StreamWriter* writer :
       {static_cast<const StreamWriter*>(output_.get()), static_cast<const StreamWriter*>(error_)}) {
    if (writer->error() == 0 || writer->error() == EPIPE) continue;
    return std::string("output was lost: cannot write to standard ") + (writer == output_.get() ? "output" : "error") +
           ": " + std::strerror(writer->error());
  }
  return "";
}

}  // namespace launcher
