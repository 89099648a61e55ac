// Writes metrics to a table on disk, one row per call, for scripts and spreadsheets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/base/rank_info.h>
#include <ddprun/detail/base/rank_option.h>

namespace ddp {

/// What a field of a row may hold.
using MetricValue = std::variant<bool, int64_t, double, std::string>;

/// The names and values of one row, in the order of the columns.
using MetricRow = std::vector<std::pair<std::string, MetricValue>>;

/// The format of a file, chosen by its extension: .csv or .jsonl.
enum class MetricsFormat { kCsv, kJsonLines };

/// Settings of a MetricsFile, all optional.
struct MetricsFileOptions {
  std::optional<int> rank{};  ///< this process's rank; ranks other than 0 write nothing
  bool append = false;        ///< true: keep existing rows, for a resumed run; false: the file starts empty
};

/// A file of rows: `.csv` (RFC 4180, the first row's names as header) or `.jsonl` (one JSON object a line). A row is in
/// the file when write() returns, so it is not lost if the process ends, even by SIGKILL. Numbers are written so that
/// reading them gives the same bits. NaN and infinity are written as nan and inf in CSV, and as null in JSON. Not safe
/// for concurrent calls. With an empty path (the user wants no file), write() does nothing.
///
///     ddp::MetricsFile metrics("runs/metrics.csv", group);
///     metrics.write({{"epoch", epoch}, {"loss", loss}, {"accuracy", accuracy}});
class MetricsFile {
 public:
  /// Creates the folder and the file. For one process, or with `.rank`. Throws std::invalid_argument in a job of
  /// several ranks without `.rank`, and for any other extension; std::runtime_error, naming the path, if the file
  /// cannot be opened.
  explicit MetricsFile(std::filesystem::path path, const MetricsFileOptions& options = {});

  /// The same for a rank of a ProcessGroup, GroupHandle or any other type with rank() and size(). Ranks other than 0
  /// write nothing.
  template <RankedGroup Group>
  MetricsFile(std::filesystem::path path, const Group& group, const MetricsFileOptions& options = {})
      : MetricsFile(std::move(path), with_rank("MetricsFile", options, group)) {}

  ~MetricsFile();
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;

  /// Adds a row. In CSV, columns that the row does not have stay empty. Throws std::invalid_argument, and writes
  /// nothing, for a repeated name and for a name that is not in the CSV header. Throws std::runtime_error if writing
  /// fails; the table is then unchanged.
  void write(const MetricRow& row);

  /// For a resumed run: removes the first row whose integer in `column` is at least `number`, and all rows after it. A
  /// run that was killed after its last checkpoint has written such rows, and the resumed run writes them again. Throws
  /// std::runtime_error if the file cannot be read or truncated.
  void drop_from(const std::string& column, int64_t number);

 private:
  void write_bytes(std::string_view bytes);
  std::string csv_row(const MetricRow& row, std::vector<std::string>& columns) const;

  std::filesystem::path path_;
  MetricsFormat format_ = MetricsFormat::kCsv;
  std::vector<std::string> columns_;  // the columns of a CSV file, after the header is written
  int file_ = -1;
};

}  // namespace ddp
