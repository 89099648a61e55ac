#include "ddprun/monitor/metrics_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <ddprun/monitor/metrics_file.h>

#include "base/block_file_size_signal.h"
#include "base/utf8.h"
#include "monitor/csv.h"
#include "monitor/errno_text.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

bool is_at_least(std::string_view text, int64_t number) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= number;
}

std::optional<size_t> first_csv_row(std::string_view content, const std::string& column, int64_t number) {
  size_t at = 0;
  const auto names = csv_row(content, at);
  const auto place = static_cast<size_t>(std::ranges::find(names, column) - names.begin());
  while (at < content.size()) {
    const size_t begin = at;
    const auto fields = csv_row(content, at);
    if (place < fields.size() && is_at_least(fields[place], number)) return begin;
  }
  return std::nullopt;
}

// For lines written by MetricsFile, in which a quote within a text is escaped by a backslash.
std::string_view json_number(std::string_view line, const std::string& column) {
  const std::string name = "\"" + column + "\": ";
  for (const std::string& before : {"{" + name, ", " + name}) {
    const size_t found = line.find(before);
    if (found == std::string_view::npos || (before[0] == '{' && found != 0)) continue;
    const std::string_view rest = line.substr(found + before.size());
    return rest.substr(0, rest.find_first_of(",}"));
  }
  return {};
}

/// Returns the position of the first row whose integer in `column` is at least `number`; nothing if all are smaller.
std::optional<size_t> first_row_from(std::string_view content, MetricsFormat format, const std::string& column,
                                     int64_t number) {
  if (format == MetricsFormat::kCsv) return first_csv_row(content, column, number);
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    if (is_at_least(json_number(content.substr(begin, end - begin), column), number)) return begin;
    begin = end + 1;
  }
  return std::nullopt;
}

constexpr std::streamsize kMaxHeaderLength = 1 << 16;

MetricsFormat format_of(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".csv") return MetricsFormat::kCsv;
  if (extension == ".jsonl") return MetricsFormat::kJsonLines;
  throw std::invalid_argument(path.string() + ": expected a metrics file that ends in .csv or .jsonl");
}

template <typename Number>
std::string shortest(Number value) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), error == std::errc() ? end : text.data()};
}

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char byte : detail::valid_utf8(text)) {
    if (byte == '"' || byte == '\\') {
      quoted += '\\';
      quoted += byte;
    } else if (static_cast<unsigned char>(byte) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(byte));
      quoted += escape.data();
    } else {
      quoted += byte;
    }
  }
  return quoted + "\"";
}

std::string text_of(const MetricValue& value, MetricsFormat format) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return shortest(*whole);
  if (const auto* number = std::get_if<double>(&value)) {
    return format == MetricsFormat::kJsonLines && !std::isfinite(*number) ? "null" : shortest(*number);
  }
  const auto& text = std::get<std::string>(value);
  return format == MetricsFormat::kJsonLines ? json_string(text) : csv_field(text);
}

// Opens and locks the file. Without a lock, the rows of two writers would be mixed, or the second writer would erase
// the rows of the first. If the file system does not support locks, the file is not locked. Throws on errors.
int open_alone(const fs::path& path, bool append) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw std::runtime_error(path.string() + ": cannot be opened: " + detail::errno_text());
  std::string error;
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    error = "is being written already, by this program or another one: every table needs its own file";
  } else if (!append && ::ftruncate(file, 0) != 0 && errno != EINVAL) {  // a pipe cannot be truncated
    error = "cannot be emptied: " + detail::errno_text();
  }
  if (error.empty()) return file;
  ::close(file);
  throw std::runtime_error(path.string() + ": " + error);
}

void check_names(const fs::path& path, const MetricRow& row) {
  if (row.empty()) throw std::invalid_argument(path.string() + ": a row has no metric in it");
  for (auto entry = row.begin(); entry != row.end(); ++entry) {
    const auto same = [&](const auto& other) { return other.first == entry->first; };
    if (std::any_of(row.begin(), entry, same)) {
      throw std::invalid_argument(path.string() + ": a row has the metric \"" + entry->first + "\" twice");
    }
  }
}

}  // namespace

