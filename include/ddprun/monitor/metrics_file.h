// Metrics as a table on disk, one row per call, for scripts and spreadsheets.
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

/// Names and values of one row, in the order of the columns.
using MetricRow = std::vector<std::pair<std::string, MetricValue>>;

/// The format of a file, chosen by its extension: .csv or .jsonl.
enum class MetricsFormat { kCsv, kJsonLines };

/// Settings of a MetricsFile, all optional.
struct MetricsFileOptions {
  std::optional<int> rank{};  ///< this process's rank; the others than rank 0 write nothing
  bool append = false;        ///< keep the rows that are there, for a resumed run; else the file starts empty
};

/// A file of rows: `.csv` (RFC 4180, the first row's names as header) or `.jsonl` (one JSON object a line). A row is in
/// the file when write() returns, and survives the end of the process, also by SIGKILL. Numbers are written so that
/// reading gives the same bits; NaN and infinity are nan and inf in CSV, null in JSON, which has neither. Not safe for
/// concurrent calls. Without a path, as where the user has asked for no file, write() does nothing.
///
///     ddp::MetricsFile metrics("runs/metrics.csv", group);
///     metrics.write({{"epoch", epoch}, {"loss", loss}, {"accuracy", accuracy}});
class MetricsFile {
 public:
  /// Creates the folder and the file. For one process, or with `.rank`: throws std::invalid_argument in a job of
  /// several ranks without, and for another extension; std::runtime_error, naming the path, when it cannot be opened.
  explicit MetricsFile(std::filesystem::path path, const MetricsFileOptions& options = {});

  /// On rank 0 of a ProcessGroup, GroupHandle or anything else with rank() and size() as above; the others write
  /// nothing.
  template <RankedGroup Group>
  MetricsFile(std::filesystem::path path, const Group& group, const MetricsFileOptions& options = {})
      : MetricsFile(std::move(path), with_rank("MetricsFile", options, group)) {}

  ~MetricsFile();
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;

  /// Adds a row. In CSV a column that the row lacks stays empty. Throws std::invalid_argument, with nothing written,
  /// for a name twice and for one that the CSV header lacks; std::runtime_error when writing fails, and the table is as
  /// it was.
  void write(const MetricRow& row);

  /// For a run that is resumed: removes the first row whose whole number in `column` is at least `number`, and all
  /// after it. A run that was killed after its last checkpoint has left them, and the resumed one writes them again.
  /// Throws std::runtime_error when the file cannot be read or cut.
  void drop_from(const std::string& column, int64_t number);

 private:
  void write_bytes(std::string_view bytes);
  std::string csv_row(const MetricRow& row, std::vector<std::string>& columns) const;

  std::filesystem::path path_;
  MetricsFormat format_ = MetricsFormat::kCsv;
  std::vector<std::string> columns_;  // of CSV, once the header is written
  int file_ = -1;
};

}  // namespace ddp
