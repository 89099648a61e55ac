#include "data/formats/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"

namespace ddp {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint16_t kZip64Extra = 1;
constexpr uint16_t kFlagEncrypted = 1;
constexpr uint16_t kFlagUtf8 = 1 << 11;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kVersion = 45;  // the version that introduced zip64
constexpr uint16_t kUnix = 3 << 8;
constexpr uint16_t kFirstDate = 1 << 5 | 1;     // 1 January 1980
constexpr uint32_t kValueInZip64 = 0xffffffff;  // the value is in the zip64 extra field
constexpr uint16_t kCountInZip64 = 0xffff;
constexpr size_t kPiece = size_t{1} << 18;

/// Reads little-endian fields from the front of bytes.
class DirectoryFields {
 public:
  DirectoryFields(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  template <typename Integer>
  Integer get() {
    const std::string_view piece = take(sizeof(Integer));
    uint64_t value = 0;
    for (size_t i = 0; i < piece.size(); ++i) value |= uint64_t{static_cast<uint8_t>(piece[i])} << (8 * i);
    return static_cast<Integer>(value);
  }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) fail();
    const std::string_view piece = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return piece;
  }

  void expect(uint32_t signature) {
    if (get<uint32_t>() != signature) fail();
  }
  bool is_empty() const { return bytes_.empty(); }
  [[noreturn]] void fail() const {
    throw DataError(path_, "expected a zip file: its directory is damaged, or the file is truncated");
  }

 private:
  std::string_view bytes_;
  const std::filesystem::path& path_;
};

struct DirectoryPlace {
  uint64_t begin = 0;
  uint64_t size = 0;
  uint64_t count = 0;
};

std::string_view from(std::string_view file, uint64_t position) {
  return file.substr(std::min<uint64_t>(position, file.size()));
}

DirectoryPlace find_directory(std::string_view file, const std::filesystem::path& path) {
  constexpr uint64_t kMaxComment = 0xffff;
  const std::array<char, 4> signature = {'P', 'K', 5, 6};
  const std::string_view tail = from(file, file.size() - std::min<uint64_t>(file.size(), kEndBytes + kMaxComment));
  const auto found = tail.rfind(std::string_view(signature.data(), signature.size()));
  if (found == std::string_view::npos) DirectoryFields("", path).fail();
  const uint64_t end = file.size() - tail.size() + found;
  DirectoryFields fields(from(file, end), path);
  fields.expect(kEndSignature);
  fields.take(6);  // disk numbers, and the number of entries on this disk
  DirectoryPlace place;
  place.count = fields.get<uint16_t>();
  place.size = fields.get<uint32_t>();
  place.begin = fields.get<uint32_t>();
  fields.take(fields.get<uint16_t>());  // the comment
  if (place.count != kCountInZip64 && place.size != kValueInZip64 && place.begin != kValueInZip64) return place;
  if (end < kLocatorBytes) fields.fail();
  DirectoryFields locator(from(file, end - kLocatorBytes), path);
  if (locator.get<uint32_t>() != kLocator64Signature) return place;  // without zip64 the values are exact
  locator.take(4);
  DirectoryFields end64(from(file, locator.get<uint64_t>()), path);
  end64.expect(kEnd64Signature);
  end64.take(8 + 2 + 2 + 4 + 4 + 8);  // its size, versions, disks, entries on this disk
  place.count = end64.get<uint64_t>();
  place.size = end64.get<uint64_t>();
  place.begin = end64.get<uint64_t>();
  return place;
}

/// Replaces those values that are stored in the extra field, in the order in which they occur there.
void read_zip64(std::string_view extra, const std::array<uint64_t*, 3>& values, const std::filesystem::path& path) {
  DirectoryFields fields(extra, path);
  while (!fields.is_empty()) {
    const auto kind = fields.get<uint16_t>();
    const auto length = fields.get<uint16_t>();
    DirectoryFields content(fields.take(length), path);
    if (kind != kZip64Extra) continue;
    for (uint64_t* value : values) {
      if (*value == kValueInZip64) *value = content.get<uint64_t>();
    }
  }
}

/// Returns the bytes of a member, which follow its local header.
std::string_view packed_bytes(std::string_view file, uint64_t position, uint64_t size,
                              const std::filesystem::path& path) {
  DirectoryFields local(from(file, position), path);
  local.expect(kLocalSignature);
  local.take(22);  // the directory contains the same fields
  const auto name = local.get<uint16_t>();
  const auto extra = local.get<uint16_t>();
  local.take(uint64_t{name} + extra);
  return local.take(size);
}

