#include "checkpoint/pt/zip_directory.h"

#include <algorithm>
#include <optional>
#include <string>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/zip_records.h"

namespace ddp::pt::zip {
namespace {

using safetensors::quote_name;

constexpr uint16_t kVersionWith64 = 45;
constexpr uint16_t kMadeByTorch = 0x031e;

// A comment must be printable text: bytes between record and end that come from damage are not accepted as one.
bool is_comment(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\r' || c == '\n';
  });
}

// The bytes from `position` in the file on.
std::string_view from(const Tail& tail, uint64_t position) {
  if (position < tail.begin || position - tail.begin > tail.bytes.size()) {
    throw FormatError("the zip file's end is damaged");
  }
  return tail.bytes.substr(position - tail.begin);
}

// The last end record whose comment reaches exactly to the file's end; its position in the file.
uint64_t find_end_record(const Tail& tail) {
  const auto file = tail.bytes;
  if (file.size() < kEndBytes) throw FormatError("this is not a zip file, as torch.save writes since PyTorch 1.6");
  constexpr uint64_t kMaxComment = 0xffff;
  const uint64_t last = file.size() - kEndBytes;
  const auto first = last - std::min(last, kMaxComment);
  for (auto position = last + 1; position-- > first;) {
    Fields end(file.substr(position), "end");
    if (end.get<uint32_t>() != kEndSignature) continue;
    end.take(kEndBytes - sizeof(uint32_t) - sizeof(uint16_t));
    const auto comment = file.substr(position + kEndBytes);
    if (end.get<uint16_t>() == comment.size() && is_comment(comment)) return tail.begin + position;
  }
  throw FormatError("the zip file has no end where it should be: it was truncated, or other bytes follow it");
}

// Where the directory's lines are.
struct Place {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t position = 0;
  bool is_torch_end = true;
};

Place read_large_end(const Tail& tail, uint64_t small_end) {
  Fields locator(from(tail, small_end - kLocator64Bytes).substr(0, kLocator64Bytes), "zip64 locator");
  const auto end64 = small_end - kLocator64Bytes - kEnd64Bytes;
  locator.expect(kLocator64Signature);
  locator.expect<uint32_t>(0);
  locator.expect<uint64_t>(end64);
  locator.expect<uint32_t>(1);
  Fields record(from(tail, end64).substr(0, kEnd64Bytes), "zip64 end");
  record.expect(kEnd64Signature);
  record.expect<uint64_t>(kEnd64Bytes - 12);
  const auto made_by = record.get<uint16_t>();
  const auto version = record.get<uint16_t>();
  record.expect<uint64_t>(0);
  Place large;
  large.is_torch_end = (made_by == kMadeByTorch || made_by == kVersionWith64) && version == kVersionWith64;
  large.entries = record.get<uint64_t>();
  record.expect<uint64_t>(large.entries);
  large.size = record.get<uint64_t>();
  large.position = record.get<uint64_t>();
  if (large.size > end64 || large.position != end64 - large.size) record.fail();
  return large;
}

Place read_end(const Tail& tail) {
  const auto small_end = find_end_record(tail);
  Fields end(from(tail, small_end), "end");
  end.expect(kEndSignature);
  end.expect<uint32_t>(0);  // one disk
  const auto entries = end.get<uint16_t>();
  end.expect<uint16_t>(entries);
  const auto size = end.get<uint32_t>();
  const auto position = end.get<uint32_t>();
  if (small_end < kLocator64Bytes + kEnd64Bytes ||
      Fields(from(tail, small_end - kLocator64Bytes), "end").get<uint32_t>() != kLocator64Signature) {
    if (uint64_t{position} + size != small_end) end.fail();
    return {.entries = entries, .size = size, .position = position};
  }
  const auto large = read_large_end(tail, small_end);
  // The small record repeats each value that fits into it.
  const auto repeats = [](uint64_t small, uint64_t value, uint64_t most) { return small == std::min(value, most); };
  if (!repeats(entries, large.entries, 0xffff) || !repeats(size, large.size, kValueInZip64) ||
      !repeats(position, large.position, kValueInZip64)) {
    end.fail();
  }
  return large;
}