MetricsFile::MetricsFile(fs::path path, const MetricsFileOptions& options) : path_(std::move(path)) {
  if (path_.empty()) return;
  format_ = format_of(path_);
  const int rank =
      require_rank("MetricsFile", options.rank, "write to " + path_.string() + " and erase each other's rows",
                   "MetricsFile(path, group)");
  if (rank != 0) return;
  std::error_code error;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  if (error) throw std::runtime_error(path_.parent_path().string() + ": cannot be created: " + error.message());
  file_ = open_alone(path_, options.append);
  if (!options.append) return;
  std::ifstream existing(path_, std::ios::binary);
  std::string header(kMaxHeaderLength, '\0');
  existing.read(header.data(), kMaxHeaderLength);
  header.resize(static_cast<size_t>(existing.gcount()));
  if (header.empty()) return;
  if (format_ == MetricsFormat::kCsv) columns_ = csv_first_row(header);
  // If a crash has left an incomplete row, the next row must begin on a new line.
  existing.clear();
  existing.seekg(-1, std::ios::end);
  if (existing.get() != '\n') write_bytes("\n");
}

MetricsFile::~MetricsFile() {
  if (file_ >= 0) ::close(file_);
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept
    : path_(std::move(other.path_)),
      format_(other.format_),
      columns_(std::move(other.columns_)),
      file_(std::exchange(other.file_, -1)) {}

MetricsFile& MetricsFile::operator=(MetricsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(format_, other.format_);
  std::swap(columns_, other.columns_);
  std::swap(file_, other.file_);
  return *this;
}

void MetricsFile::write(const MetricRow& row) {
  if (file_ < 0) return;
  check_names(path_, row);
  if (format_ == MetricsFormat::kCsv) {
    std::vector<std::string> columns = columns_;
    write_bytes(csv_row(row, columns));
    columns_ = std::move(columns);
    return;
  }
  std::string line = "{";
  for (const auto& [name, value] : row) {
    if (line.size() > 1) line += ", ";
    line += json_string(name) + ": " + text_of(value, format_);
  }
  write_bytes(line + "}\n");
}

void MetricsFile::drop_from(const std::string& column, int64_t number) {
  if (file_ < 0) return;
  std::ifstream existing(path_, std::ios::binary);
  std::ostringstream content;
  if (existing.peek() != std::ifstream::traits_type::eof()) content << existing.rdbuf();
  const auto end = first_row_from(content.view(), format_, column, number);
  if (end && ::ftruncate(file_, static_cast<off_t>(*end)) != 0) {
    throw std::runtime_error(path_.string() + ": rows of an earlier run cannot be removed: " + detail::errno_text());
  }
}

std::string MetricsFile::csv_row(const MetricRow& row, std::vector<std::string>& columns) const {
  std::string text;
  if (columns.empty()) {
    for (const auto& [name, value] : row) columns.push_back(name);
    for (const std::string& name : columns) text.append(&name == columns.data() ? "" : ",").append(csv_field(name));
    text += "\n";
  }
  for (const auto& [name, value] : row) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) continue;
    throw std::invalid_argument(path_.string() + ": the table has no column \"" + name +
                                "\"; the first row decides which there are");
  }
  for (const std::string& name : columns) {
    const auto entry = std::find_if(row.begin(), row.end(), [&](const auto& cell) { return cell.first == name; });
    if (&name != columns.data()) text += ",";
    if (entry != row.end()) text += text_of(entry->second, format_);
  }
  return text + "\n";
}

// Writes all bytes or none. Otherwise an incomplete row would be read as a row, and the next row would be appended to
// it.
void MetricsFile::write_bytes(std::string_view bytes) {
  const off_t begin = ::lseek(file_, 0, SEEK_END);  // -1 for a pipe, from which nothing can be removed
  const detail::BlockFileSizeSignal blocked;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const std::string error = path_.string() + ": cannot be written: " + detail::errno_text();
      if (begin >= 0) static_cast<void>(::ftruncate(file_, begin) == 0);
      throw std::runtime_error(error);
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace ddp
