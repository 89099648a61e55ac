#include "comm/core/store_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/store_protocol.h"

namespace ddp::detail {
namespace {

using store::append_text;
using store::Opcode;
using store::request_bytes;

// No answer to our requests is longer. A greater length means that the other end is not a store.
constexpr uint64_t kMaxAnswerBytes = uint64_t{1} << 30;
// Memory is allocated for the bytes that have arrived, not for the announced length: first this much, then twice the
// bytes that have arrived.
constexpr uint64_t kFirstPiece = uint64_t{64} << 10;
// The pause between two checks of a thread that does not wait alone. Each pause is a quarter longer than the last. So a
// key is noticed after at most a fifth of the time waited, and ranks that wait for minutes send few requests.
constexpr auto kFirstPause = std::chrono::microseconds(500);
constexpr auto kMaxPause = std::chrono::microseconds(250'000);

bool is_loopback(const sockaddr& address) {
  if (address.sa_family != AF_INET) return false;
  return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
}

}  // namespace

class StoreConnection::Deadline {
 public:
  explicit Deadline(Duration limit)
      : at_(std::chrono::steady_clock::now() + std::clamp(limit, Duration::zero(), Duration(kMaxTimeout))) {}
  Deadline(const Deadline& other, Duration grace) : at_(other.at_ + grace) {}

  /// For poll(): rounded up, 0 once it has passed.
  int milliseconds() const {
    const auto left = std::chrono::ceil<Duration>(at_ - std::chrono::steady_clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
  }
  std::chrono::steady_clock::time_point at() const { return at_; }
  bool has_expired() const { return std::chrono::steady_clock::now() >= at_; }

 private:
  // Longer than any timeout, and short enough not to overflow the clock.
  static constexpr std::chrono::hours kMaxTimeout{24 * 365};
  std::chrono::steady_clock::time_point at_;
};

// Waits while another thread's call is in progress, at most until the deadline.
class StoreConnection::Lock {
 public:
  Lock(StoreConnection& connection, const Deadline& deadline) : connection_(connection) {
    if (!connection.call_lock_.try_lock_until(deadline.at())) {
      throw StoreUnreachable(connection.name_ + ": another call to it is still under way");
    }
    if (connection.fd_ >= 0) return;
    connection.call_lock_.unlock();
    throw StoreUnreachable(connection.name_ +
                           ": an earlier call has closed the connection: " + connection.closed_because_);
  }
  ~Lock() { connection_.call_lock_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  StoreConnection& connection_;
};

// Counts the threads in wait().
class StoreConnection::Waiter {
 public:
  explicit Waiter(StoreConnection& connection) : connection_(connection) { count(1); }
  ~Waiter() { count(-1); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  bool is_alone() const {
    const std::lock_guard lock(connection_.waiters_mutex_);
    return connection_.waiters_ == 1;
  }

  /// Waits until the next check is due; returns at once if this thread waits alone.
  void pause(const Deadline& deadline) {
    const auto until = std::min(deadline.at(), std::chrono::steady_clock::now() + pause_);
    std::unique_lock lock(connection_.waiters_mutex_);
    connection_.waiters_changed_.wait_until(
        lock, until, [&] { return connection_.waiters_ == 1 || connection_.is_interrupted_.load(); });
    pause_ = std::min(pause_ + pause_ / 4, kMaxPause);
  }

 private:
  void count(int change) {
    const std::lock_guard lock(connection_.waiters_mutex_);
    connection_.waiters_ += change;
    connection_.waiters_changed_.notify_all();
  }

  StoreConnection& connection_;
  std::chrono::microseconds pause_ = kFirstPause;
};

StoreConnection::StoreConnection(std::string host, uint16_t port, Duration limit, bool patient, std::string hosted_by)
    : host_(std::move(host)),
      port_(port),
      name_("the job's store at " + host_ + ":" + std::to_string(port_) +
            (hosted_by.empty() ? "" : ", which " + hosted_by + " hosts")),
      interrupt_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const Deadline deadline(limit);
  try {
    if (interrupt_fd_ < 0) fail(std::string("eventfd: ") + std::strerror(errno));
    connect(deadline, patient);
    std::string hello = request_bytes(Opcode::kValidate);
    append_integer(hello, store::kValidationNumber);
    request(hello, deadline);
  } catch (...) {
    if (interrupt_fd_ >= 0) ::close(interrupt_fd_);
    throw;
  }
}

StoreConnection::~StoreConnection() {
  if (fd_ >= 0) ::close(fd_);
  ::close(interrupt_fd_);
}

void StoreConnection::connect(const Deadline& deadline, bool patient) {
  constexpr auto kPause = std::chrono::milliseconds(50);
  Failure failure = try_to_connect(deadline);
  while (fd_ < 0 && patient && !failure.is_final && deadline.milliseconds() > 0) {
    std::this_thread::sleep_for(std::min(kPause, Duration(deadline.milliseconds())));
    failure = try_to_connect(deadline);
  }
  if (fd_ < 0) fail(failure.why);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Returns the reason if the connection was not made.
StoreConnection::Failure StoreConnection::try_to_connect(const Deadline& deadline) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found); error != 0) {
    return {::gai_strerror(error)};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  Failure failure{"no address"};
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    fd_ = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    if (fd_ >= 0 && ::connect(fd_, address->ai_addr, address->ai_addrlen) == 0) break;
    if (fd_ >= 0 && errno == EINPROGRESS && wait_for(POLLOUT, deadline, false)) {
      socklen_t length = sizeof error;
      if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) break;
    } else {
      error = errno == EINPROGRESS ? ETIMEDOUT : errno;
    }
    failure = {std::strerror(error)};
    if (error == ENETUNREACH && is_loopback(*address->ai_addr)) {
      failure = {failure.why + " (the loopback interface is down; as root: ip link set lo up)", true};
    }
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  return failure;
}

void StoreConnection::fail(const std::string& why) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  closed_because_ = why;
  throw StoreUnreachable(name_ + ": " + why);
}

// True when the socket is ready. False at the deadline or, if `interruptible`, after an interruption.
bool StoreConnection::wait_for(short events, const Deadline& deadline, bool interruptible) const {
  pollfd polled[] = {{fd_, events, 0}, {interrupt_fd_, POLLIN, 0}};
  for (;;) {
    const int count = ::poll(polled, interruptible ? 2 : 1, deadline.milliseconds());
    if (count < 0 && errno == EINTR) continue;
    if (interruptible && (polled[1].revents & POLLIN) != 0) return false;
    return count > 0;
  }
}

void StoreConnection::request(const std::string& bytes, const Deadline& deadline) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(POLLOUT, deadline, true)) fail("it does not answer");
    } else if (errno != EINTR) {
      fail(std::strerror(errno));
    }
  }
}

