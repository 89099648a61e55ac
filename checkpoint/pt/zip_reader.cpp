#include "checkpoint/pt/zip_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/inflate.h"
#include "checkpoint/pt/zip_directory.h"
#include "checkpoint/pt/zip_records.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;
using zip::DirectoryEntry;
using zip::EntryHeader;
using zip::Fields;

// Extra fields that archivers write: times, owners, names in Unicode, alignment.
constexpr std::array<uint16_t, 8> kKnownExtras = {0x000a, 0x5455, 0x5855, 0x6375, 0x7075, 0x7855, 0x7875, 0xd935};

// What the extra fields of a local header contain.
struct LocalExtra {
  bool is_large = false;     // a zip64 field
  bool has_padding = false;  // padding, which only torch.save writes
  bool has_unknown = false;  // a field that no known archiver writes
};

// One entry, with what its local header said.
struct Located {
  const DirectoryEntry* line = nullptr;
  LocalExtra extra{};
  bool repeats_line = false;  // local header and directory agree where only torch.save makes them equal
  std::string_view data{};
};

// The sizes or, in files above 4 GiB, the header's own position. torch.save's miniz writes the position, and sizes of
// 0, since it does not know the sizes yet. Other programs write both sizes, or zeros when a descriptor follows.
bool is_zip64_content(std::string_view content, const DirectoryEntry& entry) {
  const auto& header = entry.header;
  Fields values(content, "entry header");
  if (content.size() == 8) return values.get<uint64_t>() == entry.position;
  if (content.size() != 16 && content.size() != 24) return false;
  const auto size = values.get<uint64_t>();
  const auto stored = values.get<uint64_t>();
  const bool is_size = size == header.size && (stored == header.stored || stored == 0);
  return (is_size || (size == 0 && stored == 0)) && (content.size() == 16 || values.get<uint64_t>() == entry.position);
}

LocalExtra read_local_extra(std::string_view bytes, const DirectoryEntry& entry) {
  LocalExtra extra;
  Fields fields(bytes, "entry header");
  while (!fields.is_empty()) {
    const auto kind = fields.get<uint16_t>();
    const auto content = fields.take(fields.get<uint16_t>());
    if (kind == zip::kPaddingExtra) {
      const auto is_padding = [](char c) { return c == zip::kPaddingByte; };
      if (!fields.is_empty() || !std::all_of(content.begin(), content.end(), is_padding)) fields.fail();
      extra.has_padding = true;
    } else if (kind == zip::kZip64Extra) {
      if (extra.is_large || !is_zip64_content(content, entry)) fields.fail();
      extra.is_large = true;
    } else if (std::find(kKnownExtras.begin(), kKnownExtras.end(), kind) == kKnownExtras.end()) {
      extra.has_unknown = true;
    }
  }
  return extra;
}

// A descriptor repeats checksum and sizes after the data. The writer chooses whether it has a signature and how wide
// the sizes are.
bool is_descriptor(std::string_view bytes, const EntryHeader& header, const LocalExtra& extra) {
  Fields fields(bytes, "entry");
  const bool has_signature = bytes.size() == 16 || bytes.size() == 24;
  const bool is_wide = bytes.size() == 20 || bytes.size() == 24;
  if (!has_signature && !is_wide && bytes.size() != 12) return false;
  if (extra.has_padding && (!has_signature || is_wide != extra.is_large)) return false;
  if (has_signature && fields.get<uint32_t>() != zip::kDescriptorSignature) return false;
  if (fields.get<uint32_t>() != header.crc32) return false;
  for (const auto size : {header.stored, header.size}) {
    if (is_wide ? fields.get<uint64_t>() != size : fields.get<uint32_t>() != size) return false;
  }
  return true;
}

// Whether an entry's own header agrees with its line in the directory. A value that the descriptor or the extra field
// has instead is 0 or a mark in the header. torch.save knows either all values beforehand or none.
bool has_right_sizes(const EntryHeader& local, const EntryHeader& expected, const LocalExtra& extra) {
  const bool has_descriptor = (local.flags & zip::kFlagDescriptor) != 0;
  const auto fits = [&](uint64_t value, uint64_t wanted) {
    return value == wanted || (has_descriptor && value == 0) || (extra.is_large && value == zip::kValueInZip64);
  };
  if (!fits(local.size, expected.size) || !fits(local.stored, expected.stored)) return false;
  if (local.crc32 != expected.crc32 && !(has_descriptor && local.crc32 == 0)) return false;
  if (!extra.has_padding || !has_descriptor) return true;
  const bool knows_nothing = local.size == 0 && local.stored == 0 && local.crc32 == 0;
  const bool knows_all = local.size != 0 && local.stored != 0 && local.crc32 == expected.crc32;
  return knows_nothing || knows_all;
}

