// A report on ranks that make no progress, over all nodes: a node whose own ranks make no progress asks node 0, which
// asks all for what they see, and says who is to blame. A node that does not answer is left out, so nothing waits for a
// lost node.
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
  // `tell`: see Rendezvous::tell().
  SampleExchange(int node, int nodes, std::function<void(int to, std::string text)> tell);

  // This node's, which go to node 0; not every time where there are very many nodes.
  void send(const std::vector<RankSample>& samples);
  // False when the message is for another recipient.
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
  int node = 0;  // this one
  int nodes = 1;
  // To another node, or to this one itself; see Rendezvous::tell().
  std::function<void(int to, std::string text)> tell{};
  // This node's ranks, as they are now; none while they are not expected to make progress.
  std::function<std::vector<RankView>()> views{};
  // Whether this node reports.
  bool reports = true;
  // Node 0 has judged.
  std::function<void(const HangReport& report)> on_report{};
  // Elsewhere ranks still make progress: this node is to look again.
  std::function<void()> on_progress{};
  // Node 0 does not answer.
  std::function<void()> on_silence{};
};

class HangGathering {
 public:
  // `loop` must outlive this.
  HangGathering(EventLoop& loop, HangGatheringOptions options);

  // This node's ranks have made no progress for `timeout`: one of the three calls follows.
  void ask(std::chrono::milliseconds timeout);
  // A message of a node, which may be this one. False when it is for another recipient.
  bool on_message(int from, const nlohmann::json& word);

 private:
  void send(int to, const nlohmann::json& word);
  void begin(std::chrono::milliseconds timeout);
  void answer(int number);
  void take(int from, const nlohmann::json& word);
  void judge_all();
  void on_verdict(const nlohmann::json& word);
  std::vector<RankView> take_views();
  std::string absent_nodes() const;

  EventLoop& loop_;
  HangGatheringOptions options_;
  bool has_asked_ = false;
  EventLoop::Timer answer_timer_{loop_};  // of who has asked
  // On node 0.
  int number_ = 0;  // of the question
  bool gathers_ = false;
  std::chrono::milliseconds timeout_{};
  std::map<int, std::vector<RankView>> views_;  // by node
  std::set<int> complete_;                      // nodes
  std::vector<RankView> judged_;                // until the verdict has come back to this node
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
