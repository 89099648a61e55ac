#include "launcher/observe/watch/stack_report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/frame_origin.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxThreadsInReport = 6;
constexpr std::size_t kMaxPythonFrames = 32;

std::string lines_of(const RankStacks& rank, const ThreadStack& thread, const std::vector<StackFrame>& frames) {
  if (!thread.python.empty()) return python_lines(thread.python);
  const std::string& problem = rank.problem.empty() ? thread.problem : rank.problem;
  return frames.empty() ? "    " + printable(problem) + "\n" : relevant_lines(frames);
}

// True if the thread is in the program or its libraries. For a Python program: in the program itself.
bool is_relevant(const ThreadStack& thread, const std::vector<StackFrame>& frames) {
  return std::any_of(frames.begin(), frames.end(), [](const auto& each) { return !is_in_system_file(each); }) ||
         std::any_of(thread.python.begin(), thread.python.end(), [](const auto& each) { return !each.is_library(); });
}

// For a Python program, only its own functions count as the program's.
FrameOrigin origin_of(const ThreadStack& thread, const std::vector<StackFrame>& frames) {
  if (thread.python.empty()) return origin_of(frames);
  return is_relevant(thread, frames) ? FrameOrigin::kProgram : FrameOrigin::kSystem;
}

// "thread pt_worker"; "process 4711, python3".
std::string name_of(const ThreadStack& thread) {
  return thread.is_process ? "process " + std::to_string(thread.thread) + ", " + thread.name : "thread " + thread.name;
}

// Threads with the same stack.
struct StackGroup {
  bool is_main = false;
  bool is_process = false;
  FrameOrigin origin = FrameOrigin::kSystem;
  std::string name{};
  std::string lines{};
  std::vector<int> ranks{};
  std::set<std::string> states{};
};

std::string heading_of(const StackGroup& group) {
  std::string text = rank_ranges(group.ranks) + ", ";
  std::map<int, int> counts;
  for (const int rank : group.ranks) ++counts[rank];
  const int most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                     return a.second < b.second;
                   })->second;
  if (group.is_main) {
    text += "main thread";
  } else {
    text += (most == 1 ? (group.is_process ? "process " : "thread ")
                       : std::to_string(most) + (group.is_process ? " processes " : " threads ")) +
            group.name;
    if (most > 1 && counts.size() > 1) text += " each at most";
  }
  for (const std::string& state : group.states) text += ", " + state;
  return text + ":";
}

}  // namespace

std::string relevant_lines(const std::vector<StackFrame>& frames) {
  const auto first = std::find_if_not(frames.begin(), frames.end(), is_in_system_file);
  const auto last = std::find_if_not(frames.rbegin(), frames.rend(), is_in_system_file).base();
  const bool is_any = first != frames.end();
  std::string text;
  for (auto frame = frames.begin(); frame != frames.end(); ++frame) {
    if (is_any && frame != frames.begin() && (frame < first || frame >= last)) continue;
    text += "    #" + std::to_string(frame - frames.begin()) + " " + frame->text() + "\n";
  }
  return text;
}

std::string python_lines(const std::vector<PythonFrame>& frames) {
  std::string text;
  for (std::size_t i = 0; i < std::min(frames.size(), kMaxPythonFrames); ++i) {
    text += "    #" + std::to_string(i) + " " + printable(frames[i].text()) + "\n";
  }
  return text;
}

void resolve_frames(SymbolNames& names, const std::vector<RankStacks>& ranks) {
  std::vector<std::pair<int, std::vector<std::uint64_t>>> stacks;
  for (const RankStacks& rank : ranks) {
    for (const ThreadStack& thread : rank.threads) stacks.emplace_back(rank.pid, thread.frames);
  }
  names.resolve(stacks);
}

std::string stacks_text(const std::vector<RankStacks>& ranks, const NameFrames& name_frames) {
  std::map<std::tuple<bool, std::string, std::string>, StackGroup> groups;
  for (const RankStacks& rank : ranks) {
    for (const ThreadStack& thread : rank.threads) {
      const bool is_main = thread.thread == rank.pid;
      const auto frames = name_frames(rank.pid, thread.frames);
      const std::string lines = lines_of(rank, thread, frames);
      const std::string name = is_main ? "" : thread.name;
      StackGroup& group = groups[{is_main, name, lines}];
      group.is_main = is_main;
      group.is_process = thread.is_process;
      group.origin = origin_of(thread, frames);
      group.name = name;
      group.lines = lines;
      group.ranks.push_back(rank.rank);
      group.states.insert(thread.state);
    }
  }
  std::vector<StackGroup> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::stable_sort(sorted.begin(), sorted.end(), [](const StackGroup& a, const StackGroup& b) {
    return std::tuple(!a.is_main, a.origin, a.ranks.size()) < std::tuple(!b.is_main, b.origin, b.ranks.size());
  });
  std::string text;
  for (const StackGroup& group : sorted) text += heading_of(group) + "\n" + group.lines;
  const std::string ended = ended_ranks_text(ranks);
  return ended.empty() ? text : text + ended + "\n";
}