ZipMember read_entry(DirectoryFields& fields, std::string_view file, const std::filesystem::path& path) {
  fields.expect(kCentralSignature);
  fields.take(4);  // versions
  const auto flags = fields.get<uint16_t>();
  const auto method = fields.get<uint16_t>();
  fields.take(4);  // time
  ZipMember member{.crc32 = fields.get<uint32_t>()};
  uint64_t packed = fields.get<uint32_t>();
  member.size = fields.get<uint32_t>();
  const auto name = fields.get<uint16_t>();
  const auto extra = fields.get<uint16_t>();
  const auto comment = fields.get<uint16_t>();
  fields.take(8);  // disk, attributes
  uint64_t position = fields.get<uint32_t>();
  member.name = fields.take(name);
  read_zip64(fields.take(extra), {&member.size, &packed, &position}, path);
  fields.take(comment);
  if ((flags & kFlagEncrypted) != 0) throw DataError(path, "is encrypted, which is not supported");
  if (method != 0 && method != kDeflated) {
    throw DataError(path, "is compressed with method " + std::to_string(method) +
                              ", expected none or deflate: numpy.savez or numpy.savez_compressed write these");
  }
  member.is_deflated = method == kDeflated;
  if (!member.is_deflated && packed != member.size) fields.fail();
  member.packed = packed_bytes(file, position, packed, path);
  if (member.size > uint64_t{std::numeric_limits<int64_t>::max()}) fields.fail();
  if (member.is_deflated) {
    check_unpacked_size(path, static_cast<int64_t>(member.size), static_cast<int64_t>(packed));
  }
  return member;
}

template <typename Integer>
void put(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
}

uint32_t checksum(uint32_t before, std::string_view bytes) {
  if (bytes.empty()) return before;  // zlib restarts if the pointer is null
  return static_cast<uint32_t>(::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Compresses the pieces into one deflate stream, and passes it to `sink` as it is produced.
template <typename Sink>
void deflate_pieces(const std::vector<std::string_view>& pieces, const Sink& sink) {
  z_stream stream{};
  constexpr int kRaw = -15;
  constexpr int kMemory = 8;
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRaw, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, ::deflateEnd);
  std::string out(kPiece, '\0');
  const auto run = [&](int flush) {
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      ::deflate(&stream, flush);
      sink(std::string_view(out).substr(0, out.size() - stream.avail_out));
    } while (stream.avail_out == 0);
  };
  for (std::string_view piece : pieces) {
    for (; !piece.empty(); piece.remove_prefix(std::min(kPiece, piece.size()))) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
      stream.avail_in = static_cast<uInt>(std::min(kPiece, piece.size()));
      run(Z_NO_FLUSH);
    }
  }
  run(Z_FINISH);
}

}  // namespace

std::vector<ZipMember> read_zip_directory(std::string_view file, const std::filesystem::path& path) {
  const DirectoryPlace place = find_directory(file, path);
  DirectoryFields directory(from(file, place.begin), path);
  DirectoryFields entries(directory.take(place.size), path);
  std::vector<ZipMember> members;
  while (!entries.is_empty()) members.push_back(read_entry(entries, file, path));
  uint64_t packed = 0;  // if members overlapped, this sum could be any multiple of the size of the file
  for (const ZipMember& member : members) packed += member.packed.size();
  if (members.size() != place.count || packed > file.size()) entries.fail();
  std::ranges::sort(members, {}, &ZipMember::name);
  const auto twice = std::ranges::adjacent_find(members, {}, &ZipMember::name);
  if (twice != members.end()) throw DataError(path, "holds two members of the same name: it is damaged");
  return members;
}

