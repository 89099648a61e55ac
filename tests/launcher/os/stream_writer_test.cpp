#include "launcher/os/system/stream_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

constexpr int kPipeBytes = 4096;

// A small pipe to write to. Reading from it never blocks.
class Reader {
 public:
  Reader() : pipe_(make_pipe()) {
    ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
    ::fcntl(pipe_.writer.get(), F_SETPIPE_SZ, kPipeBytes);
    ::fcntl(pipe_.reader.get(), F_SETFL, O_NONBLOCK);
  }
  int writer() const { return pipe_.writer.get(); }
  std::string take(std::size_t most = 1 << 20) const {
    std::string text(most, '\0');
    const ssize_t count = ::read(pipe_.reader.get(), text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void go_away() { pipe_.reader.reset(); }

 private:
  Pipe pipe_;
};

void write(StreamWriter& writer, int source, const std::string& text) {
  writer.lines_of(source).append(text);
  writer.flush();
}

TEST_CASE("StreamWriter: what fits is there at once and in order") {
  EventLoop loop;
  const Reader reader;
  StreamWriter writer(loop, reader.writer(), [] {});
  write(writer, 1, "one\n");
  write(writer, 2, "two\n");
  CHECK(writer.is_empty());
  CHECK(reader.take() == "one\ntwo\n");
  CHECK(writer.last_progress() > EventLoop::Clock::time_point{});
}

TEST_CASE("StreamWriter: a source that takes over in the middle of a line begins a new one") {
  EventLoop loop;
  const Reader reader;
  StreamWriter writer(loop, reader.writer(), [] {});
  write(writer, 1, "half");
  write(writer, 1, " and half");
  write(writer, 2, "other");
  write(writer, 2, "\n");
  write(writer, 1, "whole\n");
  write(writer, 2, "");
  write(writer, 3, "end");
  CHECK(reader.take() == "half and half\nother\nwhole\nend");
}

TEST_CASE("StreamWriter: a slow reader gets every byte once, whatever it takes at a time") {
  EventLoop loop;
  const Reader reader;
  StreamWriter writer(loop, reader.writer(), [] {});
  std::mt19937 random(7);
  std::string expected;
  std::string got;
  for (int i = 0; i < 2'000; ++i) {
    const std::string line = std::string(random() % 700, static_cast<char>('a' + i % 26)) + "\n";
    expected += line;
    write(writer, 1, line);
    if (i % 2 == 0) got += reader.take(random() % 1'500 + 1);
  }
  while (!writer.is_empty()) {
    got += reader.take(3'000);
    loop.call_at(EventLoop::Clock::now(), [] {});  // what is left of a page keeps the pipe full
    loop.run_once();
  }
  got += reader.take();
  CHECK(got == expected);
}

TEST_CASE("StreamWriter: says when it is full, and when there is room again") {
  EventLoop loop;
  const Reader reader;
  int calls = 0;
  StreamWriter writer(loop, reader.writer(), [&] { ++calls; });
  write(writer, 1, std::string(StreamWriter::kFull + kPipeBytes, 'x'));
  CHECK(writer.is_full());
  CHECK(calls == 0);
  std::size_t taken = 0;
  while (calls == 0) {
    taken += reader.take(kPipeBytes).size();
    loop.run_once();
  }
  CHECK_FALSE(writer.is_full());
  CHECK_FALSE(writer.is_empty());
  CHECK(taken < StreamWriter::kFull);
}

TEST_CASE("StreamWriter: a reader that goes away is an error that is told, and then nothing waits") {
  EventLoop loop;
  Reader reader;
  int calls = 0;
  StreamWriter writer(loop, reader.writer(), [&] { ++calls; });
  write(writer, 1, std::string(3 * kPipeBytes, 'x'));
  CHECK(writer.error() == 0);
  reader.go_away();
  while (calls == 0) loop.run_once();
  CHECK(writer.error() == EPIPE);
  CHECK(writer.is_empty());
  const int told = calls;
  write(writer, 1, std::string(3 * kPipeBytes, 'y'));
  CHECK(writer.is_empty());
  CHECK(calls == told);
}

TEST_CASE("StreamWriter: a descriptor that is closed is an error from the beginning") {
  EventLoop loop;
  StreamWriter writer(loop, 987'654, [] {});
  CHECK(writer.error() == EBADF);
  write(writer, 1, "text\n");
  CHECK(writer.is_empty());
}

TEST_CASE("StreamWriter: a full disk is an error") {
  EventLoop loop;
  int calls = 0;
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  StreamWriter writer(loop, full.get(), [&] { ++calls; });
  write(writer, 1, "text\n");
  CHECK(writer.error() == ENOSPC);
  CHECK(calls == 1);
}

TEST_CASE("StreamWriter: a file takes everything at once") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "file";
  EventLoop loop;
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  StreamWriter writer(loop, file.get(), [] {});
  const std::string text(2 * StreamWriter::kFull, 'x');
  write(writer, 1, text);
  CHECK(writer.is_empty());
  CHECK(ddp::test::read_file(path) == text);
}

TEST_CASE("StreamWriter: what is dropped is counted, and what comes next begins a line of its own") {
  EventLoop loop;
  const Reader reader;
  StreamWriter writer(loop, reader.writer(), [] {});
  const std::string line = std::string(3 * kPipeBytes, 'x') + "\n";
  const int source_after = GENERATE(1, 2);
  CAPTURE(source_after);
  write(writer, 1, line);
  const std::string first_part = reader.take();
  CHECK(first_part.size() == kPipeBytes);
  CHECK(writer.drop_all() == line.size() - kPipeBytes);
  CHECK(writer.is_empty());
  write(writer, source_after, "next\n");
  CHECK(reader.take() == "\nnext\n");
}

TEST_CASE("StreamWriter: after whole lines only, a drop adds no empty line") {
  EventLoop loop;
  const Reader reader;
  StreamWriter writer(loop, reader.writer(), [] {});
  const std::string line = std::string(kPipeBytes - 1, 'x') + "\n";
  write(writer, 1, line + "not taken");
  CHECK(reader.take() == line);
  CHECK(writer.drop_all() == 9);
  write(writer, 2, "next\n");
  CHECK(reader.take() == "next\n");
}

TEST_CASE("StreamWriter: a socket is written without blocking either") {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  EventLoop loop;
  StreamWriter writer(loop, ours.get(), [] {});
  const std::string text(4 * StreamWriter::kFull, 's');
  write(writer, 1, text);
  CHECK_FALSE(writer.is_empty());
  std::string got;
  std::vector<char> bytes(1 << 16);
  while (got.size() < text.size()) {
    const ssize_t count = ::recv(theirs.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) got.append(bytes.data(), static_cast<std::size_t>(count));
    loop.call_at(EventLoop::Clock::now(), [] {});  // there may be no room before more is read
    loop.run_once();
  }
  CHECK(got == text);
}

TEST_CASE("AreSameFile: both ends of a pipe are one file, two pipes and closed descriptors are not") {
  const Pipe one = make_pipe();
  const Pipe two = make_pipe();
  CHECK(are_same_file(one.reader.get(), one.writer.get()));
  CHECK_FALSE(are_same_file(one.reader.get(), two.reader.get()));
  CHECK_FALSE(are_same_file(-1, -1));
}

}  // namespace
}  // namespace launcher
