#include "checkpoint/pt/zip_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/zip_records.h"
#include "checkpoint/safetensors_header.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;

// Reads little-endian fields from `bytes`, whose end is checked.
class Fields {
 public:
  Fields(std::string_view bytes, const char* what) : bytes_(bytes), what_(what) {}

  template <typename Integer>
  Integer get() {
    Integer value{};
    const auto piece = take(sizeof(Integer));
    std::memcpy(&value, piece.data(), sizeof(Integer));
    return value;
  }

  template <typename Integer>
  void expect(Integer value) {
    if (get<Integer>() != value) fail();
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) fail();
    const auto piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

  bool is_empty() const { return bytes_.empty(); }

  [[noreturn]] void fail() const { throw FormatError(std::string("the zip file's ") + what_ + " is damaged"); }

 private:
  std::string_view bytes_;
  const char* what_;
};

// Where the directory is, from the end of the file.
struct Directory {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t position = 0;
};

Directory read_end(std::string_view file) {
  constexpr const char* kNoZip = "this is no zip file, as torch.save writes it since PyTorch 1.6";
  if (file.size() < zip::kEndBytes || !file.starts_with("PK\3\4")) throw FormatError(kNoZip);
  Fields end(file.substr(file.size() - zip::kEndBytes), "end");
  if (end.get<uint32_t>() != zip::kEndSignature) {
    throw FormatError("the zip file has no end where it should be: it was cut short or has something appended");
  }
  end.expect<uint32_t>(0);  // one disk
  const auto entries = end.get<uint16_t>();
  end.expect<uint16_t>(entries);
  const auto size = end.get<uint32_t>();
  const auto position = end.get<uint32_t>();
  end.expect<uint16_t>(0);  // no comment
  const auto small_end = file.size() - zip::kEndBytes;
  Directory directory{entries, size, position};
  if (small_end < zip::kLocator64Bytes + zip::kEnd64Bytes ||
      Fields(file.substr(small_end - zip::kLocator64Bytes), "end").get<uint32_t>() != zip::kLocator64Signature) {
    if (directory.position + directory.size != small_end) end.fail();
    return directory;
  }

  Fields locator(file.substr(small_end - zip::kLocator64Bytes, zip::kLocator64Bytes), "zip64 locator");
  const auto end64 = small_end - zip::kLocator64Bytes - zip::kEnd64Bytes;
  locator.expect(zip::kLocator64Signature);
  locator.expect<uint32_t>(0);
  locator.expect<uint64_t>(end64);
  locator.expect<uint32_t>(1);
  Fields record(file.substr(end64, zip::kEnd64Bytes), "zip64 end");
  record.expect(zip::kEnd64Signature);
  record.expect<uint64_t>(zip::kEnd64Bytes - 12);
  const auto made_by = record.get<uint16_t>();
  if (made_by != 0x031e && made_by != 45) record.fail();  // PyTorch's and Python's
  record.expect<uint16_t>(45);
  record.expect<uint64_t>(0);
  Directory large;
  large.entries = record.get<uint64_t>();
  record.expect<uint64_t>(large.entries);
  large.size = record.get<uint64_t>();
  large.position = record.get<uint64_t>();
  if (large.size > end64 || large.position != end64 - large.size) record.fail();
  // The small record repeats what fits into it.
  const auto repeats = [](uint64_t small, uint64_t value, uint64_t most) { return small == std::min(value, most); };
  if (!repeats(directory.entries, large.entries, 0xffff) || !repeats(directory.size, large.size, zip::kIn64) ||
      !repeats(directory.position, large.position, zip::kIn64)) {
    end.fail();
  }
  return large;
}

// What directory and local header of an entry both say.
struct EntryHeader {
  uint16_t version = 0;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t time = 0;
  uint32_t crc32 = 0;
  uint64_t stored = 0;
  uint64_t size = 0;
};

EntryHeader read_common(Fields& fields) {
  EntryHeader header;
  header.version = fields.get<uint16_t>();
  header.flags = fields.get<uint16_t>();
  if ((header.flags & ~(zip::kFlagDescriptor | zip::kFlagUtf8)) != 0) {
    throw FormatError("the zip file has an entry that is encrypted or uses other features than torch.save does");
  }
  header.method = fields.get<uint16_t>();
  header.time = fields.get<uint32_t>();
  header.crc32 = fields.get<uint32_t>();
  header.stored = fields.get<uint32_t>();
  header.size = fields.get<uint32_t>();
  return header;
}

struct DirectoryEntry {
  EntryHeader header;
  std::string_view name;
  uint64_t position = 0;
  uint16_t made_by = 0;
  uint32_t attributes = 0;
};