void StoreConnection::receive(char* out, size_t count, const Deadline& deadline) {
  while (count > 0) {
    const ssize_t got = ::recv(fd_, out, count, 0);
    if (got > 0) {
      out += got;
      count -= static_cast<size_t>(got);
    } else if (got == 0) {
      fail("it has closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(POLLIN, deadline, true)) fail("it does not answer");
    } else if (errno != EINTR) {
      fail(std::strerror(errno));
    }
  }
}

template <typename Integer>
Integer StoreConnection::receive_integer(const Deadline& deadline) {
  char bytes[sizeof(Integer)];
  receive(bytes, sizeof bytes, deadline);
  return read_integer<Integer>({bytes, sizeof bytes});
}

// True for the answer `yes`, false for `no`. Any other answer is an error.
bool StoreConnection::receive_word(uint8_t yes, uint8_t no, const Deadline& deadline) {
  const auto word = receive_integer<uint8_t>(deadline);
  if (word != yes && word != no) fail("it is not a store: it answers with byte " + std::to_string(word));
  return word == yes;
}

std::string StoreConnection::receive_text(const Deadline& deadline) {
  const auto length = receive_integer<uint64_t>(deadline);
  if (length > kMaxAnswerBytes) fail("it is not a store: it announces " + std::to_string(length) + " bytes");
  std::string text;
  while (text.size() < length) {
    const size_t begin = text.size();
    const uint64_t piece = std::min(length - begin, std::max<uint64_t>(kFirstPiece, begin));
    text.resize(begin + piece);
    receive(text.data() + begin, piece, deadline);
  }
  return text;
}

void StoreConnection::set(std::string_view key, std::string_view value, Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  std::string bytes = request_bytes(Opcode::kSet, key);
  append_text(bytes, value);
  request(bytes, deadline);
}

std::string StoreConnection::get(std::string_view key, Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  request(request_bytes(Opcode::kGet, key), deadline);
  return receive_text(deadline);
}

std::string StoreConnection::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                         Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  std::string bytes = request_bytes(Opcode::kCompareSet, key);
  append_text(bytes, expected);
  append_text(bytes, desired);
  request(bytes, deadline);
  return receive_text(deadline);
}

