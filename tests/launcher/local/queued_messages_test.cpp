#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "launcher/local/output/rank_streams.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/console.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// ddprun's messages into a small pipe in the place of standard error.
class QueuedMessagesTest {
 protected:
  QueuedMessagesTest() : pipe_(make_pipe()) {
    ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
    ::fcntl(pipe_.writer.get(), F_SETPIPE_SZ, 4096);
    ::fcntl(pipe_.reader.get(), F_SETFL, O_NONBLOCK);
    const Redirected error(STDERR_FILENO, pipe_.writer.get());
    messages_.emplace(loop_);
  }
  std::string take(std::size_t most = 1 << 22) const {
    std::string text(most, '\0');
    const ssize_t count = ::read(pipe_.reader.get(), text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void tick() {
    loop_.call_at(EventLoop::Clock::now() + 5ms, [this] { tick(); });
  }

  EventLoop loop_;
  Pipe pipe_;
  std::optional<QueuedMessages> messages_;
};

TEST_CASE_METHOD(QueuedMessagesTest, "QueuedMessages: lines have ddprun's name, blocks are as they are") {
  messages_->print("one");
  messages_->print("");
  messages_->print_lines("two\nthree\n");
  messages_->print_lines("");
  CHECK(take() == "ddprun: one\nddprun: \ntwo\nthree\n");
  CHECK(messages_->finish([] { return false; }) == 0);
}

TEST_CASE_METHOD(QueuedMessagesTest, "QueuedMessages: a slow reader stops nobody and gets every line in the end") {
  std::string expected;
  for (int i = 0; i < 2'000; ++i) {
    messages_->print("line " + std::to_string(i));
    expected += "ddprun: line " + std::to_string(i) + "\n";
  }
  std::string got = take();
  CHECK(got.size() <= 4096);
  tick();
  CHECK(messages_->finish([&] {
    got += take(1'000);
    return false;
  }) == 0);
  got += take();
  CHECK(got == expected);
  CHECK(messages_->last_progress() > EventLoop::Clock::time_point{});
}

TEST_CASE_METHOD(QueuedMessagesTest, "QueuedMessages: what is given up is counted, once") {
  const std::string block(100'000, 'x');
  messages_->print_lines(block);
  const std::size_t taken = take().size();
  CHECK(messages_->finish([] { return true; }) == block.size() - taken);
  CHECK(messages_->finish([] { return true; }) == 0);
  messages_->print("after");
  CHECK(take() == "\nddprun: after\n");  // behind the half of a line that the reader has
}

TEST_CASE_METHOD(QueuedMessagesTest, "QueuedMessages: what finds no room is dropped whole and counted") {
  messages_->print_lines(std::string(StreamWriter::kFull + 8'192, 'x') + "\n");  // who is not full takes it
  messages_->print("this one is lost");
  messages_->print_lines("and this\n");
  std::string got;
  tick();
  const std::size_t dropped = messages_->finish([&] {
    got += take();
    return false;
  });
  got += take();
  CHECK(dropped == std::string("ddprun: this one is lost\nand this\n").size());
  CHECK(got.size() == StreamWriter::kFull + 8'193);
  CHECK(got.find("lost") == std::string::npos);
}

TEST_CASE_METHOD(QueuedMessagesTest, "QueuedMessages: without a reader nothing is waited for") {
  pipe_.reader.reset();
  for (int i = 0; i < 100; ++i) messages_->print("nobody reads it");
  CHECK(messages_->finish([] { return false; }) == 0);
}

}  // namespace
}  // namespace launcher
