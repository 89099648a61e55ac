#include "launcher/observe/watch/top_screen.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text_table.h"
#include "launcher/observe/watch/collective_text.h"
#include "launcher/observe/watch/status_document.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;
using Cells = std::vector<std::string>;
using Lines = std::vector<std::string>;

// If there is not enough room, columns without a value are left out first, then the last columns. The program's own
// values come before the collective.
constexpr std::array kFirstColumns = {"rank", "phase", "since", "step", "process", "steps/s", "own", "waits"};
constexpr std::array kLastColumns = {"collective", "memory", "GPU", "host"};
constexpr std::size_t kColumnGap = 2;
// A column that is cut off must have at least this width.
constexpr std::size_t kMinWidth = 10;
constexpr std::size_t kMaxRanksWidth = 18;

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(const std::string& text, std::size_t width) {
  std::size_t characters = 0;
  std::size_t end = 0;
  while (end < text.size() && ((text[end] & 0xC0) == 0x80 || characters++ < width)) ++end;
  return text.substr(0, end);
}

// Ranks that share a row.
struct RankRow {
  bool is_odd = false;  // true: it causes a hang or delays others, or has ended
  std::vector<int> ranks{};
  std::vector<Cells> cells{};  // the cells of each rank
};

std::set<int> named_ranks(const ordered_json& job) {
  std::set<int> ranks;
  if (const auto hang = job.find("hang"); hang != job.end() && hang->is_object())
    ranks = hang->at("ranks").get<std::set<int>>();
  for (const auto& delay : job.value("stragglers", ordered_json::array())) {
    if (delay.at("until").is_null()) ranks.insert(delay.at("rank").get<int>());
  }
  return ranks;
}

std::vector<RankRow> grouped(const ordered_json& job, const Cells& titles, const std::vector<Cells>& rows,
                             const std::string& filter) {
  const std::set<int> named = named_ranks(job);
  std::map<std::vector<std::string>, RankRow> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& rank = job.at("ranks").at(i);
    const int number = rank.at("rank");
    std::vector<std::string> key;
    bool is_shown = filter.empty();
    for (std::size_t column = 0; column < titles.size(); ++column) {
      const std::string& cell = rows[i][column];
      is_shown = is_shown || cell.find(filter) != std::string::npos;
      const std::string& title = titles[column];
      if (title == "phase" || title == "step" || title == "collective") key.push_back(cell);
      if (title == "process") key.push_back(cell.substr(0, cell.find(',')));
    }
    if (!is_shown) continue;
    const bool is_odd = named.contains(number) || !rank.at("runs").get<bool>();
    key.emplace_back(is_odd ? "odd" : "");
    RankRow& group = groups[key];
    group.is_odd = is_odd;
    group.ranks.push_back(number);
    group.cells.push_back(rows[i]);
  }
  std::vector<RankRow> sorted;
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  std::sort(sorted.begin(), sorted.end(), [](const RankRow& a, const RankRow& b) {
    return std::tuple(!a.is_odd, a.ranks.size(), a.ranks.front()) <
           std::tuple(!b.is_odd, b.ranks.size(), b.ranks.front());
  });
  return sorted;
}

// "0-62", without "ranks ".
std::string short_ranges(const std::vector<int>& ranks) {
  const std::string text = rank_ranges(ranks);
  const std::string numbers = text.substr(text.find(' ') + 1);
  return numbers.size() <= kMaxRanksWidth ? numbers : cut(numbers, kMaxRanksWidth - 3) + "...";
}

// True if a rank has a value in the column. The first row has the titles.
bool has_values(const std::vector<Cells>& rows, std::size_t column) {
  return std::any_of(rows.begin() + 1, rows.end(),
                     [&](const Cells& row) { return !row[column].empty() && row[column] != "?"; });
}

std::vector<std::size_t> columns_by_priority(const std::vector<Cells>& rows) {
  const Cells& titles = rows.front();
  std::vector<std::size_t> order;
  const auto add = [&](const char* title) {
    const auto found = std::find(titles.begin(), titles.end(), title);
    if (found != titles.end()) order.push_back(static_cast<std::size_t>(found - titles.begin()));
  };
  for (const char* title : kFirstColumns) add(title);
  std::vector<std::size_t> last;
  std::swap(order, last);
  for (const char* title : kLastColumns) add(title);
  std::swap(order, last);
  for (std::size_t i = 0; i < titles.size(); ++i) {
    const bool is_value =
        std::find(order.begin(), order.end(), i) == order.end() && std::find(last.begin(), last.end(), i) == last.end();
    if (is_value) order.push_back(i);
  }
  order.insert(order.end(), last.begin(), last.end());
  std::stable_partition(order.begin(), order.end(), [&](std::size_t column) { return has_values(rows, column); });
  return order;
}