struct ZipMemberReader::Inflate {
  z_stream stream{};
  explicit Inflate(std::string_view packed) : left(packed) {
    constexpr int kRaw = -15;
    if (::inflateInit2(&stream, kRaw) != Z_OK) throw std::bad_alloc();
  }
  ~Inflate() { ::inflateEnd(&stream); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;

  std::string_view left;
};

ZipMemberReader::ZipMemberReader(const ZipMember& member, const std::filesystem::path& path)
    : member_(member), path_(path), inflate_(member.is_deflated ? std::make_unique<Inflate>(member.packed) : nullptr) {}

ZipMemberReader::~ZipMemberReader() = default;

void ZipMemberReader::read(std::span<uint8_t> bytes) {
  if (bytes.size() > member_.size - position_) {
    throw DataError(path_, "expected " + std::to_string(position_ + bytes.size()) + " bytes or more in a member, got " +
                               std::to_string(member_.size) + ": it is truncated");
  }
  if (!inflate_) {
    std::memcpy(bytes.data(), member_.packed.data() + position_, bytes.size());
  } else {
    z_stream& stream = inflate_->stream;
    for (size_t done = 0; done < bytes.size();) {
      const std::string_view in = inflate_->left.substr(0, kPiece);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
      stream.avail_in = static_cast<uInt>(in.size());
      stream.next_out = bytes.data() + done;
      const auto room = std::min(kPiece, bytes.size() - done);
      stream.avail_out = static_cast<uInt>(room);
      const int status = ::inflate(&stream, Z_NO_FLUSH);
      inflate_->left.remove_prefix(in.size() - stream.avail_in);
      const size_t made = room - stream.avail_out;
      done += made;
      const bool has_ended = status == Z_STREAM_END && done < bytes.size();
      if ((status != Z_OK && status != Z_STREAM_END) || has_ended || (made == 0 && stream.avail_in == in.size())) {
        throw DataError(path_, "the compressed data of a member is damaged");
      }
    }
  }
  crc32_ = checksum(crc32_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  position_ += bytes.size();
}

void ZipMemberReader::finish() {
  if (position_ == member_.size && crc32_ == member_.crc32) return;
  throw DataError(path_, position_ == member_.size ? "the checksum of a member differs: the file is damaged"
                                                   : "a member has more bytes than its array: the file is damaged");
}

void ZipWriter::add(const std::string& name, const std::vector<std::string_view>& pieces, bool deflate) {
  Entry entry{.name = name, .position = file_.position(), .is_deflated = deflate};
  for (const std::string_view piece : pieces) {
    entry.size += piece.size();
    entry.crc32 = checksum(entry.crc32, piece);
  }
  entry.packed = entry.size;
  file_.write(header_of(entry, false));
  const uint64_t begin = file_.position();
  if (deflate) {
    deflate_pieces(pieces, [&](std::string_view packed) { file_.write(packed); });
    entry.packed = file_.position() - begin;
    file_.overwrite(entry.position, header_of(entry, false));
  } else {
    for (const std::string_view piece : pieces) file_.write(piece);
  }
  entries_.push_back(std::move(entry));
}

// Always uses zip64, like numpy.savez: the length of the header is then independent of the compressed size.
std::string ZipWriter::header_of(const Entry& entry, bool in_directory) const {
  std::string bytes;
  put<uint32_t>(bytes, in_directory ? kCentralSignature : kLocalSignature);
  if (in_directory) put<uint16_t>(bytes, kUnix | kVersion);
  put<uint16_t>(bytes, kVersion);
  put<uint16_t>(bytes, kFlagUtf8);
  put<uint16_t>(bytes, entry.is_deflated ? kDeflated : 0);
  put<uint16_t>(bytes, 0);
  put<uint16_t>(bytes, kFirstDate);
  put<uint32_t>(bytes, entry.crc32);
  put<uint32_t>(bytes, kValueInZip64);
  put<uint32_t>(bytes, kValueInZip64);
  put<uint16_t>(bytes, static_cast<uint16_t>(entry.name.size()));
  const uint16_t values = in_directory ? 24 : 16;
  put<uint16_t>(bytes, static_cast<uint16_t>(4 + values));
  if (in_directory) {
    put<uint16_t>(bytes, 0);  // comment
    put<uint32_t>(bytes, 0);  // disk and internal attributes
    put<uint32_t>(bytes, uint32_t{0100644} << 16);
    put<uint32_t>(bytes, kValueInZip64);
  }
  bytes += entry.name;
  put<uint16_t>(bytes, kZip64Extra);
  put<uint16_t>(bytes, values);
  put<uint64_t>(bytes, entry.size);
  put<uint64_t>(bytes, entry.packed);
  if (in_directory) put<uint64_t>(bytes, entry.position);
  return bytes;
}

void ZipWriter::finish() {
  const uint64_t begin = file_.position();
  for (const Entry& entry : entries_) file_.write(header_of(entry, true));
  const uint64_t end = file_.position();
  std::string bytes;
  if (!entries_.empty()) {  // NumPy recognizes an empty file by the other record
    put<uint32_t>(bytes, kEnd64Signature);
    put<uint64_t>(bytes, 44);
    put<uint16_t>(bytes, kUnix | kVersion);
    put<uint16_t>(bytes, kVersion);
    put<uint64_t>(bytes, 0);  // disks
    put<uint64_t>(bytes, entries_.size());
    put<uint64_t>(bytes, entries_.size());
    put<uint64_t>(bytes, end - begin);
    put<uint64_t>(bytes, begin);
    put<uint32_t>(bytes, kLocator64Signature);
    put<uint32_t>(bytes, 0);
    put<uint64_t>(bytes, end);
    put<uint32_t>(bytes, 1);
  }
  put<uint32_t>(bytes, kEndSignature);
  put<uint32_t>(bytes, 0);
  const auto count = static_cast<uint16_t>(std::min<uint64_t>(entries_.size(), kCountInZip64));
  put<uint16_t>(bytes, count);
  put<uint16_t>(bytes, count);
  put<uint32_t>(bytes, static_cast<uint32_t>(std::min<uint64_t>(end - begin, kValueInZip64)));
  put<uint32_t>(bytes, static_cast<uint32_t>(std::min<uint64_t>(begin, kValueInZip64)));
  put<uint16_t>(bytes, 0);
  file_.write(bytes);
}

}  // namespace ddp