int64_t StoreConnection::add(std::string_view key, int64_t increment, Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  std::string bytes = request_bytes(Opcode::kAdd, key);
  append_integer(bytes, increment);
  request(bytes, deadline);
  return receive_integer<int64_t>(deadline);
}

bool StoreConnection::check(const std::vector<std::string>& keys, Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  return check(keys, deadline);
}

// The caller must hold the lock.
bool StoreConnection::check(const std::vector<std::string>& keys, const Deadline& deadline) {
  request(request_bytes(Opcode::kCheck, keys), deadline);
  return receive_word(store::kReady, store::kNotReady, deadline);
}

int64_t StoreConnection::delete_key(std::string_view key, Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  request(request_bytes(Opcode::kDelete, key), deadline);
  return receive_integer<int64_t>(deadline);
}

int64_t StoreConnection::number_of_keys(Duration limit) {
  const Deadline deadline(limit);
  const Lock lock(*this, deadline);
  request(request_bytes(Opcode::kNumKeys), deadline);
  return receive_integer<int64_t>(deadline);
}

StoreConnection::Wait StoreConnection::wait(const std::vector<std::string>& keys, Duration limit, Duration grace) {
  const Deadline deadline(limit);
  const Deadline latest(deadline, grace);
  Waiter waiter(*this);
  try {
    for (;;) {
      {
        const Lock lock(*this, latest);
        const bool waits_in_store = waiter.is_alone() && !deadline.has_expired();
        const auto outcome =
            waits_in_store ? wait_in_store(keys, deadline, latest) : check_once(keys, deadline, latest);
        if (outcome) return *outcome;
      }
      waiter.pause(deadline);
    }
  } catch (const StoreUnreachable&) {
    if (is_interrupted_) return Wait::kInterrupted;
    throw;
  }
}

// The caller must hold the lock. Returns nothing when another thread waits for the lock before the keys are set.
std::optional<StoreConnection::Wait> StoreConnection::wait_in_store(const std::vector<std::string>& keys,
                                                                    const Deadline& deadline, const Deadline& latest) {
  request(request_bytes(Opcode::kWait, keys), latest);
  pollfd polled[] = {{fd_, POLLIN, 0}, {interrupt_fd_, POLLIN, 0}, {call_lock_.waiters_fd(), POLLIN, 0}};
  while (::poll(polled, 3, deadline.milliseconds()) < 0 && errno == EINTR) {
  }
  if (polled[1].revents != 0) return Wait::kInterrupted;
  if (polled[0].revents != 0) {
    receive_word(store::kStopWaiting, store::kStopWaiting, latest);
    return Wait::kReady;
  }
  // The answer may have been sent before the store received the cancellation; then the store's answer to the
  // cancellation follows.
  request(request_bytes(Opcode::kCancelWait), latest);
  if (receive_word(store::kWaitCanceled, store::kStopWaiting, latest)) {
    return deadline.has_expired() ? std::optional(Wait::kTimeout) : std::nullopt;
  }
  receive_word(store::kWaitCanceled, store::kWaitCanceled, latest);
  return Wait::kReady;
}

// The caller must hold the lock. Returns nothing when the keys are not set yet.
std::optional<StoreConnection::Wait> StoreConnection::check_once(const std::vector<std::string>& keys,
                                                                 const Deadline& deadline, const Deadline& latest) {
  if (is_interrupted_) return Wait::kInterrupted;
  if (check(keys, latest)) return Wait::kReady;
  return deadline.has_expired() ? std::optional(Wait::kTimeout) : std::nullopt;
}

void StoreConnection::interrupt() noexcept {
  const uint64_t one = 1;
  is_interrupted_ = true;
  static_cast<void>(!::write(interrupt_fd_, &one, sizeof one));
  const std::lock_guard lock(waiters_mutex_);
  waiters_changed_.notify_all();
}

}  // namespace ddp::detail