DirectoryEntry read_directory_entry(Fields& directory) {
  DirectoryEntry entry;
  directory.expect(zip::kCentralSignature);
  entry.made_by = directory.get<uint16_t>();
  entry.header = read_common(directory);
  const auto name_bytes = directory.get<uint16_t>();
  const auto extra_bytes = directory.get<uint16_t>();
  directory.expect<uint16_t>(0);  // no comment
  directory.expect<uint16_t>(0);  // first disk
  directory.expect<uint16_t>(0);  // binary
  entry.attributes = directory.get<uint32_t>();
  entry.position = directory.get<uint32_t>();
  entry.name = directory.take(name_bytes);
  const auto extra = directory.take(extra_bytes);
  auto& header = entry.header;
  const bool needs_extra = header.size == zip::kIn64 || header.stored == zip::kIn64 || entry.position == zip::kIn64;
  if (needs_extra != !extra.empty()) directory.fail();
  if (needs_extra) {
    Fields large(extra, "directory");
    large.expect(zip::kZip64Extra);
    large.expect(static_cast<uint16_t>(extra.size() - 4));
    for (auto* value : {&header.size, &header.stored, &entry.position}) {
      if (*value == zip::kIn64) *value = large.get<uint64_t>();
    }
    if (!large.is_empty()) large.fail();
  }
  // LibTorch compresses the source code in its archives, which nothing here reads.
  const bool is_code = entry.name.find("/code/") != std::string_view::npos;
  if (header.method != 0 && !(is_code && header.method == zip::kDeflated)) {
    throw FormatError("the zip file has a compressed entry, " + quote_name(entry.name) + "; torch.save writes none");
  }
  if (header.method == 0 && header.size != header.stored) directory.fail();
  return entry;
}

// Local extra fields: zip64 sizes and padding. Returns whether zip64 was there.
bool check_local_extra(std::string_view extra, const EntryHeader& header) {
  bool is_large = false;
  Fields fields(extra, "entry header");
  while (!fields.is_empty()) {
    const auto kind = fields.get<uint16_t>();
    auto content = fields.take(fields.get<uint16_t>());
    if (kind == zip::kPaddingExtra) {
      const auto is_padding = [](char c) { return c == zip::kPaddingByte; };
      if (!fields.is_empty() || !std::all_of(content.begin(), content.end(), is_padding)) fields.fail();
    } else if (kind == zip::kZip64Extra && !is_large) {
      is_large = true;
      Fields sizes(content, "entry header");
      while (!sizes.is_empty()) {
        const auto value = sizes.get<uint64_t>();
        if (value != 0 && value != header.size && value != header.stored) fields.fail();
      }
    } else {
      fields.fail();
    }
  }
  return is_large;
}

// Compares the entry at the front of `file` with its line in the directory; returns its data and the bytes it takes.
std::pair<std::string_view, uint64_t> read_entry(std::string_view file, const DirectoryEntry& entry) {
  const auto& expected = entry.header;
  Fields fields(file, "entry header");
  fields.expect(zip::kLocalSignature);
  const auto local = read_common(fields);
  const bool has_descriptor = (local.flags & zip::kFlagDescriptor) != 0;
  const auto name_bytes = fields.get<uint16_t>();
  const auto extra_bytes = fields.get<uint16_t>();
  if (fields.take(name_bytes) != entry.name || local.flags != expected.flags || local.time != expected.time ||
      local.version != expected.version || local.method != expected.method) {
    fields.fail();
  }
  const bool is_large = check_local_extra(fields.take(extra_bytes), expected);
  const auto fits = [&](uint64_t value, uint64_t wanted) {
    return value == wanted || (has_descriptor && value == 0) || (is_large && value == zip::kIn64);
  };
  if (!fits(local.size, expected.size) || !fits(local.stored, expected.stored) ||
      !(local.crc32 == expected.crc32 || (has_descriptor && local.crc32 == 0))) {
    fields.fail();
  }
  const auto data = fields.take(expected.stored);
  uint64_t bytes = zip::kLocalBytes + name_bytes + extra_bytes + expected.stored;
  if (has_descriptor) {
    fields.expect(zip::kDescriptorSignature);
    fields.expect(expected.crc32);
    for (const auto size : {expected.stored, expected.size}) {
      if (is_large) {
        fields.expect<uint64_t>(size);
      } else {
        fields.expect(static_cast<uint32_t>(size));
      }
    }
    bytes += is_large ? 24 : 16;
  }
  return {data, bytes};
}

}  // namespace

ZipReader::ZipReader(std::string_view file) {
  const auto directory = read_end(file);
  if (directory.entries > directory.size / zip::kCentralBytes)
    throw FormatError("the zip file's directory is cut short");
  Fields lines(file.substr(directory.position, directory.size), "directory");
  entries_.reserve(directory.entries);
  uint64_t position = 0;
  std::optional<DirectoryEntry> first;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const auto entry = read_directory_entry(lines);
    if (!first) first = entry;
    // Nothing checks these two fields, but every writer gives all entries the same.
    if (entry.made_by != first->made_by || entry.attributes != first->attributes) lines.fail();
    if (entry.position != position) {
      throw FormatError("the zip file's entry " + quote_name(entry.name) + " is not where the one before ends");
    }
    const auto [data, bytes] = read_entry(file.substr(position, directory.position - position), entry);
    position += bytes;
    entries_.push_back(
        {.name = entry.name, .data = data, .crc32 = entry.header.crc32, .is_compressed = entry.header.method != 0});
  }
  if (position != directory.position || !lines.is_empty()) lines.fail();
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(entries_.begin(), entries_.end(),
                                        [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != entries_.end()) throw FormatError("the zip file has two entries named " + quote_name(twice->name));
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const ZipEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

void ZipReader::verify() const {
  for (const auto& entry : entries_) {
    if (!entry.is_compressed && crc32(entry.data.data(), entry.data.size()) != entry.crc32) {
      throw FormatError("the bytes of " + quote_name(entry.name) + " are not those that were written (CRC-32)");
    }
  }
}

}  // namespace ddp::pt
