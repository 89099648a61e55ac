#include "launcher/local/processes/start_watch.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = EventLoop::Clock;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}
std::uint16_t own_port(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) throw std::runtime_error("getsockname");
  return ntohs(address.sin_port);
}

// A store that accepts connections and does nothing, and the processes of ranks that may connect.
class Watched {
 public:
  Watched() : store_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sockaddr_in address = loopback(0);
    if (::bind(store_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(store_.get(), 64) != 0) {
      throw std::runtime_error("cannot listen");
    }
    port_ = own_port(store_.get());
  }
  ~Watched() {
    watch_.reset();
    for (const ProcessIdentity& process : descendants_of(::getpid())) signal_process(process, SIGKILL);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  int connect() const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(port_);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect");
    return socket;
  }
  // A rank that does this and then stays. Returns when it is done.
  void start(int rank, const std::function<void()>& body, bool is_running = true) {
    const Pipe done = make_pipe();
    const pid_t pid = ::fork();
    if (pid == 0) {
      body();
      [[maybe_unused]] const ssize_t written = ::write(done.writer.get(), "", 1);
      while (true) ::pause();
    }
    char byte = 0;
    if (::read(done.reader.get(), &byte, 1) != 1) throw std::runtime_error("the rank failed");
    if (is_running) ranks_[pid] = rank;
  }
  // As the store does it: the other end's port is told when a connection is accepted.
  bool accept() {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    accepted_.emplace_back(::accept(store_.get(), reinterpret_cast<sockaddr*>(&address), &size));
    return watch_->connected(ntohs(address.sin_port));
  }
  void watch(std::chrono::milliseconds timeout) {
    watch_.emplace(
        loop_, std::vector<std::uint16_t>{port_}, timeout, [this] { return ranks_; },
        [this](const std::vector<int>& missing) {
          late_ += "late:";
          for (const int rank : missing) late_ += " " + std::to_string(rank);
        },
        [this] { ++looks_; });
  }
  std::string run_for(Clock::duration time) {
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
      loop_.call_at(Clock::now() + 1ms, [] {});
      loop_.run_once();
    }
    return late_;
  }
  void run_until_look() {
    const int before = looks_;
    while (looks_ == before) {
      loop_.call_at(Clock::now() + 1ms, [] {});
      loop_.run_once();
    }
  }

  EventLoop loop_;
  UniqueFd store_;
  std::uint16_t port_ = 0;
  std::vector<UniqueFd> accepted_;
  std::map<pid_t, int> ranks_;
  std::optional<StartWatch> watch_;
  std::string late_;
  int looks_ = 0;
};

TEST_CASE("StartWatch: ranks that never connect are named once, when the time is over") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(3, [] {});
          watched.start(5, [&] { watched.connect(); });
          watched.start(7, [] {});
          watched.watch(400ms);
          watched.accept();
          if (!watched.run_for(200ms).empty()) return std::string("too early");
          return watched.run_for(800ms);
        }) == "late: 3 7");
}

TEST_CASE("StartWatch: nobody is late when all have connected, and it does not look any more") {
  CHECK(in_child([] {
          Watched watched;
          for (const int rank : {0, 1}) watched.start(rank, [&] { watched.connect(); });
          watched.watch(500ms);
          std::string text = watched.accept() ? "looks " : "does not look ";
          watched.accept();
          watched.run_for(300ms);
          const int looks = watched.looks_;
          watched.run_for(500ms);
          text += watched.looks_ == looks ? "no more " : "on and on ";
          watched.connect();
          return text + (watched.accept() ? "looks again " : "is done ") + watched.late_;
        }) == "looks no more is done ");
}

TEST_CASE("StartWatch: a child of the rank may have the connection, or a daemon with the rank's variables") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(0, [&] {
            if (::fork() == 0) {
              watched.connect();
              while (true) ::pause();
            }
          });
          watched.start(1, [&] {
            if (::fork() != 0) return;
            if (::fork() != 0) ::_exit(0);
            ::setsid();
            const std::string port = std::to_string(watched.port_);
            ::setenv("RANK", "1", 1);
            ::execlp("bash", "bash", "-c", ("exec 5<>/dev/tcp/127.0.0.1/" + port + "; sleep 1000").c_str(), nullptr);
          });
          watched.watch(1'500ms);
          watched.accept();
          watched.accept();
          return "/" + watched.run_for(2'500ms);
        }) == "/");
}

TEST_CASE("StartWatch: a connection that was there when it was accepted counts, though it is closed later") {
  CHECK(in_child([] {
          Watched watched;
          const Pipe go = make_pipe();
          watched.start(0, [&] {
            const int socket = watched.connect();
            if (::fork() != 0) return;
            char byte = 0;
            [[maybe_unused]] const ssize_t count = ::read(go.reader.get(), &byte, 1);
            ::kill(::getppid(), SIGCONT);
            ::close(socket);
            ::_exit(0);
          });
          watched.watch(600ms);
          watched.accept();
          watched.run_until_look();
          [[maybe_unused]] const ssize_t written = ::write(go.writer.get(), "", 1);
          return "/" + watched.run_for(1s);
        }) == "/");
}

TEST_CASE("StartWatch: a connection that closed before anybody could look may have been the missing rank's") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(0, [&] { ::close(watched.connect()); });
          watched.start(1, [] {});
          watched.watch(300ms);
          watched.accept();
          watched.accepted_.clear();
          return watched.run_for(900ms);
        }) == "late: 0 1");  // one connection cannot have been two ranks'
  CHECK(in_child([] {
          Watched watched;
          watched.start(0, [&] { ::close(watched.connect()); });
          watched.start(1, [&] { watched.connect(); });
          watched.watch(300ms);
          watched.accept();
          watched.accepted_.clear();
          watched.accept();
          return "/" + watched.run_for(900ms);
        }) == "/");
}

TEST_CASE("StartWatch: ranks that have ended need no store, and without ranks nobody is late") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(
              0, [] {}, false);
          watched.watch(100ms);
          return "/" + watched.run_for(500ms);
        }) == "/");
}

TEST_CASE("StartWatch: somebody else's connections are nobody's") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(4, [] {});
          const UniqueFd own(watched.connect());  // of this process, which is not a rank
          watched.watch(300ms);
          watched.accept();
          return watched.run_for(900ms);
        }) == "late: 4");
}

TEST_CASE("StartWatch: no time at all is over at the first look") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(0, [] {});
          watched.watch(0ms);
          return watched.run_for(200ms);
        }) == "late: 0");
}

TEST_CASE("StartWatch: one that is gone is not called any more") {
  CHECK(in_child([] {
          Watched watched;
          watched.start(0, [] {});
          watched.watch(100ms);
          watched.watch_.reset();
          return "/" + watched.run_for(400ms);
        }) == "/");
}

}  // namespace
}  // namespace launcher