// Reads the zip64 field, which has the values that do not fit into a line. Returns whether the extra data is only that
// field.
bool read_extra(std::string_view extra, DirectoryEntry& entry) {
  auto& header = entry.header;
  std::vector<uint64_t*> needed;
  for (auto* value : {&header.size, &header.stored, &entry.position}) {
    if (*value == kValueInZip64) needed.push_back(value);
  }
  bool is_bare = true;
  std::optional<std::string_view> large;
  Fields fields(extra, "directory");
  while (!fields.is_empty()) {
    const auto kind = fields.get<uint16_t>();
    const auto content = fields.take(fields.get<uint16_t>());
    if (kind != kZip64Extra) {
      is_bare = false;
    } else if (large) {
      fields.fail();
    } else {
      large = content;
    }
  }
  if (!large) {
    if (!needed.empty()) fields.fail();
    return is_bare;
  }
  Fields values(*large, "directory");
  for (auto* value : needed) *value = values.get<uint64_t>();
  return is_bare && !needed.empty() && values.is_empty();
}

void check_packing(const DirectoryEntry& entry, const Fields& fields) {
  const auto& header = entry.header;
  // The most bytes that one byte of deflated data can expand to.
  constexpr uint64_t kMaxExpansion = 1032;
  if (header.method == kStored) {
    if (header.size != header.stored) fields.fail();
  } else if (header.method == kDeflated) {
    if (header.size / kMaxExpansion > header.stored) fields.fail();
  } else {
    throw FormatError("the zip file has an entry " + quote_name(entry.name) +
                      " that is compressed in a way that torch.load does not read either");
  }
}

DirectoryEntry read_line(Fields& lines) {
  DirectoryEntry entry;
  lines.expect(kCentralSignature);
  entry.made_by = lines.get<uint16_t>();
  entry.header = read_entry_header(lines);
  const auto name_bytes = lines.get<uint16_t>();
  const auto extra_bytes = lines.get<uint16_t>();
  const auto comment_bytes = lines.get<uint16_t>();
  lines.expect<uint16_t>(0);  // first disk
  const auto marks = lines.get<uint16_t>();
  entry.attributes = lines.get<uint32_t>();
  entry.position = lines.get<uint32_t>();
  entry.name = lines.take(name_bytes);
  const bool has_bare_extra = read_extra(lines.take(extra_bytes), entry);
  lines.take(comment_bytes);
  entry.is_bare = has_bare_extra && comment_bytes == 0 && marks == 0;
  check_packing(entry, lines);
  return entry;
}

}  // namespace

EntryHeader read_entry_header(Fields& fields) {
  EntryHeader header;
  header.version = fields.get<uint16_t>();
  header.flags = fields.get<uint16_t>();
  if ((header.flags & ~(kFlagDescriptor | kFlagUtf8 | kFlagsDeflate)) != 0) {
    throw FormatError("the zip file has an entry that is encrypted or uses other features than torch.load knows");
  }
  header.method = fields.get<uint16_t>();
  header.time = fields.get<uint32_t>();
  header.crc32 = fields.get<uint32_t>();
  header.stored = fields.get<uint32_t>();
  header.size = fields.get<uint32_t>();
  return header;
}

uint64_t directory_position(const Tail& tail) {
  return read_end(tail).position;
}

Directory read_directory(std::string_view file) {
  if (!file.starts_with("PK\3\4")) {
    throw FormatError("this is not a zip file, as torch.save writes since PyTorch 1.6");
  }
  return read_directory(Tail{.bytes = file});
}

Directory read_directory(const Tail& tail) {
  const auto place = read_end(tail);
  if (place.entries > place.size / kCentralBytes) throw FormatError("the zip file's directory is truncated");
  Directory directory;
  directory.position = place.position;
  directory.is_torch_end = place.is_torch_end;
  Fields lines(from(tail, place.position).substr(0, place.size), "directory");
  directory.entries.reserve(place.entries);
  for (uint64_t i = 0; i < place.entries; ++i) directory.entries.push_back(read_line(lines));
  if (!lines.is_empty()) lines.fail();
  return directory;
}

}  // namespace ddp::pt::zip
