// Event files taken apart again.
#pragma once

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "monitor/wire/protobuf.h"
#include "monitor/wire/record.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::test {

/// Every payload of a file of records.
inline std::vector<std::string> records_of(const std::filesystem::path& file) {
  std::vector<std::string> records;
  wire::RecordReader reader(file);
  while (auto record = reader.next()) records.push_back(std::move(*record));
  return records;
}

/// The event files directly in a folder, in the order of their names.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The last field with this number, anywhere down the path of nested messages; fails the test when there is none.
inline wire::Field field_at(const std::string_view message, const std::vector<uint32_t>& path) {
  wire::Field found;
  std::string_view bytes = message;
  for (const uint32_t number : path) {
    wire::MessageReader reader(bytes);
    bool is_there = false;
    while (const auto field = reader.next()) {
      if (field->number != number) continue;
      found = *field;
      is_there = true;
    }
    if (!is_there) throw std::runtime_error("no field " + std::to_string(number));
    bytes = found.bytes;
  }
  return found;
}

/// A point of a curve, as an event file has it.
struct Scalar {
  std::string tag;
  int64_t step;
  float value;
  bool operator==(const Scalar&) const = default;
};

/// Every point in a folder's event files, in the order of the files and in theirs.
inline std::vector<Scalar> scalars_in(const std::filesystem::path& folder) {
  std::vector<Scalar> scalars;
  for (const auto& file : event_files(folder)) {
    for (const std::string& record : records_of(file)) {
      try {
        scalars.push_back({.tag = std::string(field_at(record, {5, 1, 1}).bytes),
                           .step = static_cast<int64_t>(field_at(record, {2}).integer),
                           .value = field_at(record, {5, 1, 2}).as_float()});
      } catch (const std::runtime_error&) {  // another kind of event
      }
    }
  }
  return scalars;
}

}  // namespace ddp::test
