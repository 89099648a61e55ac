#include "base/schedulers/slurm_step.h"

#include <charconv>
#include <cstddef>
#include <stdexcept>

namespace ddp::detail {
namespace {

constexpr std::size_t kMaxHostCount = 1 << 16;
constexpr std::size_t kMaxHostNameLength = 255;
constexpr std::size_t kMaxDigits = 9;

class HostListError : public std::invalid_argument {
 public:
  HostListError(std::string_view list, const std::string& why)
      : std::invalid_argument("'" + std::string(list.substr(0, 200)) + "' is not a list of hosts: " + why) {}
};

std::optional<unsigned> parse_digits(std::string_view text) {
  unsigned value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

// Pads the number with zeros to the width of the first number of its range.
std::string padded(unsigned number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

// Expands "01-03,7" to "01", "02", "03", "7".
std::vector<std::string> expand_numbers(std::string_view list, std::string_view group) {
  std::vector<std::string> numbers;
  for (std::string_view left = group;;) {
    const std::size_t comma = left.find(',');
    const std::string_view range = left.substr(0, comma);
    const std::size_t dash = range.find('-');
    const auto first = parse_digits(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_digits(range.substr(dash + 1));
    if (!first || !last || *last < *first) {
      throw HostListError(list, "'" + std::string(range) + "' is neither a number nor a range");
    }
    if (*last - *first >= kMaxHostCount - numbers.size()) throw HostListError(list, "it has too many hosts");
    const std::size_t width = dash == std::string_view::npos ? range.size() : dash;
    for (unsigned number = *first; number <= *last; ++number) numbers.push_back(padded(number, width));
    if (comma == std::string_view::npos) return numbers;
    left.remove_prefix(comma + 1);
  }
}

void append_to_each(std::vector<std::string>& names, const std::vector<std::string>& endings, std::string_view list) {
  if (names.size() * endings.size() > kMaxHostCount) throw HostListError(list, "it has too many hosts");
  std::vector<std::string> longer;
  longer.reserve(names.size() * endings.size());
  for (const std::string& name : names) {
    for (const std::string& ending : endings) {
      if (name.size() + ending.size() > kMaxHostNameLength) throw HostListError(list, "a name is too long");
      longer.push_back(name + ending);
    }
  }
  names = std::move(longer);
}

// Expands one entry of the list: "r[0-1]n[1-2]" becomes r0n1, r0n2, r1n1, r1n2.
std::vector<std::string> expand_entry(std::string_view list, std::string_view entry) {
  std::vector<std::string> names{""};
  while (!entry.empty()) {
    const std::size_t open = entry.find('[');
    append_to_each(names, {std::string(entry.substr(0, open))}, list);
    if (open == std::string_view::npos) break;
    const std::size_t close = entry.find(']', open);
    append_to_each(names, expand_numbers(list, entry.substr(open + 1, close - open - 1)), list);
    entry.remove_prefix(close + 1);
  }
  return names;
}

// The position of the first comma outside brackets, or the end of the list.
std::size_t end_of_entry(std::string_view list, std::string_view left) {
  bool is_inside = false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == (is_inside ? '[' : ']')) throw HostListError(list, "its brackets do not match");
    if (left[i] == '[' || left[i] == ']') is_inside = !is_inside;
    if (left[i] == ',' && !is_inside) return i;
  }
  if (is_inside) throw HostListError(list, "its brackets do not match");
  return left.size();
}

// Step numbers from here on do not belong to srun, but to the batch script, the shell of salloc, and so on.
constexpr std::uint64_t kFirstSpecialStep = 0xfffffff0;
constexpr std::uint64_t kMaxNodeCount = 1 << 16;

std::string require(const VariableLookup& lookup, const std::string& name) {
  const auto text = lookup(name);
  if (!text || text->empty()) {
    throw std::invalid_argument(name + " is not set although SLURM_STEP_ID is: pass all of srun's variables on");
  }
  return *text;
}

std::uint64_t number(const VariableLookup& lookup, const std::string& name, std::uint64_t lowest,
                     std::uint64_t highest) {
  const std::string text = require(lookup, name);
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < lowest || value > highest) {
    throw std::invalid_argument(name + "='" + text + "': expected a whole number from " + std::to_string(lowest) +
                                " to " + std::to_string(highest));
  }
  return value;
}

template <typename Read>
auto naming(const std::string& variable, const Read& read) {
  try {
    return read();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(variable + ": " + error.what());
  }
}

}  // namespace

std::vector<std::string> expand_slurm_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (std::string_view left = list;;) {
    const std::size_t end = end_of_entry(list, left);
    if (end == 0) throw HostListError(list, "a name is empty");
    for (std::string& host : expand_entry(list, left.substr(0, end))) hosts.push_back(std::move(host));
    if (hosts.size() > kMaxHostCount) throw HostListError(list, "it has too many hosts");
    if (end == left.size()) return hosts;
    left.remove_prefix(end + 1);
  }
}

