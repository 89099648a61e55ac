#include "launcher/nodes/store/store_proxy.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/os/network/tcp_socket.h"

namespace launcher::store {

StoreProxy::StoreProxy(EventLoop& loop, Messages& messages, ProxyOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      listener_(loop, ListenAt{}, 0, [this](int listener) { accept_all(listener); }) {
  if (!options_.store_channel->send) return;
  link_ = std::make_unique<ChannelLink>(
      options_.store_channel, ChannelLink::Callbacks{.on_frame = [this](const Frame& frame) { on_frame(frame); },
                                                     .on_delivered = [] {},
                                                     .on_broken = [this] { on_lost(); }});
  options_.store_channel->on_bytes = [this](std::string_view bytes) {
    if (link_) link_->on_received(bytes);
  };
  options_.store_channel->on_space_available = [this] { on_space_available(); };
  options_.store_channel->on_closed = [this] { on_lost(); };
}

// Closes all channels, so that the store forgets the clients even if the connection continues.
StoreProxy::~StoreProxy() {
  options_.store_channel->on_bytes = nullptr;
  options_.store_channel->on_space_available = nullptr;
  options_.store_channel->on_closed = nullptr;
  for (const auto& [channel, client] : clients_) {
    loop_.remove(client.fd.get());
    if (link_ && !client.is_ending) link_->send(FrameKind::kClose, channel);
  }
  if (link_) link_->flush();
}

void StoreProxy::accept_all(int listener) {
  for (int i = 0; i < kMaxConsecutiveAccepts; ++i) {
    Accepted accepted = accept_connection(listener);
    if (accepted.is_out_of_resources) pause_accepting();
    if (!accepted.fd) return;
    if (link_) add_client(std::move(accepted.fd), accepted.peer_port);
  }
}

void StoreProxy::pause_accepting() {
  if (listener_.pause(std::chrono::milliseconds(200))) {
    messages_.print(
        "the store's proxy cannot accept more connections: too few file descriptors are left; raise the limit with "
        "ulimit -n");
  }
}

void StoreProxy::add_client(UniqueFd fd, std::uint16_t peer_port) {
  set_connection_options(fd.get());
  const Channel channel = next_channel_++;
  const int number = fd.get();
  Client& client = clients_.emplace(channel, Client{.fd = std::move(fd)}).first->second;
  client.is_held = options_.on_connection && options_.on_connection(peer_port);
  loop_.add(number, 0, [this, channel](std::uint32_t events) { on_client(channel, events); });
  link_->send(FrameKind::kOpen, channel);  // sent together with the client's first request
  update_interest(client);
}

void StoreProxy::release() {
  for (auto& [channel, client] : clients_) {
    client.is_held = false;
    update_interest(client);
  }
}

void StoreProxy::on_space_available() {
  is_full_ = false;
  update_all();
}

// Closes all clients' connections, as the end of the store would do.
void StoreProxy::on_lost() {
  link_.reset();
  for (const auto& [channel, client] : clients_) loop_.remove(client.fd.get());
  clients_.clear();
}

void StoreProxy::on_client(Channel channel, std::uint32_t events) {
  Client& client = clients_.at(channel);
  if ((events & EPOLLOUT) != 0 && !send_replies(channel, client)) return;
  const bool may_read = (client.interest & EPOLLIN) != 0 && (events & EPOLLIN) != 0;
  if (may_read) {
    if (!read_requests(channel, client)) return;
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    end(channel, true);  // the client does not read replies any more either
    return;
  }
  update_interest(client);
  if (link_) link_->flush();
}

// Returns false when the client is gone.
bool StoreProxy::read_requests(Channel channel, Client& client) {
  std::array<char, kMaxFrameBytes> bytes;
  const ssize_t count = ::read(client.fd.get(), bytes.data(), std::min(bytes.size(), client.to_store.room()));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) {
    end(channel, true);
    return false;
  }
  const auto size = static_cast<std::size_t>(count);
  client.to_store.sent(size);
  link_->send(FrameKind::kData, channel, std::string_view(bytes.data(), size));
  link_->flush();
  if (!link_->has_room() && !is_full_) {
    is_full_ = true;
    update_all();
  }
  return true;
}

// Returns false when the client is gone.
bool StoreProxy::send_replies(Channel channel, Client& client) {
  std::size_t sent = 0;
  while (sent < client.replies.size()) {
    const ssize_t count =
        ::send(client.fd.get(), client.replies.data() + sent, client.replies.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      end(channel, true);
      return false;
    }
    sent += static_cast<std::size_t>(count);
  }
  client.replies.erase(0, sent);
  client.from_store.taken(sent);
  if (client.is_ending && client.replies.empty()) {
    end(channel, false);
    return false;
  }
  if (const std::uint32_t taken = client.from_store.announcement(); taken != 0 && !client.is_ending) {
    link_->send(FrameKind::kTaken, channel, {}, taken);
  }
  return true;
}

void StoreProxy::on_frame(const Frame& frame) {
  const auto found = clients_.find(frame.channel);
  if (found == clients_.end()) return;  // the client has disconnected
  Client& client = found->second;
  bool is_valid = true;
  if (frame.kind == FrameKind::kTaken) {
    is_valid = client.to_store.taken(frame.number);
  } else if (frame.kind == FrameKind::kClose) {
    client.is_ending = true;
    if (!send_replies(frame.channel, client)) return;
  } else if (frame.kind == FrameKind::kData) {
    is_valid = client.from_store.received(frame.bytes.size());
    client.replies += frame.bytes;
    if (is_valid && !send_replies(frame.channel, client)) return;
  }
  if (!is_valid) {
    on_lost();
    return;
  }
  update_interest(client);
}

void StoreProxy::update_interest(Client& client) {
  std::uint32_t wanted = 0;
  const bool may_read = link_ && !is_full_ && !client.is_held && !client.is_ending && client.to_store.room() > 0;
  if (may_read) wanted |= EPOLLIN;
  if (!client.replies.empty()) wanted |= EPOLLOUT;
  if (wanted == client.interest) return;
  client.interest = wanted;
  loop_.change(client.fd.get(), wanted);
}

void StoreProxy::update_all() {
  for (auto& [channel, client] : clients_) update_interest(client);
}

void StoreProxy::end(Channel channel, bool send_to_store) {
  const auto found = clients_.find(channel);
  if (link_ && send_to_store && !found->second.is_ending) {
    link_->send(FrameKind::kClose, channel);
    link_->flush();
  }
  loop_.remove(found->second.fd.get());
  clients_.erase(found);
}

}  // namespace launcher::store
