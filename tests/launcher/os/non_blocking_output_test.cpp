#include "launcher/os/system/non_blocking_output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

// Writes until nothing more is taken; how much that was.
std::size_t fill(const NonBlockingOutput& output) {
  const std::string piece(10'000, 'x');
  std::size_t total = 0;
  for (ssize_t count = output.write(piece); count >= 0; count = output.write(piece)) {
    total += static_cast<std::size_t>(count);
  }
  return total;
}

TEST_CASE("NonBlockingOutput: a full pipe is EAGAIN, and stays a blocking one for those who share it") {
  const Pipe pipe = make_pipe();
  const NonBlockingOutput output(pipe.writer.get());
  CHECK_FALSE(output.is_file());
  CHECK(output.error() == 0);
  CHECK(fill(output) > 32'768);
  CHECK(errno == EAGAIN);
  CHECK((::fcntl(pipe.writer.get(), F_GETFL) & O_NONBLOCK) == 0);
  std::array<char, 8'192> bytes{};
  REQUIRE(::read(pipe.reader.get(), bytes.data(), bytes.size()) == 8'192);
  CHECK(fill(output) > 0);
}

TEST_CASE("NonBlockingOutput: a full socket is EAGAIN, and one whose peer is gone an error without a signal") {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  const UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  const NonBlockingOutput output(ours.get());
  CHECK_FALSE(output.is_file());
  CHECK(fill(output) > 0);
  CHECK(errno == EAGAIN);
  theirs.reset();
  CHECK(output.write("x") == -1);
  CHECK(errno == EPIPE);
}

TEST_CASE("NonBlockingOutput: a file is one, and is written where its descriptor is") {
  const ddp::test::TemporaryFolder folder;
  const std::string path = folder / "file";
  ddp::test::write_file(path, "before\n");
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const NonBlockingOutput output(file.get());
  CHECK(output.is_file());
  CHECK(output.write("text") == 4);
  CHECK(ddp::test::read_file(path) == "before\ntext");
}

TEST_CASE("NonBlockingOutput: a closed descriptor is an error of its own") {
  const NonBlockingOutput output(987'654);
  CHECK(output.error() == EBADF);
  CHECK(output.write("x") == -1);
}

// Standard error is something else while the object lives.
class OtherError {
 public:
  explicit OtherError(int fd) : saved_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10)) { ::dup2(fd, STDERR_FILENO); }
  ~OtherError() { ::dup2(saved_.get(), STDERR_FILENO); }
  OtherError(const OtherError&) = delete;
  OtherError& operator=(const OtherError&) = delete;

 private:
  UniqueFd saved_;
};

TEST_CASE("PrintLine: is one whole line behind the program's name") {
  const Pipe pipe = make_pipe();
  {
    const OtherError error(pipe.writer.get());
    print_line("text");
    print_block("a\nb\n");
    print_block("");
  }
  std::string got(100, '\0');
  got.resize(static_cast<std::size_t>(::read(pipe.reader.get(), got.data(), got.size())));
  CHECK(got == "ddprun: text\na\nb\n");
}

TEST_CASE("PrintLine: a reader that takes nothing, or nobody, or a full disk does not hold the process") {
  ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
  const Pipe stuck = make_pipe();
  Pipe unread = make_pipe();
  unread.reader.reset();
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  fill(NonBlockingOutput(stuck.writer.get()));
  for (const int fd : {stuck.writer.get(), unread.writer.get(), full.get()}) {
    const OtherError error(fd);
    print_line("nobody reads this");
  }
  std::string got(100'000, '\0');
  got.resize(static_cast<std::size_t>(::read(stuck.reader.get(), got.data(), got.size())));
  CHECK(got == std::string(got.size(), 'x'));
}

}  // namespace
}  // namespace launcher
