// A client of the store inside the event loop, for the launchers of several nodes. Requests are answered in their
// order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/system/address.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/unique_fd.h"

namespace launcher::store {

class StoreClient {
 public:
  using OnNumber = std::function<void(std::int64_t)>;
  using OnText = std::function<void(std::string)>;
  using OnDone = std::function<void()>;

  // Connects to `host` and tries again until it succeeds; requests may be made at once. `on_lost` is called when a
  // connection that existed breaks; no reply comes after that.
  StoreClient(EventLoop& loop, std::string host, std::uint16_t port, OnDone on_lost);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  void set(std::string_view key, std::string_view value);
  void add(std::string_view key, std::int64_t increment, OnNumber on_sum);
  void compare_set(std::string_view key, std::string_view expected, std::string_view desired, OnText on_value);
  void get(std::string_view key, OnText on_value);
  void wait(std::string_view key, OnDone on_ready);
  // As the last request, while connected: its reply, which comes before that of a wait, is not expected.
  void remove_and_leave(std::string_view key);

  bool is_connected() const { return state_ == State::kConnected; }
  // Why the last attempt to connect failed.
  const std::string& problem() const { return problem_; }

 private:
  enum class State { kIdle, kConnecting, kConnected, kLost };
  struct Reply {
    OnNumber on_number{};
    OnText on_text{};
    OnDone on_done{};
  };

  void look_up();
  void connect_next();
  void try_again(std::string problem);
  void on_connecting();
  void on_refused(int error);
  void on_event(std::uint32_t events);
  void send_pending();
  void parse_replies();
  void lose();
  void request(std::string_view bytes);

  EventLoop& loop_;
  std::string host_;
  std::uint16_t port_;
  OnDone on_lost_;
  std::unique_ptr<AddressLookup> lookup_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  std::optional<EventLoop::TimerId> retry_;
  UniqueFd fd_;
  State state_ = State::kIdle;
  std::string problem_;
  std::string outgoing_;
  std::string incoming_;
  std::deque<Reply> replies_;
};

}  // namespace launcher::store
