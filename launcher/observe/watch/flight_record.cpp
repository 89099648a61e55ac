#include "launcher/observe/watch/flight_record.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <system_error>

#include "launcher/observe/watch/collective_text.h"

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;
using ddp::detail::GroupRecord;
using nlohmann::ordered_json;

// The version of the recorder's format; in this one collectives need not be paired by their ends.
constexpr const char* kVersion = "2.10";
// The analyser of LibTorch 2.11 accepts only this library name and xccl.
constexpr const char* kLibrary = "nccl:";
// The collectives that the analyser of every supported PyTorch knows by these names.
constexpr std::array<std::string_view, 7> kKnown = {"all_reduce", "broadcast", "reduce",    "all_gather",
                                                    "gather",     "scatter",   "all_to_all"};

// The job's first group is "0", as in PyTorch. A later group of the same name gets a number appended.
std::string name_of(const GroupRecord& group, const std::vector<GroupRecord>& before) {
  const auto same = std::count_if(before.begin(), before.end(), [&](const auto& each) { return each.is_same(group); });
  std::string name = group.path.empty() ? "0" : group.path + std::to_string(group.leader);
  if (same > 0) name += "#" + std::to_string(same);
  return name;
}

std::vector<std::string> group_names(const ddp::detail::ProgressSnapshot& progress) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < progress.groups.size(); ++i) {
    names.push_back(name_of(progress.groups[i],
                            {progress.groups.begin(), progress.groups.begin() + static_cast<std::ptrdiff_t>(i)}));
  }
  return names;
}

std::string description_of(const GroupRecord& group) {
  return group.path.empty() ? "default_pg" : group.path.substr(0, group.path.size() - 1);
}

// "[0, 1, 2]"
std::string members_of(const GroupRecord& group, const std::vector<RankView>& ranks) {
  std::vector<int> members;
  for (const RankView& rank : ranks) {
    if (!rank.progress) continue;
    const auto& groups = rank.progress->groups;
    if (std::any_of(groups.begin(), groups.end(), [&](const auto& each) { return each.is_same(group); })) {
      members.push_back(rank.rank);
    }
  }
  // The members of the job's group are known, including those of other nodes.
  if (group.path.empty()) {
    members.resize(static_cast<std::size_t>(std::clamp(group.size, 0, 1 << 20)));
    std::iota(members.begin(), members.end(), 0);
  }
  return ordered_json(members).dump();
}

// Names, sizes and dtypes in the form in which the analyser compares them.
struct Shapes {
  std::string operation{};
  std::vector<std::int64_t> input{};
  std::vector<std::int64_t> output{};
  std::string dtype{};
};

Shapes shapes_of(const CollectiveRecord& call, const GroupRecord& group) {
  const CollectiveParts parts = parse_signature(call.signature);
  Shapes shapes{.operation = parts.name, .input = parts.sizes, .output = parts.sizes, .dtype = parts.dtype};
  if (parts.name == "reduce_scatter") {
    if (!shapes.output.empty()) shapes.output.front() /= std::max(group.size, 1);
  } else if (std::find(kKnown.begin(), kKnown.end(), parts.name) == kKnown.end()) {
    // A collective that the analyser does not know is shown as a barrier, which all ranks enter, too.
    shapes.operation = "all_reduce_barrier";
  }
  if (parts.name == "all_gather") shapes.output.insert(shapes.output.begin(), group.size);
  if (shapes.dtype.empty()) {
    shapes.dtype = "Byte";
    shapes.input = shapes.output = {static_cast<std::int64_t>(parts.bytes.value_or(0))};
    if (parts.name == "all_gather") shapes.output = {shapes.input.front() * group.size};
  }
  return shapes;
}

// Returns a name such as "send 0->1", as PyTorch's recorder has it; the numbers are ranks of the group.
std::string message_name(const CollectiveRecord& call, const GroupRecord& group) {
  const auto message = message_of(call);
  if (!message || message->peer < 0) return parse_signature(call.signature).name;
  const std::string own = std::to_string(group.rank);
  const std::string peer = std::to_string(message->peer);
  return message->sends ? "send " + own + "->" + peer : "recv " + own + "<-" + peer;
}