// Returns as many columns as fit; one of them may be cut off.
Lines fitted(const std::vector<Cells>& rows, std::size_t columns) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::vector<std::size_t> shown;
  std::size_t room = columns;
  for (const std::size_t column : columns_by_priority(rows)) {
    const std::size_t gap = shown.empty() ? 0 : kColumnGap;
    if (room <= gap) break;
    const std::size_t left = room - gap;
    if (widths[column] > left && left < kMinWidth && !shown.empty()) continue;
    widths[column] = std::min(widths[column], left);
    room = left - widths[column];
    shown.push_back(column);
  }
  std::sort(shown.begin(), shown.end());
  Lines lines;
  for (const Cells& row : rows) {
    std::string line;
    for (const std::size_t column : shown) {
      if (column != shown.front()) line.append(kColumnGap, ' ');
      const std::string cell = cut(row[column], widths[column]);
      line += cell;
      line.append(widths[column] - width_of(cell), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

Lines lines_of(const std::string& text) {
  Lines lines;
  for (std::string_view left = text; !left.empty();) {
    lines.emplace_back(left.substr(0, left.find('\n')));
    left.remove_prefix(std::min(left.size(), lines.back().size() + 1));
  }
  return lines;
}

void add_wrapped(Lines& lines, const std::string& text, std::size_t columns) {
  for (std::string& line : lines_of(ddp::detail::wrapped_text(text, columns))) lines.push_back(std::move(line));
}

// Throws if `job` is not a job's document.
Lines job_lines(const ordered_json& job, const std::string& filter, std::size_t columns, std::size_t rows) {
  Lines lines{cut(status_title(job), columns)};
  for (const std::string& finding : finding_lines(job)) add_wrapped(lines, finding, columns);
  const std::vector<Cells> all = status_rows(job);
  const Cells& titles = all.front();
  const std::vector<RankRow> groups = grouped(job, titles, {all.begin() + 1, all.end()}, filter);
  std::size_t ranks = 0;
  for (const RankRow& group : groups) ranks += group.ranks.size();
  const bool folds = lines.size() + 1 + ranks > rows;
  std::vector<Cells> shown{titles};
  for (const RankRow& group : groups) {
    const std::size_t count = folds ? 1 : group.cells.size();
    for (std::size_t i = 0; i < count; ++i) {
      shown.push_back(group.cells[i]);
      if (folds) shown.back().front() = short_ranges(group.ranks);
    }
  }
  if (shown.size() == 1) {
    lines.push_back(cut(filter.empty() ? "no ranks" : "no rank has '" + filter + "'", columns));
    return lines;
  }
  for (std::string& line : fitted(shown, columns)) lines.push_back(std::move(line));
  return lines;
}

bool hangs(const ordered_json& job) {
  const auto hang = job.find("hang");
  return hang != job.end() && hang->is_object();
}

Lines body_of(std::vector<ordered_json> jobs, const Lines& problems, const TopState& state, std::size_t columns,
              std::size_t rows) {
  Lines lines;
  if (!state.stacks.empty()) {
    for (const std::string& line : state.stacks) lines.push_back(cut(line, columns));
    return lines;
  }
  for (const std::string& problem : problems) add_wrapped(lines, problem, columns);
  std::stable_partition(jobs.begin(), jobs.end(), hangs);
  for (const ordered_json& job : jobs) {
    const std::size_t room = std::max<std::size_t>(rows / jobs.size(), 4);
    try {
      for (std::string& line : job_lines(job, state.filter, columns, room)) lines.push_back(std::move(line));
    } catch (const ordered_json::exception&) {
      continue;  // the document of another user may be anything
    }
  }
  return lines;
}

}  // namespace

namespace {

void type_key(TopState& state, std::string_view key) {
  if (key == "\r" || key == "\n" || key == "\x1b") {
    state.is_typing = false;
    if (key == "\x1b") state.filter.clear();
  } else if (key == "\x7f" || key == "\b") {
    if (!state.filter.empty()) state.filter.pop_back();
  } else if (key == "\x03") {
    state.quits = true;
  } else if (key.size() == 1 && key.front() >= ' ') {
    state.filter += key;
  }
}

}  // namespace

void press_key(TopState& state, std::string_view key) {
  constexpr std::size_t kPage = 10;
  const auto back = [&](std::size_t lines) { state.first_line -= std::min(state.first_line, lines); };
  if (state.is_typing) return type_key(state, key);
  if (key == "q" || key == "\x03") state.quits = true;
  if (key == "/") {
    state.is_typing = true;
    state.filter.clear();
  }
  if (key == "\x1b") state.filter.clear();
  if (key == "\x1b[A") back(1);
  if (key == "\x1b[B") state.first_line += 1;
  if (key == "\x1b[5~") back(kPage);
  if (key == "\x1b[6~") state.first_line += kPage;
  if (key == "s") {
    state.wants_stacks = state.stacks.empty();
    state.stacks.clear();
    state.first_line = 0;
  }
}

Lines top_screen(const std::vector<ordered_json>& jobs, const Lines& problems, const TopState& state,
                 std::size_t columns, std::size_t rows) {
  if (columns == 0 || rows == 0) return {};
  const std::size_t room = rows - 1;
  Lines body = body_of(jobs, problems, state, columns, room);
  const std::size_t all = body.size();
  const std::size_t first = std::min(state.first_line, all > room ? all - room : 0);
  Lines screen(body.begin() + static_cast<std::ptrdiff_t>(first),
               body.begin() + static_cast<std::ptrdiff_t>(std::min(all, first + room)));
  std::string foot;
  if (state.is_typing) {
    foot = "/" + state.filter;
  } else {
    if (all > room)
      foot = std::to_string(first + 1) + "-" + std::to_string(first + screen.size()) + " of " + std::to_string(all) +
             " lines  ";
    if (!state.filter.empty()) foot += "/" + state.filter + "  ";
    foot += std::string("q quit  s ") + (state.stacks.empty() ? "stacks" : "ranks") + "  / filter  arrows";
  }
  screen.push_back(cut(foot, columns));
  return screen;
}

}  // namespace launcher
