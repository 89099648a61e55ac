#include "launcher/observe/gathering/hang_gathering.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include "launcher/observe/gathering/view_json.h"
#include "launcher/os/system/json_text.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kRanksPerMessage = 16;
constexpr milliseconds kMinInterval{400};
// The interval grows by this time for each node, so that the load of node 0 does not depend on the number of nodes.
constexpr milliseconds kIntervalOfNode{15};

using namespace std::chrono_literals;
using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long node 0 waits until all nodes have reported their ranks; and how long a node waits for node 0's verdict.
constexpr auto kGatheringTimeout = 3s;
constexpr auto kSampleAnswer = 6s;
// The other nodes check their ranks at other moments and at longer intervals, so a part of the timeout is enough.
constexpr double kMinIdleShare = 0.6;
constexpr int kNodeZero = 0;
// If ranks have called different collectives, the first difference is among the last calls.
constexpr std::size_t kMaxCalls = 40;
// The size limit of a message, with some reserve.
constexpr std::size_t kMaxStackBytes = 20'000;
constexpr std::size_t kMaxCulprits = 1000;

json json_within_limit(const RankView& view, std::uint64_t now) {
  std::size_t calls = kMaxCalls;
  json object = json_of(view, now, calls);
  while (calls > 1 && json_text(object, /*ensure_ascii=*/true).size() > kMaxStackBytes)
    object = json_of(view, now, calls /= 2);
  return object;
}

}  // namespace

SampleExchange::SampleExchange(int node, int nodes, std::function<void(int to, std::string text)> send_text)
    : node_(node), nodes_(nodes), send_(std::move(send_text)) {}

void SampleExchange::send(const std::vector<RankSample>& samples) {
  const auto now = EventLoop::Clock::now();
  if (node_ == 0 || now < next_) return;
  next_ = now + std::max(kMinInterval, nodes_ * kIntervalOfNode);
  for (std::size_t begin = 0; begin < samples.size(); begin += kRanksPerMessage) {
    json list = json::array();
    for (std::size_t i = begin; i < std::min(begin + kRanksPerMessage, samples.size()); ++i) {
      list.push_back(json_of(samples[i]));
    }
    send_(0, json_text(json{{"samples", std::move(list)}}, /*ensure_ascii=*/true));
  }
}

bool SampleExchange::on_message(int from, const json& word) {
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

HangGathering::HangGathering(EventLoop& loop, HangGatheringOptions options)
    : loop_(loop), options_(std::move(options)) {}

void HangGathering::send(int to, const json& word) {
  options_.send_text(to, json_text(word, /*ensure_ascii=*/true));
}

void HangGathering::ask(milliseconds timeout) {
  if (std::exchange(has_asked_, true)) return;
  answer_timer_.start_in(kSampleAnswer, [this] {
    has_asked_ = false;
    options_.on_no_reply();
  });
  send(kNodeZero, {{"hang", "stuck"}, {"timeout", timeout.count()}});
}

bool HangGathering::on_message(int from, const json& word) try {
  if (!word.contains("hang")) return false;
  const std::string what = word.at("hang");
  if (what == "stuck" && options_.node == kNodeZero) {
    begin(milliseconds(std::clamp(word.at("timeout").get<std::int64_t>(), std::int64_t{1}, std::int64_t{1} << 40)));
  } else if (what == "look" && from == kNodeZero) {
    answer(word.at("number"));
  } else if (what == "view" || what == "seen") {
    take(from, word);
  } else if (what == "verdict" && from == kNodeZero) {
    answer_timer_.cancel();
    has_asked_ = false;
    if (!word.contains("sentence")) {
      options_.on_progress();
      return true;
    }
    on_verdict(word);
  }
  return true;
} catch (const json::exception&) {
  return true;  // not a message of a launcher
}

void HangGathering::on_verdict(const json& word) {
  HangReport report{
      .verdict = {.kind = static_cast<Verdict::Kind>(word.at("kind").get<int>()),
                  .culprits = word.at("culprits"),
                  .sentence = printable(word.at("sentence").get_ref<const std::string&>()),
                  .lasting_sentence = printable(word.value("lasting", word.at("sentence").get<std::string>()))},
      .idle = microseconds(word.at("idle").get<std::int64_t>()),
      .is_shown_elsewhere = options_.node != kNodeZero && word.at("shown").get<bool>(),
      .views = std::exchange(diagnosed_views_, {})};
  if (word.contains("waiter")) report.verdict.waiter = word.at("waiter").get<int>();
  if (options_.reports) options_.on_report(report);
}

// Returns the ranks of all nodes, sorted by rank.
std::vector<RankView> HangGathering::take_views() {
  std::vector<RankView> all;
  for (auto& [node, views] : std::exchange(views_, {})) {
    std::move(views.begin(), views.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return all;
}

void HangGathering::begin(milliseconds timeout) {
  if (gathers_) return;
  gathers_ = true;
  timeout_ = timeout;
  views_.clear();
  complete_.clear();
  ++number_;
  timer_.start_in(kGatheringTimeout, [this] { diagnose_all(); });
  for (int node = 0; node < options_.nodes; ++node) send(node, {{"hang", "look"}, {"number", number_}});
}

// Sends one message for each rank, as messages must be short.
void HangGathering::answer(int number) {
  const std::vector<RankView> views = options_.views();
  const std::uint64_t now = ddp::detail::page_clock();
  for (const RankView& view : views) {
    send(kNodeZero, {{"hang", "view"}, {"number", number}, {"view", json_within_limit(view, now)}});
  }
  send(kNodeZero, {{"hang", "seen"}, {"number", number}});
}

void HangGathering::take(int from, const json& word) {
  if (!gathers_ || word.at("number") != number_) return;
  if (word.at("hang") == "view") {
    if (auto view = view_from(word.at("view"), ddp::detail::page_clock())) views_[from].push_back(std::move(*view));
    return;
  }
  complete_.insert(from);
  if (static_cast<int>(complete_.size()) < options_.nodes) return;
  timer_.cancel();
  diagnose_all();
}

std::string HangGathering::absent_nodes() const {
  std::string text;
  for (int node = 0; node < options_.nodes; ++node) {
    if (!complete_.contains(node)) text += (text.empty() ? "node " : ", node ") + std::to_string(node);
  }
  return text.empty() ? text : "; " + text + " did not report its ranks";
}

void HangGathering::diagnose_all() {
  gathers_ = false;
  // The views are kept here, because another gathering may begin before this node has received the verdict.
  diagnosed_views_ = take_views();
  const std::uint64_t idle = idle_time(diagnosed_views_);
  const auto limit = static_cast<std::uint64_t>(std::chrono::duration_cast<microseconds>(timeout_).count());
  json word{{"hang", "verdict"}};
  if (static_cast<double>(idle) >= kMinIdleShare * static_cast<double>(limit)) {
    Verdict verdict = diagnose_hang(diagnosed_views_, ddp::detail::page_clock());
    verdict.culprits.resize(std::min(verdict.culprits.size(), kMaxCulprits));
    word.update({{"kind", static_cast<int>(verdict.kind)},
                 {"culprits", verdict.culprits},
                 {"shown", options_.reports},
                 {"sentence", verdict.sentence + absent_nodes()},
                 {"lasting", verdict.lasting_sentence + absent_nodes()},
                 {"idle", std::max(idle, limit)}});
    if (verdict.waiter) word["waiter"] = *verdict.waiter;
  }
  for (int node = 0; node < options_.nodes; ++node) send(node, word);
}

}  // namespace launcher
