#include "launcher/observe/watch/hang_report.h"

#include <algorithm>
#include <cmath>

#include "base/text_table.h"
#include "launcher/observe/watch/collective_text.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::size_t kMaxRows = 64;
using Row = std::vector<std::string>;

std::string collective_of(const RankView& rank) {
  if (!rank.progress) return "unknown: it reports nothing";
  const auto& calls = rank.progress->collectives;
  if (calls.empty()) return "none yet";
  const auto open = std::find_if(calls.begin(), calls.end(), [](const auto& call) { return call.is_open(); });
  const auto& call = open != calls.end() ? *open : calls.back();
  return (call.is_open() ? "in " : "after ") + collective_text(call, rank.progress->groups[call.group]);
}

std::string process_of(const RankView& rank) {
  if (!rank.runs()) return rank.ended;
  if (!rank.process) return "gone";
  std::string text = to_text(*rank.process);
  const long percent = std::lround(rank.cpu_share * 100);
  if (percent > 0) text += ", " + std::to_string(percent) + " % CPU";
  return text;
}

Row row_of(const RankView& rank, std::uint64_t now) {
  Row row{std::to_string(rank.rank), rank.host,       "?", duration_text(rank.unchanged_us), "?",
          collective_of(rank),       process_of(rank)};
  if (!rank.runs()) row[3] = "";
  if (!rank.progress) return row;
  const std::uint64_t since = rank.progress->phase_since;
  row[2] = printable(rank.progress->phase_name);
  if (rank.runs()) row[3] = duration_text(now > since ? now - since : 0);
  row[4] = std::to_string(rank.progress->step);
  return row;
}

}  // namespace

std::string rank_table(const std::vector<RankView>& ranks, std::uint64_t now, std::size_t columns) {
  std::vector<Row> rows{{"rank", "host", "phase", "since", "step", "collective", "process"}};
  for (std::size_t i = 0; i < std::min(ranks.size(), kMaxRows); ++i) rows.push_back(row_of(ranks[i], now));
  std::string text = ddp::detail::text_table(rows, columns);
  if (ranks.size() > kMaxRows) text += "  and " + std::to_string(ranks.size() - kMaxRows) + " more\n";
  return text;
}

std::string to_text(const HangReport& report, const std::vector<RankStack>& stacks, std::uint64_t now,
                    std::size_t columns) {
  std::string text =
      "ddprun: no rank has made progress for " + duration_text(static_cast<std::uint64_t>(report.idle.count()));
  text += report.is_shown_elsewhere ? "; node 0 shows where each of them is\n"
                                    : ":\n" + rank_table(report.views, now, columns);
  text += "ddprun: " + printable(report.verdict.sentence) + "\n";
  for (const RankStack& stack : stacks) {
    text += "  stack of rank " + std::to_string(stack.rank) + ":";
    text += stack.text.find('\n') == std::string::npos ? " " + stack.text + "\n" : "\n" + stack.text;
  }
  return text;
}

}  // namespace launcher
