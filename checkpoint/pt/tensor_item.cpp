#include "checkpoint/pt/tensor_item.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "base/joined.h"
#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/unpickler.h"
#include "checkpoint/pt/zip_directory.h"
#include "checkpoint/pt/zip_records.h"

namespace ddp::pt {
namespace {

using safetensors::quote_name;
using zip::DirectoryEntry;
using zip::Fields;

constexpr std::string_view kDataPickle = "/data.pkl";

// In an archive of torch.save() with one tensor, the first and the last kilobyte hold everything but the elements.
constexpr uint64_t kEdgeBytes = 4096;
// Smaller archives are read at once.
constexpr uint64_t kSmall = uint64_t{32} << 10;

// The pickle of one tensor has some 300 bytes, a directory of its archive some 700.
constexpr uint64_t kMaxItemPickleBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxDirectoryBytes = uint64_t{1} << 20;

// Ranges of an archive in a file, of which the beginning and the end are kept. Positions are counted in the archive.
class Archive {
 public:
  Archive(storage::FileSystem& file_system, const storage::FileDescriptor& file, const std::filesystem::path& path,
          uint64_t begin, uint64_t size)
      : file_system_(file_system), file_(file), path_(path), begin_(begin), size_(size) {
    const auto head = size <= kSmall ? size : kEdgeBytes;
    head_ = read_from_file(0, head);
    tail_begin_ = size <= kSmall ? size : size - kEdgeBytes;
    tail_ = read_from_file(tail_begin_, size - tail_begin_);
  }

  uint64_t size() const { return size_; }

  std::string read(uint64_t position, uint64_t size) const {
    if (position > size_ || size > size_ - position) throw FormatError("the archive is truncated");
    if (position + size <= head_.size()) return head_.substr(position, size);
    if (position >= tail_begin_) return tail_.substr(position - tail_begin_, size);
    return read_from_file(position, size);
  }

  // The bytes from `position` on, but no more than there are.
  std::string read_at_most(uint64_t position, uint64_t size) const {
    return read(position, std::min(size, size_ - std::min(position, size_)));
  }

 private:
  std::string read_from_file(uint64_t position, uint64_t size) const {
    std::string bytes(size, '\0');
    file_system_.read(file_, bytes.data(), bytes.size(), begin_ + position, path_);
    return bytes;
  }

  storage::FileSystem& file_system_;
  const storage::FileDescriptor& file_;
  const std::filesystem::path& path_;
  uint64_t begin_;
  uint64_t size_;
  std::string head_;
  std::string tail_;
  uint64_t tail_begin_ = 0;
};

// The archive's directory, and the bytes to which its names refer.
class Contents {
 public:
  explicit Contents(const Archive& archive) : archive_(archive) {
    if (!archive.read_at_most(0, 4).starts_with("PK\3\4")) {
      throw FormatError("it is not an archive as torch.save() writes it");
    }
    const auto edge = std::min(archive.size(), kEdgeBytes);
    tail_ = archive.read(archive.size() - edge, edge);
    const auto directory = zip::directory_position({.bytes = tail_, .begin = archive.size() - edge});
    if (archive.size() - directory > kMaxDirectoryBytes) throw FormatError("its directory is too long for one tensor");
    if (directory < archive.size() - edge) tail_ = archive.read(directory, archive.size() - directory);
    directory_ = zip::read_directory(zip::Tail{.bytes = tail_, .begin = archive.size() - tail_.size()});
    std::ranges::sort(directory_.entries, {}, &DirectoryEntry::position);
    find_pickle();
  }

  // The verified bytes of an entry that is not deflated.
  std::string read_small_entry(const DirectoryEntry& entry) const {
    if (entry.header.stored > kMaxItemPickleBytes) throw FormatError("its " + quote_name(entry.name) + " is too long");
    auto data = archive_.read(data_position(entry), entry.header.stored);
    if (entry.header.method != zip::kStored) throw FormatError("its " + quote_name(entry.name) + " is compressed");
    if (entry.header.crc32 != 0 && crc32(data.data(), data.size()) != entry.header.crc32) {
      throw FormatError("the bytes of " + quote_name(entry.name) + " are not those that were written (CRC-32)");
    }
    return data;
  }

  // The position of the entry's data, which follows the entry's own header. That header must match the directory's
  // line.
  uint64_t data_position(const DirectoryEntry& entry) const {
    const auto bytes = archive_.read_at_most(entry.position, zip::kLocalBytes);
    Fields fields(bytes, "entry header");
    fields.expect(zip::kLocalSignature);
    const auto local = zip::read_entry_header(fields);
    const uint64_t name_bytes = fields.get<uint16_t>();
    const uint64_t extra_bytes = fields.get<uint16_t>();
    const auto name = entry.position + zip::kLocalBytes;
    if (local.method != entry.header.method || archive_.read_at_most(name, name_bytes) != entry.name) fields.fail();
    const auto begin = name + name_bytes + extra_bytes;
    const auto next = std::ranges::upper_bound(directory_.entries, entry.position, {}, &DirectoryEntry::position);
    const auto end = next != directory_.entries.end() ? next->position : directory_.position;
    if (begin > end || entry.header.stored > end - begin) {
      throw FormatError("the zip file's entry " + quote_name(entry.name) + " does not end where the next one begins");
    }
    return begin;
  }

