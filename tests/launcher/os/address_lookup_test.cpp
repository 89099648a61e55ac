#include <netdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/network/address.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

TEST_CASE("AddressLookup: finds an address") {
  EventLoop loop;
  std::optional<std::size_t> found;
  const AddressLookup lookup(loop, "127.0.0.1", 80, [&](const auto& addresses) { found = addresses.size(); });
  while (!found) loop.run_once();
  CHECK(*found >= 1U);
  INFO("its helper was not reaped");
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

// The addresses of `host`, as text, each with its port.
std::set<std::string> addresses_of(const std::string& host, std::uint16_t port) {
  EventLoop loop;
  std::optional<std::vector<SocketAddress>> found;
  int answers = 0;
  const AddressLookup lookup(loop, host, port, [&](std::vector<SocketAddress> addresses) {
    found = std::move(addresses);
    ++answers;
  });
  while (!found) loop.run_once();
  CHECK(answers == 1);
  std::set<std::string> texts;
  for (const auto& address : *found) {
    char name[NI_MAXHOST] = {}, service[NI_MAXSERV] = {};
    CHECK(::getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.length, name, sizeof name, service,
                        sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) == 0);
    texts.insert(std::string(name) + " " + service);
  }
  return texts;
}

TEST_CASE("AddressLookup: numbers are themselves, with their port, whatever the family") {
  CHECK(addresses_of("127.0.0.1", 1) == std::set<std::string>{"127.0.0.1 1"});
  CHECK(addresses_of("::1", 65535) == std::set<std::string>{"::1 65535"});
  CHECK(addresses_of("192.0.2.7", 0) == std::set<std::string>{"192.0.2.7 0"});
  UNSCOPED_INFO("and names are looked up");
  CHECK(addresses_of("localhost", 29500).contains("127.0.0.1 29500"));
}

TEST_CASE("AddressLookup: resolve() answers for a number at once, without a process, and looks up a name") {
  EventLoop loop;
  std::unique_ptr<AddressLookup> lookup;
  std::optional<std::size_t> found;
  const auto done = [&](const std::vector<SocketAddress>& addresses) { found = addresses.size(); };
  resolve(loop, lookup, "127.0.0.1", 80, done);
  CHECK(found == 1U);
  CHECK(lookup == nullptr);
  found.reset();
  resolve(loop, lookup, "localhost", 80, done);
  CHECK_FALSE(found);
  while (!found) loop.run_once();
  CHECK(*found >= 1U);
}

TEST_CASE("AddressLookup: what is no name has no addresses") {
  for (const auto& bad : {std::string(":::1"), std::string("a b"), std::string(5000, 'x')}) {
    INFO(bad);
    CHECK(addresses_of(bad, 1).empty());
  }
}

TEST_CASE("AddressLookup: a signal that the launcher blocks does not keep its helper") {
  CHECK(in_child([]() -> std::string {
          sigset_t all;
          ::sigfillset(&all);
          ::sigprocmask(SIG_SETMASK, &all, nullptr);
          EventLoop loop;
          bool is_done = false;
          const AddressLookup lookup(loop, "127.0.0.1", 80, [&](const auto&) { is_done = true; });
          const auto helper = descendants_of(::getpid());
          while (!is_done) loop.run_once();
          return helper.size() <= 1 && ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD ? ""
                                                                                                : "its helper is left";
        }) == "");
}

TEST_CASE("AddressLookup: nothing is said to whoever has given up, and no helper or descriptor is left") {
  const auto problem = in_child([]() -> std::string {
    EventLoop loop;
    const auto count_open = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
    const auto before = count_open();
    int answers = 0;
    for (int i = 0; i < 20; ++i) {
      auto lookup = std::make_unique<AddressLookup>(loop, "127.0.0.1", 80, [&](const auto&) { ++answers; });
      lookup.reset();
    }
    bool is_done = false;
    const auto timer = loop.call_at(EventLoop::Clock::now(), [&] { is_done = true; });
    static_cast<void>(timer);
    while (!is_done) loop.run_once();
    if (answers != 0) return "there was an answer";
    if (count_open() != before) return "descriptors are left";
    return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD ? "" : "a helper is left";
  });
  CHECK(problem == "");
}

TEST_CASE("AddressLookup: whoever is told may end it, and look up the next") {
  EventLoop loop;
  std::unique_ptr<AddressLookup> lookup;
  int left = 5;
  const std::string told(100, 't');
  std::function<void(std::vector<SocketAddress>)> next = [&, told](const std::vector<SocketAddress>& addresses) {
    CHECK(addresses.size() == 1);
    lookup = nullptr;
    // What this function holds is still there.
    CHECK(told == std::string(100, 't'));
    if (--left > 0) lookup = std::make_unique<AddressLookup>(loop, "127.0.0.1", 80, next);
  };
  lookup = std::make_unique<AddressLookup>(loop, "127.0.0.1", 80, next);
  while (left > 0) loop.run_once();
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

// A child that gets the number `pid`, where the kernel lets us choose; -1 else.
pid_t fork_as(pid_t pid) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::ofstream last("/proc/sys/kernel/ns_last_pid");
    if (!(last << pid - 1 << std::flush)) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    if (child == pid) return child;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return -1;
}

TEST_CASE("AddressLookup: does not signal whoever got its helper's number") {
  EventLoop loop;
  auto lookup = std::make_unique<AddressLookup>(loop, "127.0.0.1", 80, [](const auto&) {});
  siginfo_t info{};
  REQUIRE(::waitid(P_ALL, 0, &info, WEXITED) == 0);  // as the supervisor reaps whatever ends
  const pid_t heir = fork_as(info.si_pid);
  if (heir < 0) SKIP("the number cannot be given to another process here");
  lookup.reset();
  INFO("it was ended or reaped");
  CHECK(::waitpid(heir, nullptr, WNOHANG) == 0);
  ::kill(heir, SIGKILL);
  ::waitpid(heir, nullptr, 0);
}

}  // namespace
}  // namespace launcher
