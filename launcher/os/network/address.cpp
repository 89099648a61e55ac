#include "launcher/os/network/address.h"

#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

static_assert(std::is_trivially_copyable_v<SocketAddress>);

constexpr std::size_t kMaxAddresses = 64;
constexpr auto kByPidfd = static_cast<idtype_t>(3);  // P_PIDFD, for which older C libraries have no name

std::vector<SocketAddress> ask_resolver(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  std::vector<SocketAddress> addresses;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return addresses;
  for (const addrinfo* entry = found; entry != nullptr && addresses.size() < kMaxAddresses; entry = entry->ai_next) {
    SocketAddress address;
    if (entry->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

void write_addresses(const std::string& host, std::uint16_t port, int fd) {
  for (const SocketAddress& address : ask_resolver(host, port, 0)) {
    if (::write(fd, &address, sizeof address) != sizeof address) break;
  }
}

}  // namespace

std::vector<SocketAddress> numeric_addresses(const std::string& host, std::uint16_t port) {
  return ask_resolver(host, port, AI_NUMERICHOST | AI_NUMERICSERV);
}

void resolve(EventLoop& loop, std::unique_ptr<AddressLookup>& lookup, const std::string& host, std::uint16_t port,
             const std::function<void(std::vector<SocketAddress>)>& done) {
  if (auto addresses = numeric_addresses(host, port); !addresses.empty()) {
    done(std::move(addresses));
  } else {
    lookup = std::make_unique<AddressLookup>(loop, host, port, done);
  }
}

AddressLookup::AddressLookup(EventLoop& loop, const std::string& host, std::uint16_t port,
                             std::function<void(std::vector<SocketAddress>)> done)
    : loop_(loop), done_(std::move(done)) {
  Pipe pipe = make_pipe();
  const pid_t launcher = ::getpid();
  helper_ = ::fork();
  if (helper_ < 0) throw LaunchError(std::string("cannot start a process: ") + std::strerror(errno));
  if (helper_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (::getppid() == launcher) write_addresses(host, port, pipe.writer.get());
    ::_exit(0);
  }
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, helper_, 0)));
  answer_ = std::move(pipe.reader);
  ::fcntl(answer_.get(), F_SETFL, O_NONBLOCK);
  loop_.add(answer_.get(), EPOLLIN, [this](std::uint32_t) { read(); });
}

AddressLookup::~AddressLookup() {
  finish();
}

void AddressLookup::finish() {
  if (helper_ < 0) return;
  loop_.remove(answer_.get());
  answer_.reset();
  helper_ = -1;
  // The process that reaps all children may have reaped the helper, so its number may belong to another process.
  // Without a pidfd the helper is not killed: it ends by itself, and is reaped there.
  if (!pidfd_ || ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0) != 0) return;
  siginfo_t info{};
  ::waitid(kByPidfd, static_cast<id_t>(pidfd_.get()), &info, WEXITED);
  pidfd_.reset();
}

void AddressLookup::read() {
  std::array<char, 4096> part;
  const ssize_t count = ::read(answer_.get(), part.data(), part.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) {
    bytes_.append(part.data(), static_cast<std::size_t>(count));
    return;
  }
  finish();
  std::vector<SocketAddress> addresses(bytes_.size() / sizeof(SocketAddress));
  if (!addresses.empty()) std::memcpy(addresses.data(), bytes_.data(), addresses.size() * sizeof(SocketAddress));
  const auto done = std::move(done_);  // the callee may end this object
  done(std::move(addresses));
}

}  // namespace launcher
