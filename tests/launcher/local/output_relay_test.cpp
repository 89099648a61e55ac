#include "launcher/local/output/output_relay.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/console.h"
#include "tests/launcher/screen_model.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Clock = EventLoop::Clock;
using ddp::test::ElementsAre;
using ddp::test::read_file;

// A relay between pipes of the test: ranks write to one side, and what ddprun writes is read at the other.
class OutputRelayTest {
 protected:
  OutputRelayTest() : output_(make_pipe()), error_(make_pipe()) {
    ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
    for (const Pipe* pipe : {&output_, &error_}) {
      ::fcntl(pipe->writer.get(), F_SETPIPE_SZ, 65'536);
      ::fcntl(pipe->reader.get(), F_SETFL, O_NONBLOCK);
    }
  }

  void open(const std::string& prefix = "[{rank}] ", bool single_rank = false) {
    const Redirected output(STDOUT_FILENO, output_.writer.get());
    const Redirected error(STDERR_FILENO, is_joined_ ? output_.writer.get() : error_.writer.get());
    relay_.emplace(loop_, PrefixTemplate(prefix), single_rank, ::getpgrp());
  }
  OutputRelay::StreamRequest request(int rank, Stream stream = Stream::kOutput) const {
    return {.place = {.rank = rank, .local_rank = rank}, .stream = stream};
  }
  UniqueFd add(OutputRelay::StreamRequest request) {
    UniqueFd writer = relay_->add_stream(std::move(request));
    ::fcntl(writer.get(), F_SETFL, O_NONBLOCK);
    return writer;
  }
  OutputRelay::StreamRequest logged(int rank, const std::string& name, bool is_shown = true) const {
    OutputRelay::StreamRequest logged = request(rank);
    logged.is_shown = is_shown;
    logged.copy = LogFile(folder_ / name, open_log_file(folder_ / name, false));
    return logged;
  }
  static std::size_t write(const UniqueFd& to, const std::string& bytes) {
    const ssize_t count = ::write(to.get(), bytes.data(), bytes.size());
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  void round() {
    loop_.call_at(Clock::now(), [] {});
    loop_.run_once();
  }
  void rounds(int count = 10) {
    for (int i = 0; i < count; ++i) round();
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto limit = Clock::now() + 20s;
    while (!condition() && Clock::now() < limit) round();
    return condition();
  }
  static std::string take(const Pipe& pipe, std::size_t most = 1 << 20) {
    std::string text(most, '\0');
    const ssize_t count = ::read(pipe.reader.get(), text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void finish() {
    loop_.call_at(Clock::now(), [] {});
    relay_->finish([] { return false; });
  }

  EventLoop loop_;
  ddp::test::TemporaryFolder folder_;
  Pipe output_;
  Pipe error_;
  bool is_joined_ = false;
  std::optional<OutputRelay> relay_;
};

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: lines of several ranks pass whole, each behind its prefix") {
  open();
  const UniqueFd first = add(request(0));
  const UniqueFd second = add(request(1));
  relay_->start_reading();
  write(first, "one\nha");
  write(second, "eins\n");
  rounds();
  write(first, "lf\n");
  rounds();
  CHECK(take(output_) == "[0] one\n[1] eins\n[0] half\n");
  CHECK(take(error_) == "");
  CHECK(relay_->problem() == "");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: nothing is read before all ranks have been added") {
  open();
  const UniqueFd writer = add(request(0));
  write(writer, "early\n");
  rounds();
  CHECK(take(output_) == "");
  relay_->start_reading();
  rounds();
  CHECK(take(output_) == "[0] early\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: output and error keep apart, and ddprun's own lines go to the latter") {
  open("{stream}:");
  const UniqueFd output = add(request(0));
  const UniqueFd error = add(request(0, Stream::kError));
  relay_->start_reading();
  write(output, "out\n");
  write(error, "err\n");
  rounds();
  relay_->print("own line");
  relay_->print_lines("");
  relay_->print_lines("two\nlines\n");
  CHECK(take(output_) == "stdout:out\n");
  CHECK(take(error_) == "stderr:err\nddprun: own line\ntwo\nlines\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: where both go to the same place, lines stay whole") {
  is_joined_ = true;
  open("", true);
  const UniqueFd output = add(request(0));
  const UniqueFd error = add(request(0, Stream::kError));
  relay_->start_reading();
  write(output, "a prompt: ");
  rounds();
  relay_->print("own line");
  write(error, "err\n");
  rounds();
  CHECK(take(output_) == "a prompt: \nddprun: own line\nerr\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: the bytes of a single rank without a prefix pass as they come") {
  open("", true);
  const UniqueFd writer = add(request(0));
  relay_->start_reading();
  const std::string bytes("prompt> \0\x1b[2J\r50%\xff", 17);
  write(writer, bytes);
  rounds();
  CHECK(take(output_) == bytes);
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: bytes of every kind and lines of every length come through") {
  open("");
  const UniqueFd writer = add(logged(0, "copy"));
  relay_->start_reading();
  std::string bytes("\xff\xfe\0\x1b]0;\n\n\r\n\xe4\xb8", 13);
  bytes += "\n" + std::string(100'000, 'x') + "\nlast";
  std::string got;
  std::size_t written = 0;
  REQUIRE(run_until([&] {
    written += write(writer, bytes.substr(written, 5'000));
    got += take(output_);
    return written == bytes.size();
  }));
  relay_->finish([&] {
    got += take(output_);
    return false;
  });
  got += take(output_);
  const std::string mark(LinePrefixer::kContinues);
  const std::size_t at = got.find(mark);
  REQUIRE(at != std::string::npos);
  CHECK(got.erase(at, mark.size()) == bytes);
  CHECK(read_file(folder_ / "copy") == bytes);
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: the last line needs no newline, and gets none") {
  open();
  UniqueFd writer = add(request(3));
  relay_->start_reading();
  write(writer, "no newline");
  writer.reset();
  std::string got;
  run_until([&] { return (got += take(output_)).size() >= 14; });
  CHECK(got == "[3] no newline");
  relay_->print("own");
  CHECK(take(error_) == "ddprun: own\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: a stream that is not shown goes to its file alone") {
  open();
  const UniqueFd hidden = add(logged(0, "hidden", false));
  const UniqueFd shown = add(logged(1, "shown"));
  relay_->start_reading();
  write(hidden, "one\n");
  write(shown, "two\n");
  rounds();
  CHECK(take(output_) == "[1] two\n");
  CHECK(read_file(folder_ / "hidden") == "one\n");
  CHECK(read_file(folder_ / "shown") == "two\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: a slow reader slows the ranks down, and loses nothing") {
  open("");
  const UniqueFd writer = add(logged(0, "copy"));
  relay_->start_reading();
  std::string bytes;
  std::size_t before = 1;
  for (int i = 0; before != bytes.size(); ++i) {  // until the rank has to wait
    before = bytes.size();
    for (int j = 0; j < 5; ++j) {
      std::string lines;
      for (int k = 0; k < 2'000; ++k) lines += "line " + std::to_string(bytes.size() + lines.size()) + "\n";
      bytes += lines.substr(0, write(writer, lines));
      round();
    }
  }
  CHECK(bytes.size() < (8U << 20));
  std::string got;
  relay_->finish([&] {
    got += take(output_);
    return false;
  });
  got += take(output_);
  CHECK(got == bytes);
  CHECK(read_file(folder_ / "copy") == bytes);
  CHECK(relay_->problem() == "");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: what is given up is counted, and is in the log file nevertheless") {
  open("");
  UniqueFd writer = add(logged(0, "copy"));
  const UniqueFd hidden = add(logged(1, "hidden", false));
  relay_->start_reading();
  std::string bytes;
  std::size_t before = 1;
  while (before != bytes.size()) {  // until the rank has to wait
    before = bytes.size();
    for (int j = 0; j < 5; ++j) {
      bytes += std::string(write(writer, std::string(60'000, 'x') + "\n"), 'x');
      round();
    }
  }
  write(hidden, "last words\n");
  relay_->finish([] { return true; });
  const std::size_t shown = take(output_).size();
  CHECK(relay_->problem() == "output was lost: " + std::to_string(bytes.size() - shown) +
                                 " bytes were dropped because no process read them in time");
  CHECK(read_file(folder_ / "copy").size() == bytes.size());
  CHECK(read_file(folder_ / "hidden") == "last words\n");
}

TEST_CASE_METHOD(OutputRelayTest,
                 "OutputRelay: when the reader goes away the rank learns it, as from a pipe of its own") {
  open();
  const UniqueFd writer = add(request(0));
  relay_->start_reading();
  output_.reader.reset();
  write(writer, "one\n");
  rounds();
  write(writer, "two\n");
  CHECK(run_until([&] { return ::write(writer.get(), "x", 1) < 0 && errno == EPIPE; }));
  CHECK(relay_->problem() == "");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: a log file that cannot be written is said at once, and only once") {
  open();
  OutputRelay::StreamRequest full = request(0);
  full.copy = LogFile("/dev/full", UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)));
  const UniqueFd writer = add(std::move(full));
  relay_->start_reading();
  write(writer, "one\n");
  rounds();
  write(writer, "two\n");
  rounds();
  CHECK(relay_->problem() == "output was lost: cannot write to /dev/full: No space left on device");
  CHECK(take(error_) == "ddprun: " + relay_->problem() + "\n");
  CHECK(take(output_) == "[0] one\n[0] two\n");
}

TEST_CASE_METHOD(OutputRelayTest,
                 "OutputRelay: a full disk under the filter's file is said too, for the last line as well") {
  open();
  OutputRelay::StreamRequest filtered = request(0);
  filtered.filter = std::make_shared<LineFilter>(
      std::vector<std::string>{"Error"}, LogFile("/dev/full", UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC))));
  UniqueFd writer = add(std::move(filtered));
  relay_->start_reading();
  write(writer, "all well\nError without newline");
  rounds();
  CHECK(relay_->problem() == "");
  writer.reset();
  rounds();
  CHECK(relay_->problem() == "output was lost: cannot write to /dev/full: No space left on device");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: ddprun's own output on a full disk is a problem") {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  {
    const Redirected output(STDOUT_FILENO, full.get());
    const Redirected error(STDERR_FILENO, error_.writer.get());
    relay_.emplace(loop_, PrefixTemplate("[{rank}] "), false, ::getpgrp());
  }
  const UniqueFd writer = add(logged(0, "copy"));
  relay_->start_reading();
  write(writer, "one\n");
  rounds();
  CHECK(relay_->problem() == "output was lost: cannot write to standard output: No space left on device");
  write(writer, "two\n");
  rounds();
  CHECK(read_file(folder_ / "copy") == "one\ntwo\n");  // the rank goes on
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: filters see whole lines of all ranks, shown or not") {
  open();
  const auto filter =
      std::make_shared<LineFilter>(std::vector<std::string>{"loss", "Error"},
                                   LogFile(folder_ / "filtered", open_log_file(folder_ / "filtered", false)));
  OutputRelay::StreamRequest shown = request(0);
  shown.filter = filter;
  OutputRelay::StreamRequest hidden = request(1);
  hidden.filter = filter;
  hidden.is_shown = false;
  const UniqueFd first = add(std::move(shown));
  UniqueFd second = add(std::move(hidden));
  relay_->start_reading();
  write(first, "lo");
  write(second, "no\nan Error\nloss");
  rounds();
  write(first, "ss 1\nother\n");
  rounds();
  second.reset();
  rounds();
  CHECK(take(output_) == "[0] loss 1\n[0] other\n");
  CHECK(read_file(folder_ / "filtered") == "[1] an Error\n[0] loss 1\n[1] loss\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: a rank's last words are known until its stream is forgotten") {
  open();
  OutputRelay::StreamRequest hidden = request(0, Stream::kError);
  hidden.is_shown = false;
  UniqueFd first = add(std::move(hidden));
  const UniqueFd second = add(request(1, Stream::kError));
  const UniqueFd output = add(request(1));
  relay_->start_reading();
  write(first, "first's\n");
  write(second, "second's");
  write(output, "not an error\n");
  first.reset();
  rounds();
  CHECK(relay_->last_error_lines(0) == "first's\n");
  CHECK(relay_->last_error_lines(1) == "second's\n");
  CHECK(relay_->last_error_lines(2) == "");
  relay_->forget_ended_streams();
  CHECK(relay_->last_error_lines(0) == "");
  CHECK(relay_->last_error_lines(1) == "second's\n");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: who keeps a stream open is not waited for at the end") {
  open();
  const UniqueFd writer = add(request(0));
  relay_->start_reading();
  write(writer, "one\nhalf");
  finish();
  CHECK(take(output_) == "[0] one\n[0] half");
  CHECK(::write(writer.get(), "x", 1) == -1);
  CHECK(relay_->problem() == "");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: another attempt's streams follow those of the one before") {
  open();
  for (int attempt = 0; attempt < 3; ++attempt) {
    relay_->forget_ended_streams();
    UniqueFd writer = add(request(0, Stream::kError));
    relay_->start_reading();
    write(writer, "attempt " + std::to_string(attempt));
    writer.reset();
    finish();
    CHECK(relay_->last_error_lines(0) == "attempt " + std::to_string(attempt) + "\n");
  }
  CHECK(take(error_) == "[0] attempt 0\n[0] attempt 1\n[0] attempt 2");
}

TEST_CASE_METHOD(OutputRelayTest, "OutputRelay: many ranks are all read, with few descriptors open before that") {
  open();
  std::vector<UniqueFd> writers;
  for (int rank = 0; rank < 150; ++rank) writers.push_back(add(request(rank)));
  relay_->start_reading();
  std::string expected;
  for (int rank = 0; rank < 150; ++rank) {
    write(writers[static_cast<std::size_t>(rank)], "x\n");
    expected += "[" + std::to_string(rank) + "] x\n";
  }
  std::string got;
  REQUIRE(run_until([&] { return (got += take(output_)).size() == expected.size(); }));
  CHECK(got == expected);
}

// Judged when the terminal is not this process's output any more.
struct Seen {
  std::vector<std::string> rows{};
  std::string size{};
  std::string rest{};
};

TEST_CASE_METHOD(
    OutputRelayTest,
    "OutputRelay: at a terminal ranks have terminals, less the prefix's columns, and rows that stay below") {
  ::setenv("TERM", "xterm", 1);
  const Console console(10, 40);
  Seen seen;
  {
    const Redirected output(STDOUT_FILENO, console.terminal());
    const Redirected error(STDERR_FILENO, console.terminal());
    relay_.emplace(loop_, PrefixTemplate("[{rank}] "), false, ::getpgrp());
    const UniqueFd first = add(request(0));
    const UniqueFd second = add(request(1));
    relay_->start_reading();
    const auto size_of = [](const UniqueFd& terminal) {
      winsize size{};
      ::ioctl(terminal.get(), TIOCGWINSZ, &size);
      return std::to_string(size.ws_row) + "x" + std::to_string(size.ws_col) + " ";
    };
    seen.size = ::isatty(first.get()) == 1 ? size_of(first) : "no terminal";
    ScreenModel screen(10, 40);
    write(first, "\r10%");
    write(second, "line\r\n");
    const auto sees = [&](const std::vector<std::string>& rows) {
      run_until([&] {
        screen.feed(console.take());
        return screen.rows() == rows;
      });
    };
    sees({"[1] line", "[0] 10%"});
    relay_->print("own line");
    console.resize(12, 3);  // narrower than the prefix
    relay_->update_window_sizes();
    seen.size += size_of(first);
    console.resize(10, 40);
    relay_->update_window_sizes();
    seen.size += size_of(second);
    sees({"[1] line", "ddprun: own line", "[0] 10%"});
    finish();
    screen.feed(console.take());
    seen.rows = screen.rows();
    relay_.reset();
  }
  CHECK_THAT(seen.rows, ElementsAre("[1] line", "ddprun: own line", "[0] 10%"));
  CHECK(seen.size == "10x36 12x1 10x36 ");
}

}  // namespace
}  // namespace launcher
