// A pseudo-terminal hides nothing, changes nothing, and is as wide as its lines may be.
#include "launcher/os/terminal/pseudo_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

winsize window_of(int fd) {
  winsize size{};
  CHECK(::ioctl(fd, TIOCGWINSZ, &size) == 0);
  return size;
}

PseudoTerminal open_one(int like = -1, std::size_t prefix_columns = 0) {
  auto pair = open_pseudo_terminal(like, prefix_columns);
  REQUIRE(pair.has_value());
  return std::move(*pair);
}

// Of this size.
PseudoTerminal window(unsigned short rows, unsigned short columns) {
  auto pair = open_one();
  const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 7, .ws_ypixel = 9};
  REQUIRE(::ioctl(pair.terminal.get(), TIOCSWINSZ, &size) == 0);
  return pair;
}

// All that was written so far.
std::string read_now(int fd, std::size_t count) {
  std::string text;
  std::array<char, 4096> part{};
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  while (text.size() < count && ::poll(&ready, 1, 20'000) == 1) {
    const ssize_t got = ::read(fd, part.data(), part.size());
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

TEST_CASE("PseudoTerminal: bytes of every kind come out as they went in, both ways") {
  const auto pair = open_one();
  CHECK(::isatty(pair.terminal.get()) == 1);
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(round == 0 ? i : static_cast<int>(random() % 256));
    for (const auto& [from, to] :
         {std::pair(pair.terminal.get(), pair.master.get()), {pair.master.get(), pair.terminal.get()}}) {
      REQUIRE(::write(from, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
      REQUIRE(read_now(to, bytes.size()) == bytes);
    }
    INFO("nothing was echoed");
    pollfd echo{.fd = pair.master.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&echo, 1, 0) == 0);
  }
}

TEST_CASE("PseudoTerminal: it is as large as another, less what stands in front of each line, and never nothing") {
  struct Case {
    unsigned short columns;
    std::size_t prefix;
    unsigned short left;
  };
  const auto [columns, prefix, left] = GENERATE(values<Case>({{80, 0, 80},
                                                              {80, 5, 75},
                                                              {80, 79, 1},
                                                              {80, 80, 1},
                                                              {80, 1000, 1},
                                                              {1, 0, 1},
                                                              {1, 1, 1},
                                                              {65535, 65534, 1},
                                                              {80, SIZE_MAX, 1},
                                                              {0, 5, 0}}));
  const auto like = window(24, columns);
  const auto pair = open_one(like.terminal.get(), prefix);
  CAPTURE(columns, prefix);
  CHECK(window_of(pair.terminal.get()).ws_col == left);
  CHECK(window_of(pair.master.get()).ws_col == left);
  CHECK(window_of(pair.terminal.get()).ws_row == 24);
  const auto later = window(50, static_cast<unsigned short>(columns == 0 ? 0 : 40));
  copy_window_size(later.master.get(), pair.master.get(), 3);
  CHECK(window_of(pair.terminal.get()).ws_row == 50);
  CHECK(window_of(pair.terminal.get()).ws_col == (columns == 0 ? 0 : 37));
}

TEST_CASE("PseudoTerminal: what is no terminal has no size to take over") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  for (const int like : {-1, reader.get()}) {
    const auto pair = open_one(like, 8);
    CHECK(window_of(pair.terminal.get()).ws_col == 0);
  }
  const auto pair = window(10, 20);
  copy_window_size(reader.get(), pair.master.get(), 3);
  CHECK(window_of(pair.terminal.get()).ws_col == 20);
  copy_window_size(pair.master.get(), reader.get(), 3);  // nothing happens
}

TEST_CASE("PseudoTerminal: programs do not inherit it, nor take it for their controlling terminal") {
  const auto pair = open_one();
  for (const int fd : {pair.master.get(), pair.terminal.get()}) CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(in_child([]() -> std::string {
          if (::setsid() < 0) return "no session";
          const auto own = open_pseudo_terminal(-1, 0);
          if (!own) return "no pseudo-terminal";
          return ::open("/dev/tty", O_RDWR | O_NOCTTY) < 0 && errno == ENXIO ? "" : "it is the controlling terminal";
        }) == "");
}

TEST_CASE("PseudoTerminal: the end of the last writer is an error to the reader, after what was written") {
  auto pair = open_one();
  UniqueFd second(::fcntl(pair.terminal.get(), F_DUPFD_CLOEXEC, 0));
  pair.terminal.reset();
  REQUIRE(::write(second.get(), "last", 4) == 4);
  CHECK(read_now(pair.master.get(), 4) == "last");
  UniqueFd gone(::dup(second.get()));
  gone.reset();
  pollfd open_still{.fd = pair.master.get(), .events = POLLIN, .revents = 0};
  CHECK(::poll(&open_still, 1, 0) == 0);
  REQUIRE(::write(second.get(), "more", 4) == 4);
  second.reset();
  CHECK(read_now(pair.master.get(), 4) == "more");
  char byte = 0;
  CHECK(::read(pair.master.get(), &byte, 1) == -1);
  CHECK(errno == EIO);
}

TEST_CASE("PseudoTerminal: without descriptors there is none, and none is lost") {
  CHECK(in_child([]() -> std::string {
          const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
          rlimit limit{};
          ::getrlimit(RLIMIT_NOFILE, &limit);
          for (const rlim_t free : {0, 1, 0, 1}) {  // one would do for the master alone
            const rlimit small{.rlim_cur = static_cast<rlim_t>(next.get()) + 1 + free, .rlim_max = limit.rlim_max};
            ::setrlimit(RLIMIT_NOFILE, &small);
            if (open_pseudo_terminal(-1, 0)) return "there was one";
          }
          ::setrlimit(RLIMIT_NOFILE, &limit);
          const UniqueFd after(::open("/dev/null", O_RDONLY | O_CLOEXEC));
          return after.get() == next.get() + 1 ? "" : "a descriptor was left open";
        }) == "");
}

}  // namespace
}  // namespace launcher
