#include "launcher/observe/gathering/sample_exchange.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/observe/gathering/view_json.h"

namespace launcher {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kRanksInWord = 16;
constexpr milliseconds kLeastInterval{400};
// So that node 0 has no more to read when there are more nodes.
constexpr milliseconds kIntervalOfNode{15};

}  // namespace

SampleExchange::SampleExchange(int node, int nodes, std::function<void(int to, std::string text)> tell)
    : node_(node), nodes_(nodes), send_(std::move(tell)) {}

void SampleExchange::send(const std::vector<RankSample>& samples) {
  const auto now = EventLoop::Clock::now();
  if (node_ == 0 || now < next_) return;
  next_ = now + std::max(kLeastInterval, nodes_ * kIntervalOfNode);
  for (std::size_t begin = 0; begin < samples.size(); begin += kRanksInWord) {
    json list = json::array();
    for (std::size_t i = begin; i < std::min(begin + kRanksInWord, samples.size()); ++i) {
      list.push_back(json_of(samples[i]));
    }
    send_(0, json{{"samples", std::move(list)}}.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
  }
}

bool SampleExchange::on_word(int from, const json& word) {
  if (!word.contains("samples")) return false;
  if (node_ != 0 || from == 0 || !word.at("samples").is_array()) return true;
  for (const json& each : word.at("samples")) {
    if (auto sample = sample_from(each)) others_[sample->rank] = std::move(*sample);
  }
  return true;
}

std::vector<RankSample> SampleExchange::others() const {
  std::vector<RankSample> samples;
  for (const auto& [rank, sample] : others_) samples.push_back(sample);
  return samples;
}

}  // namespace launcher