int slurm_tasks_on(std::string_view list, int node) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("'" + std::string(list.substr(0, 200)) + "' does not say how many tasks are on node " +
                                std::to_string(node) + ": " + why);
  };
  unsigned nodes = 0;
  for (std::string_view left = list;;) {
    const std::size_t comma = left.find(',');
    std::string_view entry = left.substr(0, comma);
    const std::size_t times = entry.find("(x");
    unsigned count = 1;
    if (times != std::string_view::npos) {
      if (!entry.ends_with(')')) refuse("expected N or N(xNODES), with commas");
      count = parse_digits(entry.substr(times + 2, entry.size() - times - 3)).value_or(0);
    }
    const auto tasks = parse_digits(entry.substr(0, times));
    if (!tasks || count == 0) refuse("expected N or N(xNODES), with commas");
    nodes += count;
    if (static_cast<unsigned>(node) < nodes) return static_cast<int>(*tasks);
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  refuse("it has only " + std::to_string(nodes) + " nodes");
  return 0;
}

std::uint16_t port_of_job(std::uint64_t number) {
  return static_cast<std::uint16_t>(15000 + number % 10000);
}

std::uint16_t port_of_job(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: unlike std::hash it is the same in every build
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return port_of_job(hash ^ (hash >> 32));
}

std::optional<SlurmStep> slurm_step(const VariableLookup& lookup) {
  if (!lookup("SLURM_STEP_ID")) return std::nullopt;
  const std::uint64_t step_number = number(lookup, "SLURM_STEP_ID", 0, UINT32_MAX);
  if (step_number >= kFirstSpecialStep) return std::nullopt;
  const std::uint64_t job = number(lookup, "SLURM_JOB_ID", 0, UINT32_MAX);
  const std::uint64_t restarts =
      lookup("SLURM_RESTART_COUNT") ? number(lookup, "SLURM_RESTART_COUNT", 0, UINT32_MAX) : 0;

  SlurmStep step;
  step.nodes = static_cast<int>(number(lookup, "SLURM_STEP_NUM_NODES", 1, kMaxNodeCount));
  step.node = static_cast<int>(number(lookup, "SLURM_NODEID", 0, kMaxNodeCount));
  if (step.node >= step.nodes) {
    throw std::invalid_argument("SLURM_NODEID=" + std::to_string(step.node) + " but SLURM_STEP_NUM_NODES=" +
                                std::to_string(step.nodes) + ": expected 0 <= SLURM_NODEID < SLURM_STEP_NUM_NODES");
  }
  const std::string tasks = require(lookup, "SLURM_STEP_TASKS_PER_NODE");
  step.tasks_on_node = naming("SLURM_STEP_TASKS_PER_NODE", [&] { return slurm_tasks_on(tasks, step.node); });
  const std::string list = require(lookup, "SLURM_STEP_NODELIST");
  step.first_host = naming("SLURM_STEP_NODELIST", [&] { return expand_slurm_hosts(list).front(); });
  // Jobs that run at the same time often have adjacent numbers, and so do their steps. The port of the previous run may
  // still be in use.
  step.port = port_of_job(job + 97 * step_number + 389 * restarts);
  step.name = std::to_string(job) + "." + std::to_string(step_number);
  return step;
}

}  // namespace ddp::detail