ordered_json entry_of(const CollectiveRecord& call, const GroupRecord& group, const std::string& name,
                      std::int64_t clock_offset) {
  Shapes shapes = shapes_of(call, group);
  if (call.is_message) shapes.operation = message_name(call, group);
  const std::uint64_t number = call.number + 1;
  const auto time = [&](std::uint64_t microseconds) {
    return (static_cast<std::int64_t>(microseconds) + clock_offset) * 1000;
  };
  return {{"record_id", call.index},
          {"pg_id", call.group},
          {"process_group", {name, description_of(group)}},
          {"collective_seq_id", call.is_message ? 0 : number},
          {"p2p_seq_id", call.is_message ? number : 0},
          {"op_id", number},
          {"profiling_name", std::string(kLibrary) + shapes.operation},
          {"signature", call.signature},
          {"time_created_ns", time(call.begin)},
          {"time_discovered_started_ns", time(call.begin)},
          {"time_discovered_completed_ns", call.end ? ordered_json(time(*call.end)) : ordered_json(nullptr)},
          {"input_sizes", ordered_json::array({shapes.input})},
          {"input_dtypes", ordered_json::array({shapes.dtype})},
          {"output_sizes", ordered_json::array({shapes.output})},
          {"output_dtypes", ordered_json::array({shapes.dtype})},
          {"state", call.is_open() ? "started" : "completed"},
          {"retired", !call.is_open()},
          {"is_p2p", call.is_message},
          {"timeout_ms", 0},
          {"frames", ordered_json::array()}};
}

// An incomplete record is useless, so it is removed.
bool write_file(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code error;
  if (!out.good()) std::filesystem::remove(file, error);
  return out.good();
}

std::int64_t realtime_clock_offset() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count() -
         static_cast<std::int64_t>(ddp::detail::page_clock());
}

using nlohmann::ordered_json;

void append_number(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void append_text(std::string& out, const std::string& text) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) throw std::length_error("a text has 4 GiB or more");
  out += 'X';  // BINUNICODE
  append_number(out, text.size(), 4);
  out += text;
}

void append_integer(std::string& out, const ordered_json& value) {
  // LONG1 is little endian and signed; nine bytes can hold a large unsigned number, too.
  out += '\x8a';
  out += '\x09';
  const bool is_negative = value.is_number_integer() && !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
  append_number(
      out,
      value.is_number_unsigned() ? value.get<std::uint64_t>() : static_cast<std::uint64_t>(value.get<std::int64_t>()),
      8);
  out += is_negative ? '\xff' : '\x00';
}

void append(std::string& out, const ordered_json& value) {
  if (value.is_null()) {
    out += 'N';
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? '\x88' : '\x89';
  } else if (value.is_number_integer()) {
    append_integer(out, value);
  } else if (value.is_number_float()) {
    const auto bits = std::bit_cast<std::uint64_t>(value.get<double>());
    out += 'G';
    for (int i = 7; i >= 0; --i) out += static_cast<char>(bits >> (8 * i) & 0xff);
  } else if (value.is_string()) {
    append_text(out, value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    out += "](";
    for (const auto& item : value) append(out, item);
    out += 'e';
  } else {
    out += "}(";
    for (const auto& item : value.items()) {
      append_text(out, item.key());
      append(out, item.value());
    }
    out += 'u';
  }
}

// Returns Python's pickle, protocol 2, for programs that read no other format: dict, list, str, int, float, bool and
// None. Throws std::length_error for a text of 4 GiB.
std::string pickle_of(const ordered_json& value) {
  std::string out = "\x80\x02";
  append(out, value);
  return out + ".";
}

}  // namespace

ordered_json flight_record(const RankView& rank, const std::vector<RankView>& ranks, std::int64_t clock_offset) {
  ordered_json record{{"version", kVersion},
                      {"rank", rank.rank},
                      {"host_name", rank.host},
                      {"pg_config", ordered_json::object()},
                      {"pg_status", ordered_json::object()},
                      {"entries", ordered_json::array()}};
  if (!rank.progress) return record;
  const auto& groups = rank.progress->groups;
  const std::vector<std::string> names = group_names(*rank.progress);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    record["pg_config"][names[i]] = {
        {"name", names[i]}, {"desc", description_of(groups[i])}, {"ranks", members_of(groups[i], ranks)}};
  }
  for (const CollectiveRecord& call : rank.progress->collectives) {
    record["entries"].push_back(entry_of(call, groups[call.group], names[call.group], clock_offset));
  }
  return record;
}

bool write_flight_records(const std::vector<RankView>& ranks, const std::string& folder,
                          const std::function<std::string(const RankView& rank)>& json_file) {
  const std::filesystem::path records = std::filesystem::path(folder) / "flight_record";
  std::error_code error;
  std::filesystem::create_directories(records, error);
  const std::int64_t offset = realtime_clock_offset();
  bool is_written = !error;
  for (const RankView& rank : ranks) {
    if (!rank.progress) continue;
    const ordered_json record = flight_record(rank, ranks, offset);
    is_written = write_file(records / ("rank_" + std::to_string(rank.rank)), pickle_of(record)) && is_written;
    is_written =
        write_file(json_file(rank), record.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n") &&
        is_written;
  }
  return is_written;
}

}  // namespace launcher
