// What the ranks of all nodes did in their last steps comes together on node 0.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/observe/straggler/slice.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

class SampleExchange {
 public:
  // `tell`: see Rendezvous::tell().
  SampleExchange(int node, int nodes, std::function<void(int to, std::string text)> tell);

  // This node's, which go to node 0; not every time where there are very many nodes.
  void send(const std::vector<RankSample>& samples);
  // False when the word is meant for somebody else.
  bool on_word(int from, const nlohmann::json& word);
  // On node 0: the last that other nodes have told.
  std::vector<RankSample> others() const;

 private:
  const int node_;
  const int nodes_;
  std::function<void(int to, std::string text)> send_;
  EventLoop::Clock::time_point next_{};
  std::map<int, RankSample> others_;  // by rank
};

}  // namespace launcher
