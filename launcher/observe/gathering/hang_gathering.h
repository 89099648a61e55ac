// The report on a hang of a job on several nodes. A node whose ranks make no progress asks node 0. Node 0 asks all
// nodes for the state of their ranks, and finds the rank that causes the hang. A node that does not answer is left out,
// so a lost node does not delay the report.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/observe/straggler/step_interval.h"
#include "launcher/observe/watch/hang_report.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

class SampleExchange {
 public:
  // `send_text`: see Rendezvous::send_text().
  SampleExchange(int node, int nodes, std::function<void(int to, std::string text)> send_text);

  // Sends this node's samples to node 0. With very many nodes, some samples are skipped.
  void send(const std::vector<RankSample>& samples);
  // Returns false when the message is for another recipient.
  bool on_message(int from, const nlohmann::json& word);
  // On node 0: the last samples that the other nodes have sent.
  std::vector<RankSample> others() const;

 private:
  const int node_;
  const int nodes_;
  std::function<void(int to, std::string text)> send_;
  EventLoop::Clock::time_point next_{};
  std::map<int, RankSample> others_;  // by rank
};

struct HangGatheringOptions {
  int node = 0;  // this node's number
  int nodes = 1;
  // Sends a text to another node, or to this one; see Rendezvous::send_text().
  std::function<void(int to, std::string text)> send_text{};
  // Returns the present state of this node's ranks; empty while they are not expected to make progress.
  std::function<std::vector<RankView>()> views{};
  // Whether this node reports hangs.
  bool reports = true;
  // Called with node 0's verdict.
  std::function<void(const HangReport& report)> on_report{};
  // Called when ranks of other nodes make progress, so that this node must check again.
  std::function<void()> on_progress{};
  // Called when node 0 does not answer.
  std::function<void()> on_no_reply{};
};

class HangGathering {
 public:
  // `loop` must outlive this.
  HangGathering(EventLoop& loop, HangGatheringOptions options);

  // Call it when this node's ranks have made no progress for `timeout`. One of the three callbacks above follows.
  void ask(std::chrono::milliseconds timeout);
  // Handles a message of a node, which may be this one. Returns false when it is for another recipient.
  bool on_message(int from, const nlohmann::json& word);

 private:
  void send(int to, const nlohmann::json& word);
  void begin(std::chrono::milliseconds timeout);
  void answer(int number);
  void take(int from, const nlohmann::json& word);
  void diagnose_all();
  void on_verdict(const nlohmann::json& word);
  std::vector<RankView> take_views();
  std::string absent_nodes() const;

  EventLoop& loop_;
  HangGatheringOptions options_;
  bool has_asked_ = false;
  EventLoop::Timer answer_timer_{loop_};  // waits for node 0's answer to ask()
  // The members below are used on node 0.
  int number_ = 0;  // the number of the present gathering
  bool gathers_ = false;
  std::chrono::milliseconds timeout_{};
  std::map<int, std::vector<RankView>> views_;  // by node
  std::set<int> complete_;                      // nodes that have reported all their ranks
  std::vector<RankView> diagnosed_views_;       // kept until this node has received the verdict
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