std::string ended_ranks_text(const std::vector<RankStacks>& ranks) {
  std::map<std::string, std::vector<int>> ended;  // by how they ended
  for (const RankStacks& rank : ranks) {
    if (!rank.ended.empty()) ended[rank.ended].push_back(rank.rank);
  }
  std::string text;
  for (const auto& [how, numbers] : ended) {
    text += (text.empty() ? "" : "; ") + rank_ranges(numbers) + (numbers.size() == 1 ? " has " : " have ") +
            printable(how.starts_with("ended") ? how : "ended (" + how + ")");
  }
  return text;
}

std::string report_text(const RankStacks& rank, const NameFrames& name_frames) {
  if (!rank.problem.empty() || rank.threads.empty())
    return rank.problem.empty() ? "no stack: its process is ending" : rank.problem;
  const ThreadStack& main = rank.threads.front();
  const auto main_frames = name_frames(rank.pid, main.frames);
  const bool is_known = !main_frames.empty() || !main.python.empty();
  std::string text = is_known ? lines_of(rank, main, main_frames) : main.problem;
  std::map<std::pair<FrameOrigin, std::string>, std::pair<int, const ThreadStack*>> others;
  for (const ThreadStack& thread : rank.threads) {
    if (&thread == &main) continue;
    const auto frames = name_frames(rank.pid, thread.frames);
    if (!is_relevant(thread, frames)) continue;
    auto& [count, one] = others[{origin_of(thread, frames), lines_of(rank, thread, frames)}];
    ++count;
    one = &thread;
  }
  if (others.empty()) return text;
  if (!text.ends_with('\n')) text = "    " + text + "\n";
  std::size_t shown = 0;
  for (const auto& [stack, threads] : others) {
    if (++shown > kMaxThreadsInReport) break;
    const auto& [count, one] = threads;
    text += "    " +
            (count == 1 ? name_of(*one)
                        : std::to_string(count) + (one->is_process ? " processes " : " threads ") + one->name) +
            ", " + one->state + ":\n" + stack.second;
  }
  if (others.size() > kMaxThreadsInReport) {
    text += "    and " + std::to_string(others.size() - kMaxThreadsInReport) + " more: ddprun stack\n";
  }
  return text;
}

namespace {

ordered_json json_of(const std::vector<PythonFrame>& frames) {
  ordered_json list = ordered_json::array();
  for (const PythonFrame& frame : frames) {
    list.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  }
  return list;
}

std::vector<PythonFrame> python_from(const nlohmann::json& list) {
  std::vector<PythonFrame> frames;
  for (const auto& each : list) {
    frames.push_back({.function = each.at("function"), .file = each.at("file"), .line = each.at("line")});
  }
  return frames;
}

}  // namespace

ordered_json json_of(const std::vector<RankStacks>& ranks) {
  ordered_json list = ordered_json::array();
  for (const RankStacks& rank : ranks) {
    ordered_json threads = ordered_json::array();
    for (const ThreadStack& thread : rank.threads) {
      threads.push_back({{"thread", thread.thread},
                         {"name", thread.name},
                         {"state", thread.state},
                         {"frames", thread.frames},
                         {"python", json_of(thread.python)},
                         {"is_process", thread.is_process},
                         {"problem", thread.problem}});
    }
    list.push_back({{"rank", rank.rank},
                    {"pid", rank.pid},
                    {"ended", rank.ended},
                    {"problem", rank.problem},
                    {"threads", threads}});
  }
  return list;
}

std::optional<std::vector<RankStacks>> stacks_from(const std::string& text) try {
  std::vector<RankStacks> ranks;
  for (const auto& object : nlohmann::json::parse(text)) {
    RankStacks rank{.rank = object.at("rank"),
                    .pid = object.at("pid"),
                    .ended = object.value("ended", ""),
                    .problem = object.at("problem")};
    for (const auto& each : object.at("threads")) {
      rank.threads.push_back({.thread = each.at("thread"),
                              .name = printable(each.at("name").get<std::string>()),
                              .state = printable(each.at("state").get<std::string>()),
                              .frames = each.at("frames"),
                              .python = python_from(each.at("python")),
                              .problem = each.at("problem"),
                              .is_process = each.at("is_process")});
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace launcher
