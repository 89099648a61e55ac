#include "launcher/nodes/store/reply_queue.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <random>
#include <string>

#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

class ReplyQueueTest {
 protected:
  ReplyQueueTest() {
    std::array<int, 2> pair{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) == 0);
    ours_.reset(pair[0]);
    theirs_.reset(pair[1]);
    const int bytes = 8'192;
    ::setsockopt(ours_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
  // What the peer reads now.
  std::string take(std::size_t most = 1 << 20) {
    std::string text(most, '\0');
    const ssize_t count = ::recv(theirs_.get(), text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void add(const std::string& bytes) { queue_.add(std::make_shared<const std::string>(bytes)); }
  void pack(const std::string& bytes) { queue_.packed(bytes.size()).append(bytes); }
  bool send() { return queue_.send_to(ours_.get()); }

  UniqueFd ours_;
  UniqueFd theirs_;
  ReplyQueue queue_;
};

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: an empty one has nothing to send") {
  CHECK(queue_.is_empty());
  CHECK(queue_.size() == 0);
  CHECK(queue_.own_bytes() == 0);
  CHECK(send());
  CHECK(take() == "");
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: sends in the order in which it was filled") {
  const std::string large(1'000, 'L');
  pack("a");
  add("b");
  add(large);
  pack("c");
  add("");
  CHECK(queue_.size() == 1'003);
  CHECK(send());
  CHECK(queue_.is_empty());
  CHECK(take() == "ab" + large + "c");
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: a reply without bytes is sent as nothing") {
  add("");
  CHECK(send());
  CHECK(queue_.is_empty());
  CHECK(take() == "");
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: a large value is shared, a small one is copied") {
  const auto large = std::make_shared<const std::string>(100'000, 'x');
  queue_.add(large);
  CHECK(large.use_count() == 2);
  CHECK(queue_.size() == 100'000);
  CHECK(queue_.own_bytes() < 1'000);
  const auto small = std::make_shared<const std::string>("small");
  queue_.add(small);
  CHECK(small.use_count() == 1);
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: a value that was sent is let go") {
  const auto large = std::make_shared<const std::string>(1'000, 'x');
  queue_.add(large);
  CHECK(send());
  CHECK(large.use_count() == 1);
  CHECK(queue_.own_bytes() == 0);
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: whatever the peer takes at a time, it gets every byte once") {
  std::mt19937 random(11);
  std::string expected;
  std::string got;
  for (int i = 0; i < 3'000; ++i) {
    const std::string bytes(random() % (i % 50 == 0 ? 20'000 : 200), static_cast<char>('a' + i % 26));
    expected += bytes;
    if (random() % 2 == 0) {
      add(bytes);
    } else {
      pack(bytes);
    }
    if (random() % 3 == 0) REQUIRE(send());
    got += take(random() % 2'000 + 1);
    REQUIRE(queue_.size() <= expected.size() - got.size());
  }
  while (got.size() < expected.size()) {
    REQUIRE(send());
    got += take();
  }
  CHECK(got == expected);
  CHECK(queue_.is_empty());
  CHECK(queue_.size() == 0);
  CHECK(queue_.own_bytes() == 0);
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: more pieces than one call takes") {
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    add(std::string(128, static_cast<char>('a' + i % 26)));
    expected += std::string(128, static_cast<char>('a' + i % 26));
  }
  std::string got;
  while (!queue_.is_empty()) {
    REQUIRE(send());
    got += take();
  }
  got += take();
  CHECK(got == expected);
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: a peer that is always behind a little costs no more memory with time") {
  std::size_t most = 0;
  std::string got;
  for (int i = 0; i < 20'000; ++i) {
    pack(std::string(64, 'r'));
    REQUIRE(send());
    // From here on the peer takes what comes, and never catches up.
    if (queue_.size() > 4'096) got += take(64);
    most = std::max(most, queue_.own_bytes());
    REQUIRE(queue_.size() < 64 << 10);
  }
  CHECK(most < 512 << 10);
}

TEST_CASE_METHOD(ReplyQueueTest, "ReplyQueue: a peer that is gone is a broken connection, without a signal") {
  theirs_.reset();
  pack("x");
  CHECK_FALSE(send());
}

}  // namespace
}  // namespace launcher::store
