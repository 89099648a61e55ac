// Prints the output of all hosts on ddprun's own standard output and error. A reader that reads nothing stops the
// hosts: each host may have a limited number of bytes under way, and may send more when some were read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/local/processes/terminal_input.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/stream_writer.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::remote {

class InputFeed {
 public:
  // `send` receives the bytes for all of `hosts`, and an empty text at the end of the input.
  InputFeed(EventLoop& loop, const std::vector<std::uint32_t>& hosts, std::function<void(const std::string&)> send);
  ~InputFeed();
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  void taken(std::uint32_t host, std::size_t bytes);
  // Call it when this host no longer reads.
  void closed(std::uint32_t host);
  // Call it when ddprun continues after it was suspended.
  void resume();

 private:
  void watch();
  void read();
  void finish();

  EventLoop& loop_;
  std::function<void(const std::string&)> send_;
  std::map<std::uint32_t, std::size_t> unacknowledged_;  // sent bytes that were not acknowledged, by host
  UniqueFd typed_;                                       // the input of the terminal
  std::optional<TerminalInput> terminal_;
  int source_;
  bool is_file_ = false;  // always ready
  bool is_watched_ = false;
  bool is_over_ = false;
  EventLoop::Timer timer_{loop_};
};

class Console : public Messages {
 public:
  struct Callbacks {
    std::function<void(std::uint32_t host, std::size_t stream, std::size_t bytes)> on_taken;
    // The stream has no reader any more.
    std::function<void(std::size_t stream)> on_closed;
  };

  Console(EventLoop& loop, Callbacks callbacks);

  // `stream`: 0 is standard output, 1 standard error.
  void add(std::uint32_t host, std::size_t stream, std::string bytes);
  void print(std::string_view line) override;
  void print_lines(std::string_view lines) override;

  bool is_empty() const;
  EventLoop::Clock::time_point last_progress() const;
  void drop_all();
  // What was lost; "" when nothing was lost.
  std::string problem() const;

 private:
  struct Chunk {
    std::uint32_t host = 0;
    std::string bytes{};
  };
  struct Stream {
    std::deque<Chunk> waiting{};
    std::map<std::uint32_t, std::size_t> taken{};  // bytes whose acknowledgement was not sent to the hosts yet
    bool is_closed = false;
  };

  StreamWriter& writer(std::size_t stream);
  const StreamWriter& writer(std::size_t stream) const;
  void pump();
  void pump(std::size_t stream);
  void report_taken(std::size_t stream);

  Callbacks callbacks_;
  const bool is_same_file_;  // both streams are one file, pipe or terminal, in which lines must not mix
  StreamWriter output_;
  std::optional<StreamWriter> error_;
  std::array<Stream, 2> streams_;
  std::size_t dropped_ = 0;
};

}  // namespace launcher::remote
