// A client of the store that runs in the event loop, for the launchers of several nodes. Requests are answered in their
// order.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/nodes/store/request_parser.h"
#include "launcher/os/network/connector.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::store {

// Returns texts such as "an SSH server (SSH-2.0-OpenSSH_9.2)", or "another program, which sent 0x12 0x34" for an
// unknown protocol. `bytes` must not be empty.
std::string describe_service(std::string_view bytes);

class StoreClient {
 public:
  using OnNumber = std::function<void(std::int64_t)>;
  using OnText = std::function<void(std::string)>;
  using OnDone = std::function<void()>;

  // Connects to `host`, and tries again until it succeeds. Requests may be made at once. `on_lost` is called when an
  // existing connection breaks, or when the program that listens is not a store; no reply arrives after that.
  // `early_pause`: see Connector.
  StoreClient(EventLoop& loop, std::string host, std::uint16_t port, OnDone on_lost,
              std::chrono::milliseconds early_pause = Connector::kEarlyPause);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  void set(std::string_view key, std::string_view value);
  void add(std::string_view key, std::int64_t increment, OnNumber on_sum);
  void compare_set(std::string_view key, std::string_view expected, std::string_view desired, OnText on_value);
  void get(std::string_view key, OnText on_value);
  void wait(std::string_view key, OnDone on_ready);
  void check(std::string_view key, std::function<void(bool exists)> on_answer);
  // Call it as the last request, while connected. Its reply, which arrives before that of a wait, is not expected.
  void remove_and_disconnect(std::string_view key);

  int fd() const { return fd_.get(); }
  bool is_connected() const { return state_ == State::kConnected; }
  // If nothing was answered for `time` after the connection, sends a line of text: servers of text protocols send
  // nothing before they receive one. Later answers of a store that was only slow are not used, because the store may
  // have taken the line for requests.
  void probe_after(std::chrono::milliseconds time) { probe_delay_ = time; }
  bool has_probed() const { return has_probed_; }
  // The other program that listens instead of a store, according to what it sent; "" as long as it may be a store.
  const std::string& other_service() const { return other_service_; }
  const std::string& problem() const { return connector_.problem(); }
  bool is_unresolved() const { return connector_.is_unresolved(); }

 private:
  enum class State { kConnecting, kConnected, kOtherService, kLost };
  struct Reply {
    OnNumber on_number{};
    OnText on_text{};
    OnDone on_done{};
    std::function<void(bool)> on_answer{};
  };

  void on_connected(UniqueFd fd);
  void on_event(std::uint32_t events);
  void send_pending();
  void parse_replies();
  bool is_invalid_reply() const;
  void read_other_service();
  void send_probe();
  void lose();
  void request(std::string_view bytes);
  void ask(Opcode opcode, std::string_view key);

  EventLoop& loop_;
  OnDone on_lost_;
  UniqueFd fd_;
  State state_ = State::kConnecting;
  std::string outgoing_;
  std::string incoming_;
  std::deque<Reply> replies_;
  std::optional<std::chrono::milliseconds> probe_delay_;  // after which a line is sent
  bool has_probed_ = false;
  std::string other_service_;
  EventLoop::Timer timer_{loop_};
  Connector connector_;
};

}  // namespace launcher::store
