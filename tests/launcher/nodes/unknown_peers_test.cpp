#include <dirent.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/frames.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/torchrun/torchrun_keys.h"
#include "tests/launcher/launchers_in_one_loop.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

// More than the coordinator has places for.
constexpr std::size_t kFlood = 1500;

class UnknownPeersTest : protected LaunchersInOneLoop {
 protected:
  UnknownPeersTest() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 3 * kFlood) SKIP("too few descriptors");
  }
  static std::size_t descriptors() {
    std::size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
  }
  std::uint16_t control_port() const {
    return static_cast<std::uint16_t>(std::stoi(nodes[0]->store()->look_up(kControlPortKey)));
  }
  UniqueFd connection() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(control_port());
    ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    return fd;
  }
  // What the launcher has told, or sent back since.
  std::string read(const UniqueFd& fd) {
    std::string all;
    run_until([&] {
      std::string part(65536, '\0');
      const ssize_t count = ::recv(fd.get(), part.data(), part.size(), 0);
      if (count > 0) all.append(part, 0, static_cast<std::size_t>(count));
      return !all.empty();
    });
    return all;
  }
  static void send(const UniqueFd& fd, const std::string& bytes) {
    [[maybe_unused]] const auto sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // What each stranger says after it has connected.
  void flood(const std::function<std::string(std::size_t)>& words) {
    for (std::size_t i = 0; i < kFlood; ++i) {
      strangers.push_back(connection());
      if (i % 64 == 63) run_for(1ms);
    }
    run_for(50ms);
    for (std::size_t i = 0; i < kFlood; ++i) send(strangers[i], words(i));
  }
  void require_job() {
    begin_missing();
    run_until_all(has_met);
    for (const auto& node : nodes) node->ranks_started();
    run_for(1000ms);
    for (const auto& node : nodes) {
      CHECK_FALSE(node->first_failure());
      node->leave(true);
    }
    run_until_all(has_left);
  }
  void begin_missing() {
    nodes[1]->begin_round(0);
    nodes[2]->begin_round(0);
  }
  std::vector<UniqueFd> strangers;
};

TEST_CASE_METHOD(UnknownPeersTest, "Coordinator: thousands that say nothing keep nobody out, and few of them stay") {
  nodes[0]->begin_round(0);
  run_for(10ms);
  const std::size_t before = descriptors();
  flood([](std::size_t) { return std::string(); });
  CHECK(descriptors() - before < kFlood + 300);  // 256 and one for each node
  require_job();
}

TEST_CASE_METHOD(UnknownPeersTest,
                 "Coordinator: a late answer on a connection that a node has replaced does not take its session") {
  nodes[0]->begin_round(0);
  std::vector<UniqueFd> connections;
  std::vector<std::string> challenges;
  for (int i = 0; i < 3; ++i) {
    connections.push_back(connection());
    control::FrameReader frames;
    frames.feed(read(connections.back()));
    const auto message = control::parse_message(frames.next()->bytes);
    challenges.push_back(std::get<control::Challenge>(*message).text);
  }
  for (const std::size_t attempt : {0U, 2U, 1U}) {
    send(connections[attempt],
         control::to_frame(control::to_text(control::Answer{.challenge = "abc",
                                                            .repeated = challenges[attempt],
                                                            .session = "session",
                                                            .attempt = static_cast<int>(attempt) + 1})));
    run_for(200ms);
  }
  const auto is_closed = [](const UniqueFd& fd) {
    std::string bytes(65536, '\0');
    ssize_t count = 0;
    while ((count = ::recv(fd.get(), bytes.data(), bytes.size(), 0)) > 0) {
    }
    return count == 0;
  };
  CHECK(is_closed(connections[0]));
  CHECK(is_closed(connections[1]));
  CHECK_FALSE(is_closed(connections[2]));
}

TEST_CASE_METHOD(UnknownPeersTest, "Coordinator: who says one byte after the other is not waited for") {
  nodes[0]->begin_round(0);
  const UniqueFd slow = connection();
  const std::string hello = control::to_frame(control::to_text(control::Hello{.nnodes = 3, .node_rank = 1}));
  bool is_closed = false;
  std::size_t sent = 0;
  const auto begin = EventLoop::Clock::now();
  while (!is_closed) {
    run_for(100ms);
    send(slow, hello.substr(sent++, 1));
    char byte = 0;
    is_closed = ::recv(slow.get(), &byte, 1, 0) == 0;
    while (!is_closed && ::recv(slow.get(), &byte, 1, 0) > 0) {
    }
    REQUIRE(EventLoop::Clock::now() - begin < 50s);  // 5 s
  }
  CHECK(sent < hello.size());
  require_job();
}

