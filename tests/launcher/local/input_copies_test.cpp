#include "launcher/local/output/input_copies.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

class InputCopiesTest {
 protected:
  InputCopiesTest() : source_(make_pipe()) {
    ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
    ::fcntl(source_.writer.get(), F_SETPIPE_SZ, 1 << 20);
  }
  void add_readers(InputCopies& copies, int count) {
    for (int i = 0; i < count; ++i) {
      readers_.push_back(copies.add_reader());
      ::fcntl(readers_.back().get(), F_SETFL, O_NONBLOCK);
      got_.emplace_back();
      ended_.push_back(false);
    }
  }
  // What there is for the reader now.
  void take(std::size_t reader, std::size_t most = 1 << 20) {
    std::string bytes(most, '\0');
    const ssize_t count = ::read(readers_[reader].get(), bytes.data(), bytes.size());
    if (count == 0) ended_[reader] = true;
    if (count > 0) got_[reader].append(bytes, 0, static_cast<std::size_t>(count));
  }
  void type(const std::string& bytes) {
    REQUIRE(::write(source_.writer.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  void round() {
    loop_.call_at(EventLoop::Clock::now(), [] {});
    loop_.run_once();
  }
  void run_until(const std::function<bool()>& condition) {
    const auto limit = EventLoop::Clock::now() + 20s;
    while (!condition() && EventLoop::Clock::now() < limit) round();
    CHECK(condition());
  }

  EventLoop loop_;
  Pipe source_;
  std::vector<UniqueFd> readers_;
  std::vector<std::string> got_;
  std::vector<bool> ended_;
};

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: every reader gets every byte and then the end") {
  InputCopies copies(loop_, source_.reader.get());
  add_readers(copies, 3);
  const std::string text = lines(50'000);
  type(text);
  source_.writer.reset();
  copies.begin();
  run_until([&] {
    for (std::size_t i = 0; i < 3; ++i) take(i, 1'000 * (i + 1));
    return ended_ == std::vector{true, true, true};
  });
  for (const std::string& got : got_) CHECK(got == text);
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: nothing is read before the beginning") {
  InputCopies copies(loop_, source_.reader.get());
  add_readers(copies, 1);
  type("typed");
  round();
  take(0);
  CHECK(got_[0] == "");
  copies.begin();
  run_until([&] {
    take(0);
    return got_[0] == "typed";
  });
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: the slowest reader sets the pace, and nothing piles up for it") {
  InputCopies copies(loop_, source_.reader.get());
  add_readers(copies, 2);
  const std::string text = lines(60'000);
  type(text);
  source_.writer.reset();
  copies.begin();
  std::size_t before = 1;
  while (before != got_[0].size()) {  // until nothing comes for the fast one any more
    before = got_[0].size();
    for (int i = 0; i < 20; ++i) {
      round();
      take(0);
    }
  }
  CHECK(got_[0].size() < 300'000);
  CHECK(got_[0].size() < text.size());
  run_until([&] {
    take(0);
    take(1, 5'000);
    return ended_[0] && ended_[1];
  });
  CHECK(got_[0] == text);
  CHECK(got_[1] == text);
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: a reader that goes away in the middle does not hold the others") {
  InputCopies copies(loop_, source_.reader.get());
  add_readers(copies, 2);
  const std::string text = lines(50'000);
  type(text);
  source_.writer.reset();
  copies.begin();
  for (int i = 0; i < 20; ++i) round();
  readers_[1].reset();
  run_until([&] {
    take(0);
    return ended_[0];
  });
  CHECK(got_[0] == text);
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: what is left is for the readers of the next attempt") {
  InputCopies copies(loop_, source_.reader.get());
  add_readers(copies, 1);
  copies.begin();
  type("first");
  run_until([&] {
    take(0);
    return got_[0] == "first";
  });
  copies.close_readers();
  take(0);
  CHECK(ended_[0]);
  type("second");
  round();
  add_readers(copies, 2);
  copies.begin();
  source_.writer.reset();
  run_until([&] {
    take(1);
    take(2);
    return ended_[1] && ended_[2];
  });
  CHECK(got_[0] == "first");
  CHECK(got_[1] == "second");
  CHECK(got_[2] == "second");
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: a file is read as well") {
  const ddp::test::TemporaryFolder folder;
  const std::string text = lines(50'000);
  ddp::test::write_file(folder / "file", text);
  const UniqueFd file(::open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC));
  InputCopies copies(loop_, file.get());
  add_readers(copies, 2);
  copies.begin();
  run_until([&] {
    take(0);
    take(1);
    return ended_[0] && ended_[1];
  });
  CHECK(got_[0] == text);
  CHECK(got_[1] == text);
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: of what cannot be read there is only the end") {
  const UniqueFd folder(::open("/proc", O_RDONLY | O_CLOEXEC));
  for (const int source : {987'654, folder.get()}) {
    InputCopies copies(loop_, source);
    add_readers(copies, 1);
    copies.begin();
    run_until([&] {
      take(readers_.size() - 1);
      return ended_.back();
    });
    CHECK(got_.back() == "");
  }
}

TEST_CASE_METHOD(InputCopiesTest, "InputCopies: the source stays as it was for those who share it") {
  const int before = ::fcntl(source_.reader.get(), F_GETFL);
  {
    InputCopies copies(loop_, source_.reader.get());
    add_readers(copies, 1);
    copies.begin();
    round();
    CHECK(::fcntl(source_.reader.get(), F_GETFL) == before);
  }
  take(0);
  CHECK(ended_[0]);
  type("still ours");
  char bytes[16];
  CHECK(::read(source_.reader.get(), bytes, sizeof bytes) == 10);
}

}  // namespace
}  // namespace launcher
