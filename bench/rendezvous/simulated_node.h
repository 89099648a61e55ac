// One node of the simulated job. It joins, runs and learns about a failure with the code of the launcher. Its ranks are
// eight channels of the same connection, which send the same requests to the store as real ranks.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/rendezvous/simulation.h"
#include "launcher/nodes/rendezvous/coordinator_search.h"
#include "launcher/nodes/rendezvous/member.h"
#include "launcher/nodes/store/channel_link.h"
#include "launcher/nodes/store/request_parser.h"
#include "launcher/nodes/store/store_channel.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/version.h"

namespace bench {

class Node {
 public:
  Node(launcher::EventLoop& loop, launcher::Messages& messages, Shared& shared, int number, int nodes, int ranks,
       std::uint16_t store_port)
      : loop_(loop),
        messages_(messages),
        shared_(shared),
        number_(number),
        nodes_(nodes),
        ranks_(ranks),
        store_port_(store_port) {}

  void join() {
    search_ = std::make_unique<launcher::CoordinatorSearch>(
        loop_, "127.0.0.1", store_port_, nodes_,
        launcher::CoordinatorSearch::Callbacks{.on_found = [this](launcher::UniqueFd fd) { meet(std::move(fd)); },
                                               .on_foreign = [] {}});
  }

  void use_store() {
    using namespace launcher::store;
    const std::shared_ptr<StoreChannel> store_channel = member_->store_channel();
    store_channel->on_bytes = [this](std::string_view bytes) { link_->on_received(bytes); };
    store_channel->on_space_available = [] {};
    store_channel->on_closed = [this] { ++shared_.lost; };
    link_ = std::make_unique<ChannelLink>(
        store_channel, ChannelLink::Callbacks{.on_frame = [this](const Frame& frame) { on_reply(frame); },
                                              .on_delivered = [] {},
                                              .on_broken = [this] { ++shared_.lost; }});
    begin_requests();
  }

  // The ranks are running: from now on a silent node counts as lost.
  void answer_immediately() {
    is_running_ = true;
    if (member_) member_->announce_timeout();
  }

  void fail() {
    member_->announce({.exit_status = 1, .text = "rank 7 on host x failed first: it exited with status 1"});
  }

  // Adds the traffic of this connection so far.
  void add_traffic(std::int64_t& segments, std::int64_t& bytes) const {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (control_fd_ < 0 || ::getsockopt(control_fd_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
    segments += info.tcpi_data_segs_in + info.tcpi_data_segs_out;
    bytes += static_cast<std::int64_t>(info.tcpi_bytes_received + info.tcpi_bytes_acked);
  }

 private:
  struct Rank {
    std::size_t received = 0;
    bool is_waiting = false;
  };

  void meet(launcher::UniqueFd fd) {
    using namespace std::chrono_literals;
    control_fd_ = fd.get();
    launcher::MemberOptions options{.hello = {.version = launcher::kDdprunVersion,
                                              .host = "host" + std::to_string(number_),
                                              .pid = 1,
                                              .launcher = "launcher" + std::to_string(number_),
                                              .nnodes = nodes_,
                                              .node_rank = number_,
                                              .run_id = "none",
                                              .backend = "static",
                                              .local_world_size = ranks_,
                                              .role = "default"}};
    options.coordinator = "host0:29500";
    options.timeout = [this] { return is_running_ ? launcher::control::heartbeat_timeout(1000ms, nodes_) : 30'000ms; };
    options.is_any_ending = [] { return false; };
    options.on_start = [this](const launcher::control::Start&) { ++shared_.joined; };
    options.on_failure = [this](const launcher::FailureNotice& notice) {
      if (shared_.failed == 0 || notice.text.find("is gone") != std::string::npos ||
          notice.text.find("broke") != std::string::npos) {
        ++shared_.lost;
      }
      if (is_told_) return;
      is_told_ = true;
      ++shared_.stopped;
      shared_.last_stop = now_microseconds();
    };
    member_ = std::make_unique<launcher::Member>(loop_, messages_, std::move(options), std::move(fd));
    member_->begin_round(0);
    search_.reset();
  }

  void begin_requests() {
    using namespace launcher::store;
    replies_.resize(static_cast<std::size_t>(ranks_));
    for (Channel rank = 0; rank < replies_.size(); ++rank) {
      const std::string number = std::to_string(number_ * ranks_ + static_cast<int>(rank));
      std::string bytes(1, static_cast<char>(Opcode::kValidate));
      launcher::append_integer(bytes, kValidationNumber);
      bytes.push_back(static_cast<char>(Opcode::kSet));
      append_text(bytes, "default_pg/0//cpu//0/" + number);
      append_text(bytes, std::string(64, 'a'));
      bytes.push_back(static_cast<char>(Opcode::kAdd));
      append_text(bytes, "default_pg/barrier");
      launcher::append_integer(bytes, std::int64_t{1});
      link_->send(FrameKind::kOpen, rank);
      link_->send(FrameKind::kData, rank, bytes);
    }
    link_->flush();
  }

  // The reply with the sum comes first. The last of all ranks opens the barrier that the others wait for.
  void on_reply(const launcher::store::Frame& frame) {
    using namespace launcher::store;
    if (frame.kind != FrameKind::kData) return;
    Rank& rank = replies_[frame.channel];
    rank.received += frame.bytes.size();
    if (rank.received >= 9) {
      ++shared_.served;
      rank.received = 0;
    } else if (rank.received == 8 && !rank.is_waiting) {
      rank.is_waiting = true;
      std::string bytes;
      if (launcher::read_integer<std::int64_t>(frame.bytes) == std::int64_t{nodes_ - 1} * ranks_) {
        bytes.push_back(static_cast<char>(Opcode::kSet));
        append_text(bytes, "default_pg/barrier/done");
        append_text(bytes, "1");
      }
      bytes.push_back(static_cast<char>(Opcode::kWait));
      launcher::append_integer(bytes, std::uint64_t{1});
      append_text(bytes, "default_pg/barrier/done");
      link_->send(FrameKind::kData, frame.channel, bytes);
    }
  }

  launcher::EventLoop& loop_;
  launcher::Messages& messages_;
  Shared& shared_;
  int number_;
  int nodes_;
  int ranks_;
  std::uint16_t store_port_;
  int control_fd_ = -1;
  bool is_running_ = false;
  bool is_told_ = false;
  std::unique_ptr<launcher::CoordinatorSearch> search_;
  std::unique_ptr<launcher::Member> member_;
  std::unique_ptr<launcher::store::ChannelLink> link_;
  std::vector<Rank> replies_;
};

}  // namespace bench