// Compares the entry that takes up `bytes` with its line in the directory.
Located read_entry(std::string_view bytes, const DirectoryEntry& entry) {
  const auto& expected = entry.header;
  Fields fields(bytes, "entry header");
  fields.expect(zip::kLocalSignature);
  const auto local = zip::read_entry_header(fields);
  const bool has_descriptor = (local.flags & zip::kFlagDescriptor) != 0;
  const auto name_bytes = fields.get<uint16_t>();
  const auto extra_bytes = fields.get<uint16_t>();
  if (fields.take(name_bytes) != entry.name || local.method != expected.method || local.time != expected.time) {
    fields.fail();
  }
  Located located{.line = &entry, .extra = read_local_extra(fields.take(extra_bytes), entry)};
  located.repeats_line = local.flags == expected.flags && local.version == expected.version;
  if (!has_right_sizes(local, expected, located.extra)) fields.fail();
  located.data = fields.take(expected.stored);
  const auto rest = bytes.substr(zip::kLocalBytes + name_bytes + extra_bytes + expected.stored);
  if (has_descriptor ? !is_descriptor(rest, expected, located.extra) : !rest.empty()) {
    throw FormatError("the zip file has bytes after its entry " + quote_name(entry.name) + " that belong to no entry");
  }
  return located;
}

// torch.save writes some fields with equal values in all entries. Comparing them finds damage that no checksum covers.
void check_torch_entries(const zip::Directory& directory, const std::vector<Located>& entries) {
  const auto is_torch = [](const Located& entry) { return entry.extra.has_padding; };
  const auto first = std::find_if(entries.begin(), entries.end(), is_torch);
  if (first == entries.end()) return;
  const auto& model = *first->line;
  const bool is_in_order =
      std::is_sorted(directory.entries.begin(), directory.entries.end(),
                     [](const auto& left, const auto& right) { return left.position < right.position; });
  bool is_right = is_in_order && directory.is_torch_end;
  for (const auto& entry : entries) {
    const auto& line = *entry.line;
    const bool is_like_model = entry.repeats_line && line.is_bare && line.made_by == model.made_by &&
                               line.attributes == model.attributes && (line.header.flags & zip::kFlagsDeflate) == 0;
    is_right = is_right && !entry.extra.has_unknown && (is_like_model || !is_torch(entry));
  }
  if (!is_right) throw FormatError("the zip file's directory is damaged");
}

}  // namespace

ZipReader::ZipReader(std::string_view file) {
  const auto directory = zip::read_directory(file);
  std::vector<const DirectoryEntry*> lines;
  for (const auto& line : directory.entries) lines.push_back(&line);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto* left, const auto* right) { return left->position < right->position; });
  std::vector<Located> located;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto begin = lines[i]->position;
    const auto end = i + 1 < lines.size() ? lines[i + 1]->position : directory.position;
    if ((i == 0 && begin != 0) || begin > end || end > directory.position) {
      throw FormatError("the zip file's entry " + quote_name(lines[i]->name) + " is not where the one before ends");
    }
    located.push_back(read_entry(file.substr(begin, end - begin), *lines[i]));
  }
  if (lines.empty() && directory.position != 0) throw FormatError("the zip file's directory is damaged");
  check_torch_entries(directory, located);

  for (const auto& entry : located) {
    const auto& header = entry.line->header;
    entries_.push_back({.name = entry.line->name,
                        .data = entry.data,
                        .size = header.size,
                        .crc32 = header.crc32,
                        .is_deflated = header.method == zip::kDeflated});
  }
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
    uint32_t crc = 0;
    if (entry.is_deflated) {
      inflate(entry.data, entry.size, [&](std::string_view piece) { crc = crc32(piece.data(), piece.size(), crc); });
    } else if (entry.crc32 != 0) {
      crc = crc32(entry.data.data(), entry.data.size());
    }
    if (entry.crc32 != 0 && crc != entry.crc32) {
      throw FormatError("the bytes of " + quote_name(entry.name) + " are not those that were written (CRC-32)");
    }
  }
}

bool ZipReader::has_checksums() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return entry.crc32 != 0 || entry.size == 0; });
}

std::string unpack(const ZipEntry& entry) {
  std::string bytes;
  bytes.reserve(entry.size);  // it would take twice as much where it grows
  inflate(entry.data, entry.size, [&](std::string_view piece) { bytes += piece; });
  return bytes;
}

}  // namespace ddp::pt