TEST_CASE_METHOD(UnknownPeersTest, "Coordinator: random bytes, huge frames and messages out of turn end no job") {
  nodes[0]->begin_round(0);
  std::mt19937 dice(4711);
  const std::vector<std::string> messages_out_of_turn = {
      control::to_text(control::Failed{0, {.node = 1, .exit_status = 7, .text = "not true"}}),
      control::to_text(control::Ended{0}),
      control::to_text(control::Ready{0}),
      control::to_text(control::Leaving{{"not true", 7}, true}),
      control::to_text(control::Acknowledged{0}),
      control::to_text(control::AllEnded{0}),
      control::to_text(control::Verdict{0, {.node = 1, .exit_status = 7, .text = "not true"}}),
      control::to_text(control::Pong{1, 1, 1ms}),
      std::string(60000, '['),
      "{}",
      ""};
  flood([&](std::size_t i) -> std::string {
    if (i % 6 == 2) {  // for the store, of which no stranger's ranks are clients
      control::FrameBuilder piece(static_cast<std::uint32_t>(i % 4));
      std::string_view bytes("\0\1\0\0\0\0\0\0\0", 9);
      piece.fill(bytes);
      return piece.take_frame();
    }
    if (i % 3 == 0) return std::string(4, '\xff') + std::string(1000, 'x');
    if (i % 3 == 1) return control::to_frame(messages_out_of_turn[i % messages_out_of_turn.size()]);
    std::string bytes(dice() % 2000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(dice());
    return bytes;
  });
  require_job();
}

std::string challenge_in(const std::string& bytes) {
  control::FrameReader reader;
  reader.feed(bytes);
  return std::get<control::Challenge>(control::parse_message(reader.next().value().bytes).value()).text;
}

std::string framed(const control::Message& message) {
  return control::to_frame(control::to_text(message));
}

TEST_CASE_METHOD(UnknownPeersTest, "Coordinator: what was overheard is no use to another, with and without a secret") {
  const bool has_secret = GENERATE(false, true);
  if (has_secret && !control::has_secrets()) SKIP("this ddprun was built without libsodium");
  const ddp::test::TemporaryFolder folder;
  std::ofstream(folder.path() / "secret") << "a secret of many bytes";
  std::optional<control::Secret> secret;
  if (has_secret) secret = control::Secret::read((folder.path() / "secret").string());
  for (int node = 0; node < 3; ++node) {
    RendezvousSettings settings = settings_of(node, 1);
    settings.secret = secret;
    nodes[static_cast<std::size_t>(node)] = launcher(std::move(settings));
  }
  nodes[0]->begin_round(0);
  const UniqueFd right = connection();
  control::Answer answer{.challenge = "mine", .repeated = challenge_in(read(right)), .session = "a session"};
  if (secret) {
    answer.proof = secret->proof({.role = control::kNodeRole,
                                  .own_challenge = "mine",
                                  .other_challenge = answer.repeated,
                                  .session = "a session"});
  }
  send(right, framed(answer));
  CHECK_THAT(read(right), ContainsSubstring("\"welcome\""));
  const UniqueFd replayed = connection();
  CHECK(challenge_in(read(replayed)) != answer.repeated);
  send(replayed, framed(answer) + framed(control::Hello{.nnodes = 3, .node_rank = 1}));
  CHECK_THAT(read(replayed), ContainsSubstring(has_secret ? "has another --rdzv_secret_file" : "earlier connection"));
  require_job();
}

TEST_CASE_METHOD(UnknownPeersTest, "Coordinator: a recording of an older launcher takes no place") {
  nodes[0]->begin_round(0);
  const UniqueFd old = connection();
  read(old);
  send(old, framed(control::Hello{.protocol = 4, .version = "0.0.9", .nnodes = 3, .node_rank = 1}));
  CHECK_THAT(read(old),
             ContainsSubstring("this node is of another version of ddprun (0.0.9) and cannot talk to the one"));
  const UniqueFd silent = connection();
  read(silent);
  send(silent, framed(control::Hello{.nnodes = 3, .node_rank = 1}));
  CHECK_THAT(read(silent), ContainsSubstring("did not answer the challenge"));
  require_job();
}

}  // namespace
}  // namespace launcher
