// Serves the store of another node to this node's ranks: it listens on loopback, and carries all requests and replies
// over the launcher's own connection to that node. It does not interpret the bytes, so clients of any version work, and
// it caches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "launcher/nodes/store/channel_link.h"
#include "launcher/nodes/store/store_channel.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::store {

struct ProxyOptions {
  std::shared_ptr<StoreChannel> store_channel{};  // to the store, which must belong to a ddprun
  // See ServerOptions::on_connection.
  std::function<bool(std::uint16_t peer_port)> on_connection{};
};

class StoreProxy {
 public:
  // Listens at once. When the store channel is closed, all clients' connections are closed, and so are later ones.
  // Throws LaunchError when there is no port. `loop` and `messages` must outlive the proxy.
  StoreProxy(EventLoop& loop, Messages& messages, ProxyOptions options);
  ~StoreProxy();
  StoreProxy(const StoreProxy&) = delete;
  StoreProxy& operator=(const StoreProxy&) = delete;

  std::uint16_t port() const { return listener_.port(); }
  std::size_t clients() const { return clients_.size(); }
  // Begins to read from the connections for which on_connection returned true.
  void release();

 private:
  struct Client {
    UniqueFd fd;
    bool is_held = false;
    bool is_ending = false;  // the store has closed the channel; remaining replies must still be sent
    std::uint32_t interest = 0;
    SendWindow to_store{};
    ReceiveWindow from_store{};
    std::string replies{};  // not sent yet
  };
  using Clients = std::unordered_map<Channel, Client>;

  void accept_all(int listener);
  void add_client(UniqueFd fd, std::uint16_t peer_port);
  void pause_accepting();
  void on_space_available();
  void on_lost();
  void on_client(Channel channel, std::uint32_t events);
  bool read_requests(Channel channel, Client& client);
  bool send_replies(Channel channel, Client& client);
  void on_frame(const Frame& frame);
  void update_interest(Client& client);
  void update_all();
  void end(Channel channel, bool send_to_store);

  EventLoop& loop_;
  Messages& messages_;
  ProxyOptions options_;
  Listener listener_;
  std::unique_ptr<ChannelLink> link_;  // null once the link is lost
  bool is_full_ = false;               // true when the link has no room: then no client is read
  Channel next_channel_ = 0;
  Clients clients_;
};

}  // namespace launcher::store