  const DirectoryEntry& pickle() const { return *pickle_; }

  // The entry `name` in the archive's folder, or null.
  const DirectoryEntry* find(const std::string& name) const {
    const auto folder = pickle_->name.substr(0, pickle_->name.size() - kDataPickle.size());
    const auto full = std::string(folder).append("/").append(name);
    const auto found = std::ranges::find(directory_.entries, full, &DirectoryEntry::name);
    return found != directory_.entries.end() ? &*found : nullptr;
  }

 private:
  void find_pickle() {
    for (const auto& entry : directory_.entries) {
      const auto slash = entry.name.find('/');
      if (slash == std::string_view::npos || entry.name.substr(slash) != kDataPickle) continue;
      if (pickle_ != nullptr) throw FormatError("it holds two pickles named data.pkl");
      pickle_ = &entry;
    }
    if (pickle_ == nullptr) throw FormatError("it holds no data.pkl, as torch.save() writes it");
    for (size_t i = 1; i < directory_.entries.size(); ++i) {
      if (directory_.entries[i].position == directory_.entries[i - 1].position) {
        throw FormatError("two entries of the zip file begin at one place");
      }
    }
  }

  const Archive& archive_;
  std::string tail_;
  zip::Directory directory_;
  const DirectoryEntry* pickle_ = nullptr;
};

std::string describe(const std::string& dtype, const std::vector<int64_t>& sizes) {
  return "torch." + dtype + " of shape [" + detail::joined(sizes) + "]";
}

// The one tensor that a pickle holds.
TensorEntry sole_tensor(const Value& root, const TensorItem& item) {
  if (root.is(Kind::kOtherTensor)) throw FormatError("it holds " + root.text());
  if (!root.is(Kind::kTensor)) throw FormatError("it holds something that is not a tensor");
  const auto& tensor = root.tensor();
  if (tensor.dtype != item.dtype || tensor.sizes != item.sizes) {
    throw FormatError("it holds " + describe(tensor.dtype, tensor.sizes) + ", but the folder's metadata says " +
                      describe(item.dtype, item.sizes));
  }
  return tensor;
}

}  // namespace

ElementPlace find_elements(storage::FileSystem& file_system, const storage::FileDescriptor& file,
                           const std::filesystem::path& path, const TensorItem& item) {
  const Archive archive(file_system, file, path, item.begin, item.size);
  const Contents contents(archive);
  if (const auto* order = contents.find("byteorder");
      order != nullptr && contents.read_small_entry(*order) != "little") {
    throw FormatError("its numbers are big-endian, which is not supported");
  }
  const auto pickle = unpickle(contents.read_small_entry(contents.pickle()));
  ElementPlace place;
  place.layout = sole_tensor(pickle->root, item);
  const auto* storage = contents.find("data/" + place.layout.storage);
  if (storage == nullptr) throw FormatError("its storage " + quote_name(place.layout.storage) + " is missing");

  const auto element = dtype_by_name(item.dtype)->bytes;
  const auto [count, extent] = count_elements(place.layout);
  const auto offset = static_cast<uint64_t>(place.layout.offset);
  const auto available = storage->header.size / element;
  if (extent > available || (extent > 0 && offset > available - extent)) {
    throw FormatError("it needs the elements " + std::to_string(offset) + " to " + std::to_string(offset + extent) +
                      " of a storage of " + std::to_string(available));
  }
  place.storage_begin = item.begin + contents.data_position(*storage);
  place.storage_size = storage->header.stored;
  place.crc32 = storage->header.crc32;
  place.is_deflated = storage->header.method != zip::kStored;
  place.is_row_major = is_plain(place.layout);
  place.begin = place.storage_begin + (extent > 0 && !place.is_deflated ? offset * element : 0);
  place.size = extent * element;
  return place;
}

std::string tensor_elements(std::string_view archive, const TensorItem& item) {
  std::optional<PtFile> file;
  try {
    file.emplace(storage::Bytes{.view = archive}, "the item");
  } catch (const FormatError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw FormatError(error.what());
  }
  const auto tensor = sole_tensor(file->root(), item);
  const auto bytes = file->bytes_of(tensor);
  if (gathered_size(tensor) > archive.size()) throw FormatError("it has fewer bytes than elements");
  return is_plain(tensor) ? std::string(bytes) : gather_elements(tensor, bytes);
}

std::string read_tensor_item(storage::FileSystem& file_system, const storage::FileDescriptor& file,
                             const std::filesystem::path& path, const TensorItem& item) {
  const auto file_bytes = file_system.size(file, path);
  if (item.begin > file_bytes || item.size > file_bytes - item.begin) throw FormatError("its file is truncated");
  std::string archive(item.size, '\0');
  file_system.read(file, archive.data(), archive.size(), item.begin, path);
  return tensor_elements(archive, item);
}

}  // namespace ddp::pt
